// The version of its weights that a stage uses, if updates do not wait for the pipeline to drain.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "schedule/schedule.h"

namespace weft {

// Version v of the weights of a stage is the result of its first v updates of a segment. A segment
// begins with version 0; its last version is version 0 of the next segment.
struct WeightVersions {
  int32_t count = 1;   // number of copies: version v is copy v % count
  int64_t stride = 0;  // bytes from a copy to the next
  int32_t round = 1;   // asynchronous: micro-batches of an update of the stage
  // The most updates whose forwards the stage has all run, from the one that comes next on. Later
  // stages can have sent their sums of all of these.
  int32_t in_flight = 1;
  std::vector<int32_t>
      of_update;  // per update: the version that its forwards and backwards use; empty: synchronous
  int64_t offset(int32_t version) const { return version % count * stride; }
  // Whether the tensor at this offset in ring 0 is a value of version 0. Values that no update
  // changes come after all copies.
  bool has(int64_t offset) const { return offset < stride; }
};

// Per stage; strides are left 0. The schedule is asynchronous and has passed check_schedule.
//
// Weight stashing: all micro-batches of an update use the newest version at the first of them. It
// is the number of O before that F in the row. Vertical sync: every stage uses the version of stage
// 0, which is an error if a stage does not have it.
Result<std::vector<WeightVersions>> weight_versions(const Schedule& schedule, bool vertical_sync);

}  // namespace weft
