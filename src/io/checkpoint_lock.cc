#include "io/checkpoint_lock.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/text.h"

namespace weft {

namespace {

constexpr const char* kBusy = "another writer uses this directory";

// Whether this process has opened the file; true if the system does not tell. A process of another
// container can have the same number.
bool is_open_here(const std::string& path) {
  const std::string open_files = "/proc/self/fd";
  const auto names = list_directory(open_files);
  if (!names.ok()) return true;
  return std::any_of(names.value().begin(), names.value().end(), [&](const std::string& name) {
    std::error_code ignored;
    return std::filesystem::equivalent(join_path(open_files, name), path, ignored);
  });
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
