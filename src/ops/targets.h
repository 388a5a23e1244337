// The targets of cross entropy: class numbers, of which -1 is not counted.
#pragma once

#include "base/text.h"
#include "ops/op.h"

namespace weft {

// Numbers that cross_entropy_part passes on for each target.
constexpr int64_t kCrossEntropyFields = 3;

inline Status check_targets(const View& targets, int port, int64_t classes) {
  for (int64_t i = 0; i < targets.desc.elements(); ++i)
    if (const int32_t target = targets.i32()[i]; target < -1 || target >= classes)
      return Status(Code::data,
                    cat("input ", port, ": target ", i, " is ", target, ", expected 0 to ",
                        classes - 1, ", or -1 for a target that does not count"));
  return {};
}

// An invalid target is counted, so that forward refuses it with an error that names it.
inline double count_targets(const View& targets) {
  int64_t counted = 0;
  for (int64_t i = 0; i < targets.desc.elements(); ++i) counted += targets.i32()[i] != -1;
  return static_cast<double>(counted);
}

}  // namespace weft
