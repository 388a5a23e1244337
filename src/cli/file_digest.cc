#include "cli/file_digest.h"

#define XXH_STATIC_LINKING_ONLY  // the state on the stack
#include <xxhash.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

#include "cli/utf8.h"

namespace weft::cli {

std::optional<std::string> file_digest(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  std::ifstream file(path, std::ios::binary);
  std::vector<char> block(size_t{1} << 18);
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  uint64_t bytes = 0;
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    const auto n = static_cast<size_t>(file.gcount());
    bytes += n;
    XXH3_64bits_update(&state, block.data(), n);
  }
  if (!file.eof()) return {};
  const uint64_t hash = XXH3_64bits_digest(&state);
  std::string out = std::to_string(bytes) + "-";
  for (int shift = 56; shift >= 0; shift -= 8) append_hex(out, static_cast<char>(hash >> shift));
  return out;
}

}  // namespace weft::cli
