#include "cli/file_digest.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "cli/utf8.h"

namespace weft::cli {

namespace {

// Each step is invertible, so that a change of one word always changes the hash.
uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 32);
}

}  // namespace

std::optional<std::string> file_digest(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  std::ifstream file(path, std::ios::binary);
  std::vector<char> block(size_t{1} << 18);
  uint64_t hash = 0, bytes = 0;
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    const auto n = static_cast<size_t>(file.gcount());
    bytes += n;
    for (size_t at = 0; at < n; at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, &block[at], std::min(sizeof word, n - at));
      hash = mix(hash, word);
    }
  }
  if (!file.eof()) return {};
  std::string out = std::to_string(bytes) + "-";
  for (int shift = 56; shift >= 0; shift -= 8) append_hex(out, static_cast<char>(hash >> shift));
  return out;
}

}  // namespace weft::cli
