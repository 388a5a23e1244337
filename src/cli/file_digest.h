// Whether a file still has the bytes that it had when a checkpoint was saved.
#pragma once

#include <optional>
#include <string>

namespace weft::cli {

// The key of the digest of --data among the stored options. It is not an option.
inline constexpr const char* kDataDigest = "data-digest";

// The number of bytes and their XXH3, "1234-0123456789abcdef". None if the file cannot be read.
// The hash finds changes that happen, not those that someone constructs.
std::optional<std::string> file_digest(const std::string& path);

}  // namespace weft::cli
