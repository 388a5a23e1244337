// From schedules to programs, mode by mode, with what `recompute` asks for.
#pragma once

#include "plan/plan.h"

namespace weft {

// Fills the edges and ranks of the modes that are present, whose graphs and schedules are there, and arena_bytes. `train` is the schedule
// of training without what recompute adds. Errors name the mode or the rank.
Status lower_modes(Plan& plan, const Schedule& train);

}  // namespace weft
