// A file that gets its name when it is complete and on the disk. replace_text() of the library does
// the same, but the command does not see it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace weft::cli {

enum class Existing : uint8_t { keep, replace };  // keep: that the file exists is a failure
// same: owner, group and mode of the replaced file, as far as this process may set them; of a new
// file the mode that the umask permits. owner: mode 0600.
enum class Readers : uint8_t { same, owner };

// Writes the file. If the process is killed before the file is complete, nothing is left of it; on
// a file system without unnamed files, a file with a hidden name is. The errno of a failure, or 0.
int write_complete(const std::filesystem::path& place, std::string_view text, Existing existing,
                   Readers readers);

}  // namespace weft::cli
