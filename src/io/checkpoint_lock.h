// The lock of a directory of checkpoints, which has one writer at a time.
#pragma once

#include <string>

#include "base/result.h"
#include "io/file.h"

namespace weft {

// `weft train` holds a lock of this file in the directory during a run: F_OFD_SETLK of all bytes.
// The file contains the number of its process.
constexpr const char* kRunLockFile = ".weft.lock";

// Locks the directory until the result is destroyed. Fails if another writer has locked it, or if
// another process has locked it for a run.
Result<File> lock_directory(const std::string& directory);

}  // namespace weft
