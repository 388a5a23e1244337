#include "cli/secrets.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>

#include "cli/complete_file.h"
#include "cli/console.h"
#include "cli/files.h"
#include "cli/signals.h"

namespace weft::cli {

namespace {

constexpr size_t kMostBytes = size_t{1} << 20;

// A path that leads nowhere, or that this user may not use, is a wrong input.
Outcome failure(const std::string& path, const char* what, int error) {
  const int wrong[] = {EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EPERM, EROFS};
  const bool is_wrong = std::find(std::begin(wrong), std::end(wrong), error) != std::end(wrong);
  return {is_wrong ? kBadInput : kFailed,
          "'" + path + "': cannot be " + what + ": " + reason(error), ""};
}

// Up to the end of the file, into memory that does not grow, because it would be copied.
Outcome read_all(int file, const std::string& path, std::string& text) {
  text.assign(kMostBytes + 1, '\0');
  size_t size = 0;
  ssize_t bytes = 1;
  while (bytes != 0 && size < text.size()) {
    if (!wait_for_bytes(file))
      return {128 + stop_signal(), "stopped before '" + path + "' was there", ""};
    bytes = read(file, text.data() + size, text.size() - size);
    if (bytes < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (bytes < 0) return failure(path, "read", errno);
    size += static_cast<size_t>(bytes);
  }
  if (size > kMostBytes) return {kBadInput, "'" + path + "': expected at most 1 MiB", ""};
  text.resize(size);
  return {};
}

// Whether users other than the owner can read it; only for a file with a name, not for a pipe.
bool is_open_to_others(int file) {
  struct stat found {};
  return fstat(file, &found) != 0 || (S_ISREG(found.st_mode) && (found.st_mode & 077) != 0);
}

// Whether an earlier run left the file: it then begins with an address for joining. Other files are
// not replaced.
bool is_join_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  struct stat found {};
  char begin[6];
  const bool is =
      fstat(file, &found) == 0 && S_ISREG(found.st_mode) &&
      read(file, begin, sizeof begin) == sizeof begin &&
      (memcmp(begin, "tcp://", sizeof begin) == 0 || memcmp(begin, "ipc://", sizeof begin) == 0);
  close(file);
  return is;
}

// Whether a file is complete: its last line has ended. Only for regular files.
bool is_complete(int file) {
  struct stat found {};
  if (fstat(file, &found) != 0 || !S_ISREG(found.st_mode)) return true;
  char last = 0;
  return pread(file, &last, 1, found.st_size - 1) == 1 && last == '\n';
}

// The only line of an open file that other users cannot read.
Outcome read_only_line(int file, const std::string& path, std::string& line) {
  if (is_open_to_others(file))
    return {kBadInput, "'" + path + "' can be read by other users: expected mode 600",
            "change it: chmod 600 " + shell_word(path)};
  CLI_TRY(read_all(file, path, line));
  if (!line.empty() && line.back() == '\n') line.pop_back();
  if (line.empty() || line.find('\n') != std::string::npos)
    return {kBadInput, "'" + path + "': expected one line", ""};
  return {};
}

FileId id_of(const struct stat& file) {
  if (!S_ISREG(file.st_mode)) return {};
  return {file.st_dev, file.st_ino,
          int64_t{file.st_mtim.tv_sec} * 1'000'000'000 + file.st_mtim.tv_nsec};
}

Outcome read_line(int file, const std::string& path, std::string& line) {
  const Outcome outcome = read_only_line(file, path, line);
  if (!outcome.ok()) wipe(line);
  return outcome;
}

}  // namespace

Outcome read_secret(const std::string& path, std::string& line) {
  const bool standard = path == "-";
  const int file = standard ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return failure(path, "read", errno);
  const Outcome outcome = read_line(file, path, line);
  if (!standard) close(file);
  return outcome;
}

FileId file_id(const std::string& path) {
  struct stat found {};
  return lstat(path.c_str(), &found) == 0 ? id_of(found) : FileId();
}

Outcome await_secret(const std::string& path, std::chrono::milliseconds limit, std::string& line,
                     FileId& id) {
  if (path == "-") return read_secret(path, line);
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const int error = errno;
    if (file < 0 && error != ENOENT && error != ESTALE) return failure(path, "read", error);
    if (file >= 0 && is_complete(file) && wait_for_bytes(file, deadline)) {
      struct stat found {};
      if (fstat(file, &found) == 0) id = id_of(found);
      const Outcome outcome = read_line(file, path, line);
      close(file);
      return outcome;
    }
    if (file >= 0) close(file);
    if (stop_signal()) return {128 + stop_signal(), "stopped before '" + path + "' was there", ""};
    if (std::chrono::steady_clock::now() >= deadline)
      return {kLost, "'" + path + "': rank 0 has not written it in time", ""};
    usleep(50000);
  }
}

Outcome check_read_again(const std::string& option, const std::string& path) {
  struct stat found {};
  if (path.empty() || stat(path.c_str(), &found) != 0 || S_ISREG(found.st_mode)) return {};
  return {kUsage, option + " is '" + path + "', expected a regular file, because it is read again",
          ""};
}

Outcome read_key(const std::string& path, bool from_variable, std::string& key) {
  if (!path.empty()) return read_secret(path, key);
  const char* const text = from_variable ? std::getenv("WEFT_KEY") : nullptr;
  key = text ? text : "";
  if (key.ends_with('\n')) key.pop_back();  // from the file that contained it
  return {};
}

Outcome write_secret(const std::string& path, const std::string& line, bool replace) {
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0 && !(replace && is_join_file(path)))
    return {kBadInput,
            "'" + path + "' exists" +
                (replace ? ", and was not written by an earlier --join-file" : ""),
            ""};
  std::string text = line + "\n";
  const int error =
      write_complete(path, text, replace ? Existing::replace : Existing::keep, Readers::owner);
  wipe(text);
  return error ? failure(path, "written", error) : Outcome();
}

void wipe(std::string& text) {
  text.resize(text.capacity());
  explicit_bzero(text.data(), text.size());
  text.clear();
}

FileToRemove::FileToRemove(std::string path) : path_(std::move(path)), id_(file_id(path_)) {}

FileToRemove::~FileToRemove() {
  if (id_ != FileId() && file_id(path_) == id_) unlink(path_.c_str());
}

}  // namespace weft::cli
