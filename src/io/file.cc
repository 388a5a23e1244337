#include "io/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>

#include "base/text.h"

namespace weft {

namespace {

namespace fs = std::filesystem;

std::string hidden_path(const std::string& path, std::string_view end) {
  return join_path(parent_path(path), cat('.', fs::path(path).filename().string(), end));
}

// Not as a standard descriptor, which the host may have closed: what it prints would get into the
// file.
int open_again(const char* path, int flags, mode_t mode = 0) {
  int fd;
  do fd = ::open(path, flags | O_CLOEXEC, mode);
  while (fd < 0 && errno == EINTR);
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int other = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(fd);
  errno = error;
  return other;
}

// One call moves less than 2 GiB, and an offset is signed.
constexpr size_t kMostAtOnce = size_t{1} << 30;
bool fits(uint64_t offset, uint64_t size) {
  constexpr uint64_t most = std::numeric_limits<int64_t>::max();
  return offset <= most && size <= most - offset;
}

// A write beyond the limit on the size of files raises SIGXFSZ, which ends a process that does not
// handle it. While this object exists the calling thread blocks the signal, so that the write fails
// with EFBIG instead. A signal that the write raised is removed; a signal of the host that was
// pending before is not.
class FileSizeSignal {
 public:
  FileSizeSignal() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    sigemptyset(&own_);
    sigaddset(&own_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &own_, &before_);
  }
  ~FileSizeSignal() {
    const timespec now{};
    if (raised_ && !was_pending_)
      while (sigtimedwait(&own_, nullptr, &now) < 0 && errno == EINTR) {}
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  FileSizeSignal(const FileSizeSignal&) = delete;
  FileSizeSignal& operator=(const FileSizeSignal&) = delete;

  void failed(int error) { raised_ = raised_ || error == EFBIG; }

 private:
  sigset_t own_, before_;
  bool was_pending_ = false, raised_ = false;
};

}  // namespace

Status path_failure(const std::string& path, std::string_view what, int error) {
  const bool wrong_path =
      error == ENOTDIR || error == EISDIR || error == ELOOP || error == ENAMETOOLONG;
  const bool exhausted = error == ENOMEM || error == EMFILE || error == ENFILE;
  const Code code = error == ENOENT ? Code::not_found
                    : exhausted     ? Code::no_memory
                    : wrong_path    ? Code::invalid
                                    : Code::io;
  return Status(code, cat(path.empty() ? "''" : path, ": cannot ", what, ": ", system_text(error)));
}

const char* kind_of(mode_t mode) {
  return S_ISDIR(mode) ? "directory" : S_ISREG(mode) ? "regular file" : "device or pipe";
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

Result<File> File::open(const std::string& path, Links links) {
  // Without O_NONBLOCK the open of a pipe would wait for its other end.
  const int fd =
      open_again(path.c_str(), O_RDONLY | O_NONBLOCK | (links == Links::refuse ? O_NOFOLLOW : 0));
  if (fd < 0)
    return links == Links::refuse && errno == ELOOP
               ? Status(Code::data, cat(path, ": expected a file, found a link"))
               : path_failure(path, "open", errno);
  File file(fd, path);
  struct stat info;
  if (::fstat(fd, &info) != 0) return path_failure(path, "look at", errno);
  if (!S_ISREG(info.st_mode))
    return Status(Code::invalid,
                  cat(path, ": expected a regular file, found a ", kind_of(info.st_mode)));
  return file;
}

Result<File> File::create(const std::string& path) {
  bool exists;
  return create(path, path, Readers::all, &exists);
}

Result<File> File::create(const std::string& path, const std::string& final_path, Readers readers,
                          bool* exists) {
  const mode_t mode = readers == Readers::owner ? 0600 : 0666;
  const int fd = open_again(path.c_str(), O_RDWR | O_CREAT | O_EXCL, mode);
  *exists = fd < 0 && errno == EEXIST;
  if (fd < 0) return path_failure(final_path, "create", errno);
  return File(fd, final_path);
}

Result<File> File::open_directory(const std::string& path) {
  const int fd = open_again(path.c_str(), O_RDONLY | O_DIRECTORY);
  if (fd < 0) return path_failure(path, "open", errno);
  return File(fd, path);
}

Result<uint64_t> File::size() const {
  struct stat info;
  if (::fstat(fd_, &info) != 0) return path_failure(path_, "look at", errno);
  return static_cast<uint64_t>(info.st_size);
}

// By now it may end before `offset`, from which `size` more bytes were expected.
Status File::ends_early(uint64_t offset, size_t size) const {
  WEFT_TRY_ASSIGN(const uint64_t end, this->size());
  const uint64_t first = std::min(end, offset);
  return Status(Code::data, cat(path_, ": ends at byte ", first, ", expected ",
                                offset + size - first, " more"));
}

Status File::read(uint64_t offset, void* out, size_t size) const {
  if (!fits(offset, size))
    return Status(Code::invalid, cat(path_, ": no file has a byte ", offset));
  for (size_t done = 0; done < size;) {
    const ssize_t n =
        ::pread(fd_, static_cast<char*>(out) + done, std::min(size - done, kMostAtOnce),
                static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return path_failure(path_, "read", errno);
    if (n == 0) return ends_early(offset + done, size - done);
    done += static_cast<size_t>(n);
  }
  return {};
}

Status File::write(uint64_t offset, const void* data, size_t size) {
  if (!fits(offset, size))
    return Status(Code::invalid, cat(path_, ": no file has a byte ", offset));
  FileSizeSignal signal;
  for (size_t done = 0; done < size;) {
    const ssize_t n =
        ::pwrite(fd_, static_cast<const char*>(data) + done, std::min(size - done, kMostAtOnce),
                 static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      signal.failed(error);
      return path_failure(path_, "write", error);
    }
    done += static_cast<size_t>(n);
  }
  return {};
}

Status File::reserve(uint64_t size) {
  if (size == 0) return {};
  if (!fits(0, size)) return Status(Code::invalid, cat(path_, ": no file has ", size, " bytes"));
  FileSizeSignal signal;
  int error;
  do error = ::posix_fallocate(fd_, 0, static_cast<off_t>(size));
  while (error == EINTR);
  signal.failed(error);
  if (error == 0 || error == EOPNOTSUPP || error == EINVAL || error == ENOSYS) return {};
  return path_failure(path_, cat("reserve ", size, " bytes"), error);
}

Status File::sync() {
  // Not repeated after a failure, because the kernel may no longer know which pages were lost.
  // EINVAL: the file does not support sync.
  if (::fsync(fd_) != 0 && errno != EINVAL) return path_failure(path_, "sync", errno);
  return {};
}

Result<Locked> File::try_lock() {
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return Locked::yes;
  if (errno == EWOULDBLOCK) return Locked::no;
  if (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL ||
      errno == EBADF)
    return Locked::unsupported;
  return path_failure(path_, "lock", errno);
}

Status File::lock(const std::string& busy) {
  WEFT_TRY_ASSIGN(const Locked locked, try_lock());
  return locked == Locked::no ? Status(Code::state, cat(path_, ": ", busy)) : Status();
}

bool File::has_record_lock() const {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return ::fcntl(fd_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool File::is_at(const std::string& path) const {
  struct stat own, there;
  return ::fstat(fd_, &own) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

void File::take_access_of(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return;
  mode_t mode = info.st_mode & 0777;
  const bool same_group = ::fchown(fd_, info.st_uid, info.st_gid) == 0 ||
                          ::fchown(fd_, static_cast<uid_t>(-1), info.st_gid) == 0;
  // Another group gets only what everyone gets.
  if (!same_group) mode = (mode & ~070u) | (mode & (mode & 07) << 3);
  (void)::fchmod(fd_, mode);
}

void File::restrict_as(const std::string& path) {
  struct stat own, other;
  if (::fstat(fd_, &own) != 0 || ::stat(path.c_str(), &other) != 0) return;
  (void)::fchmod(fd_, own.st_mode & (other.st_mode | S_IRUSR | S_IWUSR) & 0777);
}

Temporary& Temporary::operator=(Temporary&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

Temporary::~Temporary() {
  // A failure cannot be reported here; the next user of the name removes the rest.
  if (!path_.empty()) (void)attempt([this] { return remove_path(path_); });
}

Result<Digest> checksum_of(const File& file, uint64_t begin, uint64_t size) {
  constexpr uint64_t kBlock = 1 << 18;  // is hashed while it is in the cache of the core
  std::vector<char> block(static_cast<size_t>(std::min(size, kBlock)));
  Hasher hasher;
  for (uint64_t at = 0; at < size; at += block.size()) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(size - at, block.size()));
    WEFT_TRY(file.read(begin + at, block.data(), n));
    hasher.bytes(block.data(), n);
  }
  return hasher.finish();
}

std::string join_path(const std::string& directory, std::string_view name) {
  return directory.empty() || directory.back() == '/' ? cat(directory, name)
                                                      : cat(directory, '/', name);
}

std::string parent_path(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string directory_of(const std::string& path) {
  return is_directory(path) ? path : parent_path(path);
}

std::string absolute_path(const std::string& path) {
  std::error_code error;
  const std::string out = fs::absolute(path, error).lexically_normal().string();
  if (error) return path;
  return out.size() > 1 && out.ends_with('/') ? out.substr(0, out.size() - 1) : out;
}

bool path_exists(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

bool is_directory(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_locked(const std::string& path) {
  return ::faccessat(AT_FDCWD, path.c_str(), R_OK, AT_EACCESS) != 0 && errno == EACCES;
}

Result<std::string> read_text(const std::string& path, size_t limit, Links links) {
  WEFT_TRY_ASSIGN(const File file, File::open(path, links));
  WEFT_TRY_ASSIGN(const uint64_t size, file.size());
  if (size > limit)
    return Status(Code::data, cat(path, ": has ", size, " bytes, expected at most ", limit));
  std::string text(static_cast<size_t>(size), '\0');
  WEFT_TRY(file.read(0, text.data(), text.size()));
  return text;
}

Status write_text(const std::string& path, std::string_view text) {
  WEFT_TRY_ASSIGN(File file, File::create(path));
  WEFT_TRY(file.write(0, text.data(), text.size()));
  return file.sync();
}

Status link_path(const std::string& from, const std::string& to) {
  if (::link(from.c_str(), to.c_str()) == 0) return {};
  return path_failure(from, cat("link as '", to, "'"), errno);
}

Status rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    return path_failure(from, cat("rename to ", to), errno);
  return {};
}

Status rename_or_swap(const std::string& from, const std::string& to, bool* swapped) {
  *swapped = false;
  if (!path_exists(to)) return rename_path(from, to);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    *swapped = true;
    return {};
  }
  if (errno != EINVAL && errno != ENOSYS) return path_failure(from, cat("swap with ", to), errno);
  const std::string aside = aside_path(to);
  WEFT_TRY(rename_path(to, aside));
  if (const Status renamed = rename_path(from, to); !renamed.ok()) {
    (void)rename_path(aside, to);
    return renamed;
  }
  *swapped = true;
  return rename_path(aside, from);
}

std::string aside_path(const std::string& path) { return hidden_path(path, kAsideEnd); }

std::string directory_or_aside(const std::string& path) {
  std::string aside = aside_path(path);
  return path_exists(path) || !path_exists(aside) ? path : std::move(aside);
}

Status restore_directory(const std::string& path) {
  const std::string found = directory_or_aside(path);
  return found == path ? Status() : rename_path(found, path);
}

// A process that may only write into the directory cannot sync it.
Status sync_directory(const std::string& path) {
  if (::access(path.c_str(), R_OK) != 0 && errno == EACCES) return {};
  WEFT_TRY_ASSIGN(File directory, File::open_directory(path));
  return directory.sync();
}

Status make_directory(const std::string& path, bool with_parents) {
  const std::string parent = parent_path(path);
  if (with_parents && !path_exists(parent)) WEFT_TRY(make_directory(parent, with_parents));
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode))
    return Status(Code::invalid,
                  cat(path, ": expected a directory, found a ", kind_of(info.st_mode)));
  std::error_code error;
  const bool made = fs::create_directory(path, error);
  if (!made && !error && !with_parents) error = std::make_error_code(std::errc::file_exists);
  if (error) return path_failure(path, "create", error.value());
  return made ? sync_directory(parent) : Status();
}

// Does not use std::filesystem, which ends the process if there is no memory for iterating.
Result<std::vector<std::string>> list_directory(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
  if (!directory) return path_failure(path, "list", errno);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return path_failure(path, "list", errno);
  std::sort(names.begin(), names.end());
  return names;
}

Status check_only(const std::string& directory,
                  const std::function<bool(std::string_view)>& writes) {
  if (!path_exists(directory)) return {};
  WEFT_TRY_ASSIGN(const auto names, list_directory(directory));
  for (const std::string& name : names)
    if (!writes(name) && !(name.starts_with('.') && name.ends_with(".tmp")))
      return Status(Code::state, cat(directory, ": has '", name,
                                     "', which weft does not write there, and would be removed; "
                                     "move it, or use another directory"));
  return {};
}

Status remove_file(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return path_failure(path, "remove", errno);
}

Status remove_path(const std::string& path) {
  constexpr int kDescriptors = 16;
  const auto remove = [](const char* at, const struct stat*, int, FTW*) { return ::remove(at); };
  if (::nftw(path.c_str(), remove, kDescriptors, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT)
    return {};
  return path_failure(path, "remove", errno);
}

}  // namespace weft
