// A file that takes the place of another one when it is complete.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "io/file.h"

namespace weft {

// A new file, which gets its name with commit(). Until then it has a hidden name in the same
// directory, which no other process uses, and it is removed when this object is destroyed.
class Replacement {
 public:
  Replacement() = default;
  Replacement(Replacement&& other) noexcept;
  Replacement& operator=(Replacement&& other) noexcept;
  ~Replacement();

  static Result<Replacement> create(const std::string& path);

  // Whether there is a file that has not got its name yet.
  explicit operator bool() const { return !hidden_.empty(); }
  // The path that it gets: place_for_file().
  const std::string& path() const { return path_; }
  File& file() { return file_; }
  // Syncs the file and its name. If it replaces a file, it has the owner, group and mode of that
  // file, as far as this process may set them.
  Status commit();

 private:
  Status try_name(const std::string& hidden);

  std::string path_, hidden_;
  File file_;
};

// The file at `path` is always either the old one or the new one, also after a crash.
Status replace_text(const std::string& path, std::string_view text);

// The path at which a new file replaces `path`: the target of links if it is a file or does not
// exist. Other kinds are refused, because replacing a device would remove it for all processes.
Result<std::string> place_for_file(const std::string& path);

// The name that the file with this hidden name was to get. Empty if the name is not of a
// Replacement.
std::string_view replaced_name(std::string_view hidden);
// Removes the file with a hidden name if its process has ended. No effect on anything else.
void remove_abandoned(const std::string& hidden);

}  // namespace weft
