// The targets of cross entropy: class numbers, of which -1 is not counted.
#pragma once

#include "ops/indices.h"

namespace weft {

// Numbers that cross_entropy_part passes on for each target.
constexpr int64_t kCrossEntropyFields = 3;

inline Status check_targets(const View& targets, int port, int64_t classes) {
  return check_range(targets, port, -1, classes - 1, ", or -1 for a target that does not count");
}

// An invalid target is counted, so that the check of the targets refuses it by name.
inline double count_targets(const View& targets) {
  int64_t counted = 0;
  for (int64_t i = 0; i < targets.desc.elements(); ++i) counted += targets.i32()[i] != -1;
  return static_cast<double>(counted);
}

}  // namespace weft
