#include "cli/checkpoint_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "cli/console.h"

namespace weft::cli {

namespace {

namespace fs = std::filesystem;

// The library refuses saves of other processes while it is locked.
constexpr const char* kLockFile = ".weft.lock";

// The step of "step-00000010", or of ".step-00000010.old", which is a checkpoint while another one
// takes its place. No other name is of a checkpoint, as in the library.
std::optional<uint64_t> step_of(std::string_view name) {
  constexpr std::string_view kAside = ".old", kPrefix = "step-";
  if (name.starts_with('.') && name.ends_with(kAside)) {
    name.remove_prefix(1);
    name.remove_suffix(kAside.size());
  }
  if (!name.starts_with(kPrefix)) return {};
  uint64_t step = 0;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  char written[32];
  std::snprintf(written, sizeof written, "step-%08" PRIu64, step);
  return name == written ? std::optional(step) : std::nullopt;
}

// Also a damaged one.
std::optional<uint64_t> newest_step(const std::string& directory, std::error_code& error) {
  std::optional<uint64_t> newest;
  fs::directory_iterator entry(directory, error);
  while (!error && entry != fs::directory_iterator()) {
    if (const auto step = step_of(entry->path().filename().string()))
      newest = std::max(newest.value_or(0), *step);
    entry.increment(error);
  }
  return newest;
}

Outcome cannot_lock(const std::string& path, int error) {
  return {kBadInput, path + ": cannot lock: " + reason(error), ""};
}

// " (process 4711)", or nothing if the process has not written its number yet.
std::string owner_text(int lock) {
  char text[32] = {};
  const ssize_t n = pread(lock, text, sizeof text - 1, 0);
  int process = 0;
  if (n <= 0 || std::sscanf(text, "%d", &process) != 1) return "";
  return " (process " + std::to_string(process) + ")";
}

bool has_no_locks(int error) {
  return error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL;
}

// 0, also if the file system has no locks, or the errno of a failure. Only a lock of this kind can
// be asked for without taking it, as the library does.
int try_lock(int file) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return fcntl(file, F_OFD_SETLK, &whole) == 0 || has_no_locks(errno) ? 0 : errno;
}

}  // namespace

// The file is removed under its lock, so it cannot be that of a later run.
CheckpointDirectory::~CheckpointDirectory() {
  if (lock_ < 0) return;
  unlink(lock_path_.c_str());
  if (made_) rmdir(path_.c_str());  // if it is empty
  close(lock_);
}

Outcome CheckpointDirectory::take(const weft_checkpoint_info* resumed) {
  if (path_.empty()) return {};
  CLI_TRY(check_kind());
  CLI_TRY(lock());
  return check_content(resumed);
}

// By its path or, if that has links, by where it really is.
bool CheckpointDirectory::contains(const weft_checkpoint_info& checkpoint) const {
  const fs::path path = fs::path(checkpoint.path) / "";
  std::error_code ignored;  // the directory may not exist yet
  return fs::equivalent(path.parent_path().parent_path() / ".", path_, ignored) ||
         fs::equivalent(path / "..", path_, ignored);
}

Outcome CheckpointDirectory::check_kind() const {
  std::error_code ignored;
  if (fs::exists(fs::path(path_) / "manifest.json", ignored))
    return {kBadInput, "--checkpoint: '" + path_ + "' is a checkpoint",
            "name the directory of checkpoints"};
  if (!newest_step(path_, ignored) && fs::exists(fs::path(path_) / "config.json", ignored))
    return {kBadInput, "--checkpoint: '" + path_ + "' is a directory of Transformers",
            "name another directory for checkpoints"};
  const fs::file_status latest = fs::symlink_status(fs::path(path_) / "latest", ignored);
  if (fs::exists(latest) && !fs::is_regular_file(latest))
    return {kBadInput, "--checkpoint: '" + path_ + "/latest' is not a regular file",
            "remove it, or name another directory"};
  return {};
}

Outcome CheckpointDirectory::lock() {
  std::error_code error;
  const bool existed = fs::exists(path_, error);
  fs::create_directories(path_, error);
  if (std::error_code ignored; !fs::is_directory(path_, ignored))
    return {kBadInput, path_ + ": cannot make the directory: " + reason(error.value()), ""};
  const std::string file = (fs::path(path_) / kLockFile).string();
  for (;;) {
    const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return cannot_lock(file, errno);
    if (const int why = try_lock(fd)) {
      const std::string owner = owner_text(fd);
      close(fd);
      if (why != EAGAIN && why != EACCES) return cannot_lock(file, why);
      return {kBadInput, "--checkpoint: another writer uses '" + path_ + "'" + owner,
              "wait until it ends, or use another directory"};
    }
    struct stat info = {};
    if (fstat(fd, &info) == 0 && info.st_nlink > 0) {
      lock_ = fd;
      break;
    }
    close(fd);  // its owner has removed the file since it was opened
  }
  lock_path_ = file;
  made_ = !existed;
  if (ftruncate(lock_, 0) != 0 || dprintf(lock_, "%d\n", static_cast<int>(getpid())) < 0)
    return cannot_lock(file, errno);
  return {};
}

// Under the lock: what another run has saved since this one was started is found, too.
Outcome CheckpointDirectory::check_content(const weft_checkpoint_info* resumed) const {
  std::error_code error;
  const auto newest = newest_step(path_, error);
  if (error)
    return {kBadInput, path_ + ": cannot read the directory: " + reason(error.value()), ""};
  if (!newest) return {};
  const std::string found =
      "'" + path_ + "' contains a checkpoint of step " + std::to_string(*newest);
  const std::string hint = "continue from it with --resume " + shell_word(path_) +
                           ", or use another directory, or remove this one";
  if (!resumed || !contains(*resumed))
    return {kBadInput, found + ", which this run does not continue", hint};
  if (*newest <= resumed->step) return {};
  // A later one that is damaged is no obstacle.
  weft_error err = sized<weft_error>();
  CheckpointPtr there;
  weft_checkpoint_info info = sized<weft_checkpoint_info>();
  CLI_CALL(weft_checkpoint_open(path_.c_str(), Out(there), &err));
  CLI_CALL(weft_checkpoint_describe(there.get(), &info));
  std::error_code ignored;
  if (fs::equivalent(info.path, resumed->path, ignored)) return {};
  return {kBadInput, found + ", and this run starts at step " + std::to_string(resumed->step),
          hint};
}

}  // namespace weft::cli
