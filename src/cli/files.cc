#include "cli/files.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/complete_file.h"
#include "cli/handles.h"
#include "cli/signals.h"

namespace weft::cli {

namespace {

// As the library: a path that leads nowhere is a wrong input.
Outcome cannot_write(const std::string& path, int error) {
  const int wrong[] = {ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG};
  const bool is_wrong = std::find(std::begin(wrong), std::end(wrong), error) != std::end(wrong);
  return {is_wrong ? kBadInput : kFailed,
          path + ": cannot write" + (error ? ": " + reason(error) : ""), ""};
}

Outcome check_file(const std::string& path) {
  CLI_TRY(check_outside_checkpoints(path));
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return {kBadInput, path + ": expected a file, found a directory", ""};
  return {};
}

Outcome stopped(const std::string& path) {
  return {128 + stop_signal(), "stopped while it waited for '" + path + "'", ""};
}

// If the path is a pipe, `pipe` is a writer of it. While there is one and a reader, open() does not
// wait.
Outcome wait_for_reader(const std::string& path, int& pipe) {
  std::error_code ignored;
  while (std::filesystem::is_fifo(path, ignored)) {
    pipe = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (pipe >= 0 || errno != ENXIO) break;
    if (stop_signal()) return stopped(path);
    usleep(50000);
  }
  return {};
}

Outcome open_file(const std::string& path, std::ios::openmode mode, std::ofstream& out) {
  int pipe = -1;
  CLI_TRY(wait_for_reader(path, pipe));
  errno = 0;
  out.open(path, mode | std::ios::out | std::ios::binary);
  const int error = errno;
  if (pipe >= 0) close(pipe);
  return out ? Outcome() : cannot_write(path, error);
}

// The path behind all links, of which the last one may lead to nothing, as the library follows
// them.
std::filesystem::path target_of(const std::filesystem::path& path, std::error_code& error) {
  constexpr int kMost = 40;
  std::filesystem::path at = path;
  for (int followed = 0; followed < kMost && std::filesystem::is_symlink(at, error); ++followed)
    at = at.parent_path() / std::filesystem::read_symlink(at, error);
  return std::filesystem::weakly_canonical(std::filesystem::absolute(at, error), error);
}

// The errno of a failure, or 0.
int write_in_place(const std::filesystem::path& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::out | std::ios::binary);
  file << text;
  file.close();
  return file ? 0 : errno ? errno : EIO;
}

// A device or a pipe, or a file of /proc that has no name any more.
bool is_special(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) &&
         (!std::filesystem::is_regular_file(path, ignored) ||
          !std::filesystem::exists(target_of(path, ignored), ignored));
}

// The files need not exist.
Outcome check_apart(const NamedFile& output, const NamedFile& other) {
  std::error_code ignored;
  const bool is_same =
      !other.path.empty() && (target_of(output.path, ignored) == target_of(other.path, ignored) ||
                              std::filesystem::equivalent(output.path, other.path, ignored));
  if (!is_same) return {};
  return {kUsage,
          std::string(output.option) + ": '" + output.path + "' is the file of " + other.option,
          ""};
}

constexpr std::string_view kLogBegin = "{\"event\":";  // of each line

Outcome not_a_log(const std::string& path, const std::string& why) {
  return {kBadInput, path + ": is not a log: " + why + " '" + std::string(kLogBegin) + "'",
          "name another file"};
}

// A file that exists is replaced only if it is empty or a log.
Outcome check_is_log(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  std::string begin(kLogBegin.size(), '\0');
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return {kBadInput, path + ": cannot open: " + reason(errno), ""};
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  if (file.bad()) return {kFailed, path + ": cannot read", ""};
  if (kLogBegin.starts_with(begin.substr(0, static_cast<size_t>(file.gcount())))) return {};
  return not_a_log(path, "it does not begin with");
}

// A process that was killed, or a full disk, can leave a part of a line. What is not of a log
// stays.
Outcome drop_incomplete_line(const std::string& path) {
  constexpr std::streamoff kMost = 1 << 20;  // bytes of a line
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  errno = 0;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {kBadInput, path + ": cannot open: " + reason(errno), ""};
  const std::streamoff size = file.tellg();
  std::string tail(static_cast<size_t>(std::min(size, kMost)), '\0');
  file.seekg(size - static_cast<std::streamoff>(tail.size()));
  if (!file.read(tail.data(), static_cast<std::streamsize>(tail.size())))
    return {kFailed, path + ": cannot read", ""};
  const std::string line = tail.substr(tail.rfind('\n') + 1);  // all, if no line ends
  if (line.empty()) return {};
  if (!line.starts_with(kLogBegin.substr(0, line.size())))
    return not_a_log(path, "its last line has no end, and does not begin with");
  std::filesystem::resize_file(path, static_cast<uintmax_t>(size) - line.size(), error);
  return error ? cannot_write(path, error.value()) : Outcome();
}

