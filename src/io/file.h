// Files and directories for the formats of this floor: exact reads and writes at an offset, durable
// names, errors that contain the path.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/result.h"

namespace weft {

enum class Links : uint8_t { follow, refuse };
enum class Readers : uint8_t { all, owner };           // all: as the umask permits
enum class Locked : uint8_t { yes, no, unsupported };  // unsupported: by the file system

// The failure of a system call: "PATH: cannot WHAT: REASON".
Status path_failure(const std::string& path, std::string_view what, int error);
const char* kind_of(mode_t mode);  // "directory"

// An open file or directory. Not mapped into memory, because a mapped file that another process
// truncates ends this process.
class File {
 public:
  File() = default;
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  // A regular file, to read. Never blocks, for any kind of file.
  static Result<File> open(const std::string& path, Links links = Links::follow);
  // A new file, to write and read back.
  static Result<File> create(const std::string& path);
  // The same; *exists: it fails because the name exists. `final_path`: that in messages, which the
  // file gets when it is complete.
  static Result<File> create(const std::string& path, const std::string& final_path,
                             Readers readers, bool* exists);
  static Result<File> open_directory(const std::string& path);

  const std::string& path() const { return path_; }
  Result<uint64_t> size() const;
  // Exactly `size` bytes or a failure.
  Status read(uint64_t offset, void* out, size_t size) const;
  Status write(uint64_t offset, const void* data, size_t size);
  // Reserves `size` bytes on the disk, so that later writes cannot find it full. No effect if the
  // file system does not support this.
  Status reserve(uint64_t size);
  // The data is on the disk only after this has succeeded. After a failure the file must be written
  // again.
  Status sync();
  // Locks the file until this File is destroyed, unless another File has locked it.
  Result<Locked> try_lock();
  // The same; fails with `busy` if another File has locked it. On a file system without locks the
  // caller must ensure that there is one writer.
  Status lock(const std::string& busy);
  // Whether another File or process has locked bytes of the file with F_OFD_SETLK. Takes no lock,
  // so that a process that locks them at the same time does not fail.
  bool has_record_lock() const;
  // Whether the path names this file, and not a link to it.
  bool is_at(const std::string& path) const;
  // Sets the owner, group and mode of the file at `path`, if there is one, as far as this process
  // may.
  void take_access_of(const std::string& path);
  // Others may read and write the file only if they may read and write the one at `path`.
  void restrict_as(const std::string& path);

 private:
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  Status ends_early(uint64_t offset, size_t size) const;

  int fd_ = -1;
  std::string path_;
};

// A directory that is removed with its contents when its owner is destroyed, unless it is kept.
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

// Of `size` bytes from this one on.
Result<Digest> checksum_of(const File& file, uint64_t begin, uint64_t size);

std::string join_path(const std::string& directory, std::string_view name);
std::string parent_path(const std::string& path);
// The path if it is a directory, otherwise the directory of the file.
std::string directory_of(const std::string& path);
std::string absolute_path(const std::string& path);  // without '.', '..' and a '/' at its end
bool path_exists(const std::string& path);
bool is_directory(const std::string& path);  // or leads to one
// The path exists, but this process has no permission to read it.
bool is_locked(const std::string& path);

// A whole text of at most `limit` bytes.
Result<std::string> read_text(const std::string& path, size_t limit, Links links = Links::follow);
// A new file, synced.
Status write_text(const std::string& path, std::string_view text);

Status rename_path(const std::string& from, const std::string& to);
Status link_path(const std::string& from, const std::string& to);  // another name of the file
// Renames directory `from` to `to`. If `to` is an existing directory, it is at `from` afterwards
// and *swapped is set. If the file system cannot swap them, it is at aside_path(to) for a moment,
// where a crash leaves it.
Status rename_or_swap(const std::string& from, const std::string& to, bool* swapped);
constexpr std::string_view kAsideEnd = ".old";
std::string aside_path(const std::string& path);  // "DIR/.NAME.old"
// The path, or aside_path() if the directory is there only.
std::string directory_or_aside(const std::string& path);
// Ends what a crash has interrupted: the directory is at its path afterwards.
Status restore_directory(const std::string& path);
Status sync_directory(const std::string& path);
// Each new name is synced. With parents, an existing directory is not a failure.
Status make_directory(const std::string& path, bool with_parents);
// The names in a directory, ascending.
Result<std::vector<std::string>> list_directory(const std::string& path);
// Refuses a directory that has other files than those that weft writes to it, by name, or leaves
// there (".NAME.tmp"). Ok if it does not exist.
Status check_only(const std::string& directory,
                  const std::function<bool(std::string_view)>& writes);
// Removes a file. Fails for a directory.
Status remove_file(const std::string& path);
// Removes a file, or a directory with its contents. Links are removed, not followed.
Status remove_path(const std::string& path);

}  // namespace weft
