// From schedules to programs, mode by mode, with what `recompute` asks for.
#pragma once

#include "lowering/layout.h"

namespace weft {

struct PlanLayout {
  Shapes shapes;
  std::array<ModeLayout, kModes> modes;
};

// Fills the edges of the modes that are present, whose graphs and schedules are there, what their
// ranks hold, and arena_bytes. `train` is the schedule of training without what recompute adds.
// Errors name the mode or the rank.
Result<PlanLayout> lay_out_modes(Plan& plan, const Schedule& train);
void write_modes(Plan& plan, const PlanLayout& layout);

}  // namespace weft
