#include "cli/output_file.h"

#include <cerrno>
#include <filesystem>

#include "cli/handles.h"

namespace weft::cli {

namespace {

Outcome cannot_write(const std::string& path, int error) {
  return {kBadInput, path + ": cannot write" + (error ? ": " + reason(error) : ""), ""};
}

Outcome open_file(const std::string& path, std::ios::openmode mode, std::ofstream& out) {
  CLI_TRY(check_outside_checkpoints(path));
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return {kBadInput, path + ": expected a file, found a directory", ""};
  errno = 0;
  out.open(path, mode | std::ios::out | std::ios::binary);
  return out ? Outcome() : cannot_write(path, errno);
}

}  // namespace

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

Outcome write_file(const std::string& path, const std::string& text) {
  std::ofstream file;
  CLI_TRY(open_file(path, std::ios::trunc, file));
  errno = 0;
  file << text;
  file.close();
  return file ? Outcome() : cannot_write(path, errno);
}

Outcome JsonLog::open(const std::string& path, bool append) {
  path_ = path;
  return open_file(path, append ? std::ios::app : std::ios::trunc, file_);
}

void JsonLog::add(const JsonObject& object) {
  if (file_.is_open()) (file_ << object.text() << '\n').flush();
}

Outcome JsonLog::failure() const {
  return file_ ? Outcome() : Outcome{kFailed, path_ + ": the log cannot be written", ""};
}

}  // namespace weft::cli
