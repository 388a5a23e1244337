// GPT-NeoX (Black et al. 2022), of which Pythia has several sizes.
#pragma once

#include <string_view>

#include "graph/presets.h"

namespace weft {

Result<Preset> make_neox(std::string_view name, std::string_view keys,
                         const PresetOptions& options);

}  // namespace weft
