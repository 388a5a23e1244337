// Files with secrets (keys and permissions to join a run): only their owner may read them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "cli/outcome.h"

namespace weft::cli {

// The only line of a file that other users cannot read; "-" is standard input.
Outcome read_secret(const std::string& path, std::string& line);
// Tells a file from another one that replaces it.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  int64_t written_ns = 0;
  bool operator==(const FileId&) const = default;
};
// Of a regular file; without one, FileId().
FileId file_id(const std::string& path);
// The same as read_secret for a file that another process writes: waits until it exists and its
// line is complete.
Outcome await_secret(const std::string& path, std::chrono::milliseconds limit, std::string& line,
                     FileId& id);
// The secret key in the file. Without a file, the key in the variable WEFT_KEY, if `from_variable`;
// otherwise none.
Outcome read_key(const std::string& path, bool from_variable, std::string& key);
// Refuses a file that can be read only once, such as a pipe. Empty: no file.
Outcome check_read_again(const std::string& option, const std::string& path);
// Creates the file with mode 0600, complete or not at all. Fails if it exists; with `replace`, the
// join file of an earlier run is replaced.
Outcome write_secret(const std::string& path, const std::string& line, bool replace);

// Overwrites the characters, so that a secret is in memory only as long as necessary.
void wipe(std::string& text);

// Removes a file when the object is destroyed, unless another process has replaced it.
class FileToRemove {
 public:
  explicit FileToRemove(std::string path);
  ~FileToRemove();
  FileToRemove(const FileToRemove&) = delete;
  FileToRemove& operator=(const FileToRemove&) = delete;

 private:
  std::string path_;  // empty: none
  FileId id_;
};

}  // namespace weft::cli
