// From a mode's step graph, partition and schedule to what each rank runs and where every byte of it lies.
#pragma once

#include "plan/places.h"
#include "plan/plan.h"

namespace weft {

constexpr int64_t kAlign = 64;
constexpr int64_t align_up(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// Ring 0 of a rank: its weights, accumulators, optimizer state. Fills plan.resident and plan.permanent_bytes.
void place_parameters(Plan& plan);

// Fills mode.ranks, and the place counts of mode.edges. `times` is the lock-step order of the mode's schedule.
void lower_mode(const Plan& plan, ModePlan& mode, const StageTimes& times);

}  // namespace weft
