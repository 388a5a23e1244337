// What a plan can be expected to do, before it runs: the simulator with a cost for every call.
#pragma once

#include <memory>
#include <vector>

#include "plan/plan.h"

namespace weft {

// Per rank, the share of a training step (of an evaluation, for a model without a loss) in which it computes nothing: between the first
// job of any rank and the last action of any rank. Each call takes its multiply-adds plus the bytes it touches, at one speed; messages
// take no time.
Result<std::vector<double>> predict_idle(std::shared_ptr<const Plan> plan);

}  // namespace weft