// The absolute path as far as it exists: of a directory that can be made, where that is.
std::filesystem::path existing_part(const std::string& path, std::error_code& error) {
  std::filesystem::path out = std::filesystem::absolute(path, error).lexically_normal();
  std::error_code ignored;
  while (!std::filesystem::exists(out, ignored) && out.has_relative_path()) out = out.parent_path();
  return out;
}

// `output`, a directory or a file in it, is for the error.
Outcome check_directory(const std::string& directory, const std::string& output) {
  std::error_code error, ignored;
  const std::filesystem::path there = existing_part(directory, error);
  if (error) return {kBadInput, output + ": no absolute path: " + reason(error.value()), ""};
  const bool is_directory = std::filesystem::is_directory(there, ignored);
  if (is_directory && access(there.c_str(), W_OK | X_OK) == 0) return {};
  const int why = is_directory ? errno : ENOTDIR;
  return {kBadInput, output + ": cannot write into '" + there.string() + "': " + reason(why), ""};
}

}  // namespace

Outcome read_all(int file, const std::string& name, size_t limit, std::string& out) {
  constexpr size_t kBlock = size_t{1} << 20;
  out.clear();
  for (ssize_t n = -1; n != 0;) {
    if (!wait_for_bytes(file)) return stopped(name);
    const size_t size = out.size();
    out.resize(size + std::min(kBlock, limit + 1 - size));
    n = read(file, out.data() + size, out.size() - size);
    if (n < 0 && errno != EINTR && errno != EAGAIN)
      return {kFailed, name + ": cannot read: " + reason(errno), ""};
    out.resize(size + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (out.size() > limit)
      return {kBadInput, name + ": expected at most " + std::to_string(limit) + " bytes", ""};
  }
  return {};
}

Outcome read_text(const std::string& path, size_t limit, std::string& out) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return {kBadInput, path + ": expected a file, found a directory", ""};
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return {kBadInput, path + ": cannot open: " + reason(errno), ""};
  const Outcome outcome = read_all(file, path, limit, out);
  close(file);
  return outcome;
}

bool wait_for_bytes(int descriptor, std::chrono::steady_clock::time_point deadline) {
  constexpr int kTurn = 200;  // ms; a signal may arrive just before poll()
  pollfd file = {descriptor, POLLIN, 0};
  while (!stop_signal() && std::chrono::steady_clock::now() < deadline) {
    const int ready = poll(&file, 1, kTurn);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
  }
  return false;
}

Outcome check_outside_checkpoints(const std::string& path) {
  std::error_code error;
  const std::filesystem::path place = target_of(path, error);
  const std::filesystem::path directory = place.parent_path();
  if (place.filename() != "latest" && !std::filesystem::exists(directory / "manifest.json", error))
    return {};
  weft_error ignored = sized<weft_error>();
  CheckpointPtr checkpoint;
  if (weft_checkpoint_open(directory.c_str(), Out(checkpoint), &ignored) < 0) return {};
  return {
      kBadInput,
      path + ": is part of the checkpoints in '" + directory.string() + "', expected another file",
      ""};
}

Outcome check_writable(const std::string& directory) {
  return directory.empty() ? Outcome() : check_directory(directory, directory);
}

Outcome check_place(const std::string& file) {
  if (file.empty()) return {};
  const std::string parent = std::filesystem::path(file).parent_path().string();
  const std::string directory = parent.empty() ? "." : parent;
  std::error_code ignored;
  if (std::filesystem::exists(directory, ignored)) return check_directory(directory, file);
  return {kBadInput, file + ": cannot write into '" + directory + "': " + reason(ENOENT), ""};
}

Outcome check_outputs(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs) {
  std::error_code ignored;
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    if (output->path.empty() || is_special(output->path)) continue;
    for (const NamedFile& input : inputs)  // one that does not exist may be the name of a model
      if (std::filesystem::exists(input.path, ignored)) CLI_TRY(check_apart(*output, input));
    for (auto other = outputs.begin(); other != output; ++other)
      CLI_TRY(check_apart(*output, *other));
    CLI_TRY(check_place(output->path));
  }
  return {};
}

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(descriptor, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

Outcome write_file(const std::string& path, const std::string& text) {
  CLI_TRY(check_file(path));
  std::error_code failure;
  const std::filesystem::path place = target_of(path, failure);
  const int error = is_special(path) ? write_in_place(path, text)
                    : failure        ? failure.value()
                              : write_complete(place, text, Existing::replace, Readers::same);
  return error ? cannot_write(path, error) : Outcome();
}

Outcome JsonLog::open(const std::string& path, bool append) {
  path_ = path;
  CLI_TRY(check_file(path));
  CLI_TRY(append ? drop_incomplete_line(path) : check_is_log(path));
  return open_file(path, append ? std::ios::app : std::ios::trunc, file_);
}

void JsonLog::add(const JsonObject& object) {
  if (!file_.is_open() || !file_) return;
  errno = 0;
  if (!(file_ << object.text() << '\n').flush()) error_ = errno;
}

Outcome JsonLog::failure() const { return file_ ? Outcome() : cannot_write(path_, error_); }

}  // namespace weft::cli
