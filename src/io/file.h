// Files and directories as the formats here need them: exact reads and writes at an offset, durable
// names, errors that name the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/result.h"

namespace weft {

enum class Links : uint8_t { follow, refuse };

// An open file or directory. Not mapped into memory: a mapped file that someone else cuts short
// ends the process.
class File {
 public:
  File() = default;
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  // A regular file, to read. Never waits, whatever lies at the path.
  static Result<File> open(const std::string& path, Links links = Links::follow);
  // A new file, to write and read back; fails if the name is taken.
  static Result<File> create(const std::string& path);
  static Result<File> open_directory(const std::string& path);

  const std::string& path() const { return path_; }
  Result<uint64_t> size() const;
  // Exactly `size` bytes or a failure.
  Status read(uint64_t offset, void* out, size_t size) const;
  Status write(uint64_t offset, const void* data, size_t size);
  // Claims the room for `size` bytes now rather than finding the disk full later; where the file
  // system cannot, it does nothing.
  Status reserve(uint64_t size);
  // Until this has succeeded nothing is known to be on the disk. After a failure the file must be
  // written anew.
  Status sync();
  // Keeps other processes out until this File is gone; `busy` if one is there already.
  Status lock(const std::string& busy);

 private:
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_ = -1;
  std::string path_;
};

// A file or directory that goes away with its owner unless it is kept.
class Temporary {
 public:
  Temporary() = default;
  explicit Temporary(std::string path) : path_(std::move(path)) {}
  Temporary(Temporary&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Temporary& operator=(Temporary&& other) noexcept;
  ~Temporary();

  explicit operator bool() const { return !path_.empty(); }
  const std::string& path() const { return path_; }
  void keep() { path_.clear(); }

 private:
  std::string path_;
};

// Of the first `size` bytes.
Result<Digest> checksum_of(const File& file, uint64_t size);

std::string join_path(const std::string& directory, std::string_view name);
std::string parent_path(const std::string& path);
bool path_exists(const std::string& path);
// Something lies there that this process may not read.
bool is_locked(const std::string& path);

// A whole text of at most `limit` bytes.
Result<std::string> read_text(const std::string& path, size_t limit, Links links = Links::follow);
// A new file, synced.
Status write_text(const std::string& path, std::string_view text);
// The file at `path` is the old one or the new one at every moment, also after a crash.
Status replace_text(const std::string& path, std::string_view text);

// Where a new file has to be put to replace what `path` leads to: that, through links, if it is a
// file, or nothing. Anything else is refused: to replace a device would take it from everyone.
Result<std::string> place_for_file(const std::string& path);

Status rename_path(const std::string& from, const std::string& to);
// Puts directory `from` at `to`, where a directory may lie: then that one is at `from` afterwards
// and *swapped is set.
Status rename_or_swap(const std::string& from, const std::string& to, bool* swapped);
Status sync_directory(const std::string& path);
// Each name is synced that is made. With parents, one that is there already is no failure.
Status make_directory(const std::string& path, bool with_parents);
// The names in a directory, ascending.
Result<std::vector<std::string>> list_directory(const std::string& path);
// The file or the directory with all that is in it. Links are removed, not followed.
Status remove_path(const std::string& path);

}  // namespace weft
