// The sliding windows of attention in config.json, and the key `window` of a preset: those of its
// blocks in turn, 0 for none.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "io/config_fields.h"

namespace weft {

// After the key `blocks` is set.
Status read_windows(ConfigFields& config, const Architecture& architecture, PresetKeys& keys);

using WindowFields = std::vector<std::pair<const char*, std::string>>;

// The fields of a preset with these keys. Fails if Transformers has no fields for its windows.
Result<WindowFields> print_windows(std::string_view keys, const Architecture& architecture);

}  // namespace weft
