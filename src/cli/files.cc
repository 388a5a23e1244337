#include "cli/files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "cli/handles.h"

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

Outcome open_file(const std::string& path, std::ios::openmode mode, std::ofstream& out) {
  errno = 0;
  out.open(path, mode | std::ios::out | std::ios::binary);
  return out ? Outcome() : cannot_write(path, errno);
}

// The errno of a failure, or 0.
int write_in_place(const std::filesystem::path& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::out | std::ios::binary);
  file << text;
  file.close();
  return file ? 0 : errno ? errno : EIO;
}

// A device or a pipe.
bool is_special(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
}

// The files need not exist.
Outcome check_apart(const NamedFile& output, const NamedFile& other) {
  std::error_code ignored;
  const auto place = [&ignored](const NamedFile& file) {
    return std::filesystem::weakly_canonical(file.path, ignored);
  };
  const bool is_same =
      !other.path.empty() && (place(output) == place(other) ||
                              std::filesystem::equivalent(output.path, other.path, ignored));
  if (!is_same) return {};
  return {kUsage,
          std::string(output.option) + ": '" + output.path + "' is the file of " + other.option,
          ""};
}

// A process that was killed, or a full disk, can leave a part of a line.
void drop_incomplete_line(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const size_t end = text.rfind('\n') + 1;  // 0 if there is no line
  if (end < text.size()) std::filesystem::resize_file(path, end, ignored);
}

}  // namespace

Outcome read_text(const std::string& path, std::string& out) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return {kBadInput, path + ": expected a file, found a directory", ""};
  std::ifstream file(path, std::ios::binary);
  if (!file) return {kBadInput, path + ": cannot open: " + reason(errno), ""};
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return {kFailed, path + ": cannot read", ""};
  out = text.str();
  return {};
}

Outcome check_outside_checkpoints(const std::string& path) {
  std::error_code error;
  const std::filesystem::path place = std::filesystem::weakly_canonical(path, error);
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
  if (directory.empty()) return {};
  std::error_code error, ignored;
  std::filesystem::path there = std::filesystem::absolute(directory, error).lexically_normal();
  if (error) return {kBadInput, directory + ": no absolute path: " + reason(error.value()), ""};
  while (!std::filesystem::exists(there, ignored) && there.has_relative_path())
    there = there.parent_path();
  const bool is_directory = std::filesystem::is_directory(there, ignored);
  if (is_directory && access(there.c_str(), W_OK | X_OK) == 0) return {};
  const int why = is_directory ? errno : ENOTDIR;
  return {kBadInput, directory + ": cannot write into '" + there.string() + "': " + reason(why),
          ""};
}

Outcome check_place(const std::string& file) {
  if (file.empty()) return {};
  const std::string parent = std::filesystem::path(file).parent_path().string();
  const std::string directory = parent.empty() ? "." : parent;
  std::error_code ignored;
  if (std::filesystem::exists(directory, ignored)) return check_writable(directory);
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
  std::error_code error;
  const std::filesystem::path place = std::filesystem::weakly_canonical(path, error);
  const bool special = is_special(place);
  const std::filesystem::path part =
      special ? place : place.parent_path() / ("." + place.filename().string() + ".tmp");
  if (const int failure = write_in_place(part, text)) {
    if (!special) std::filesystem::remove(part, error);
    return cannot_write(path, failure);
  }
  if (special) return {};
  std::filesystem::rename(part, place, error);
  return error ? cannot_write(path, error.value()) : Outcome();
}

Outcome JsonLog::open(const std::string& path, bool append) {
  path_ = path;
  CLI_TRY(check_file(path));
  if (append) drop_incomplete_line(path);
  return open_file(path, append ? std::ios::app : std::ios::trunc, file_);
}

void JsonLog::add(const JsonObject& object) {
  if (file_.is_open()) (file_ << object.text() << '\n').flush();
}

Outcome JsonLog::failure() const {
  return file_ ? Outcome() : Outcome{kFailed, path_ + ": the log cannot be written", ""};
}

}  // namespace weft::cli
