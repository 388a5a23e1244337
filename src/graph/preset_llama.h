// Llama and the models that differ from it in a few settings.
#pragma once

#include <string>
#include <string_view>

#include "graph/presets.h"

namespace weft {

bool is_llama(std::string_view name);
std::string llama_names();  // "llama, mistral, ..."
Result<Preset> make_llama(std::string_view name, std::string_view keys,
                          const PresetOptions& options);

}  // namespace weft
