#include "io/checkpoint_lock.h"

#include <unistd.h>

#include <filesystem>

#include "base/text.h"

namespace weft {

namespace {

namespace fs = std::filesystem;

constexpr const char* kBusy = "another writer uses this directory";

// Whether this process has opened the file; true if the system does not tell. A process of another
// container can have the same number.
bool is_open_here(const std::string& path) {
  std::error_code error, ignored;
  for (fs::directory_iterator file("/proc/self/fd", error), end; file != end; file.increment(error))
    if (fs::equivalent(file->path(), path, ignored)) return true;
  return static_cast<bool>(error);
}

// The saves of the run itself are made by the process that holds the lock.
Status check_run_lock(const std::string& directory) {
  const std::string path = join_path(directory, kRunLockFile);
  {
    const auto file = File::open(path, Links::refuse);
    if (!file.ok() || !file.value().has_record_lock()) return {};
  }
  const auto owner = read_text(path, 32, Links::refuse);
  if (owner.ok() && owner.value() == cat(getpid(), "\n") && is_open_here(path)) return {};
  return Status(Code::state, cat(directory, ": ", kBusy));
}

}  // namespace

Result<File> lock_directory(const std::string& directory) {
  WEFT_TRY_ASSIGN(File lock, File::open_directory(directory));
  WEFT_TRY(lock.lock(kBusy));
  WEFT_TRY(check_run_lock(directory));
  return lock;
}

}  // namespace weft
