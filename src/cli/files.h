// Files that the command itself reads and writes.
#pragma once

#include <chrono>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/json.h"
#include "cli/outcome.h"

namespace weft::cli {

// Bytes of a plan, a schedule, a log or a trace; as the library reads plans.
constexpr size_t kMostText = size_t{1} << 30;
// All of a file of at most `limit` bytes.
Outcome read_text(const std::string& path, size_t limit, std::string& out);
// The same of an open file. `name` is for errors.
Outcome read_all(int file, const std::string& name, size_t limit, std::string& out);

// Waits until there are bytes to read, or the end. False: the time is over, or a signal asks to
// stop, which would not end a read or open() that waits.
bool wait_for_bytes(int descriptor, std::chrono::steady_clock::time_point deadline =
                                        std::chrono::steady_clock::time_point::max());

// The library refuses to write into a checkpoint; for the files of the command, this does.
Outcome check_outside_checkpoints(const std::string& path);

// A file and the option that names it; an empty path is none.
struct NamedFile {
  const char* option;
  std::string path;
};
// Before the work: refuses an output that is the file of an input, or of another output, or that
// cannot be created. Devices and pipes may be.
Outcome check_outputs(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs);

// Checks before the work that files can be created in the directory, which may not exist yet.
Outcome check_writable(const std::string& directory);
// Checks before the work that the file can be created; its directory must exist.
Outcome check_place(const std::string& file);

bool write_all(int descriptor, std::string_view text);
// Replaces the file, in one step if it is not a device or a pipe, and keeps its owner and mode.
Outcome write_file(const std::string& path, const std::string& text);

// A JSON object per line, each of which is complete when the next one is computed.
class JsonLog {
 public:
  // Replaces only a log. To append: removes an incomplete last line, and refuses a file in which
  // that line is not of a log.
  Outcome open(const std::string& path, bool append);
  void add(const JsonObject& object);
  Outcome failure() const;  // of the lines so far

 private:
  std::string path_;
  std::ofstream file_;
  int error_ = 0;  // of the first line that was not written
};

}  // namespace weft::cli
