// Which version of its weights a stage uses when updates do not wait for the pipeline to drain.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "schedule/schedule.h"

namespace weft {

// Version v of a stage's weights is what its first v updates of a segment made; a segment begins
// with version 0 and its newest becomes the next one's version 0.
struct WeightVersions {
  int32_t count = 1;   // copies that are there at once: version v is copy v % count
  int64_t stride = 0;  // bytes from a copy to the next
  int32_t round = 1;   // asynchronous: micro-batches of an update of the stage
  std::vector<int32_t>
      of_update;  // per update: the version that its forwards and backwards use; empty: synchronous
  int64_t offset(int32_t version) const { return version % count * stride; }
};

// Per stage; strides are left 0. The schedule is asynchronous and has passed check_schedule.
//
// Weight stashing: all micro-batches of an update use the version that is the newest when the first
// of them comes, so the row says it: the number of O before that F. Vertical sync: every stage uses
// the version that stage 0 does; refused where a stage has none.
Result<std::vector<WeightVersions>> weight_versions(const Schedule& schedule, bool vertical_sync);

}  // namespace weft
