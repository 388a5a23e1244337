// Reads the JSON files of the command.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace weft::cli {

// More levels than files of weft have. Without a limit, dump() would exhaust the stack, because it
// calls itself for each level.
constexpr int kMostJsonLevels = 64;

// Discarded (is_discarded()) if the text is not JSON or has more levels.
nlohmann::json read_json(std::string_view text);

}  // namespace weft::cli
