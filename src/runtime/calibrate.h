// A profile as the ranks of a run have it. There, kernels take longer than on a machine of their
// own: ranks share memory and caches, and the threads that handle messages take time from them.
#pragma once

#include "io/profile.h"
#include "runtime/run.h"

namespace weft {

// From the spans of training steps that the run has recorded since trace(), without those of the
// first two: scales the times of the nodes of each stage in proportion to the recorded medians of
// its actions, and then all of them so that the predicted step takes the recorded median; sets the
// time between actions and the speed of updates. `profile` is of the model of the run. Only between
// steps.
Result<Profile> calibrate(Run& run, const Profile& profile);

}  // namespace weft
