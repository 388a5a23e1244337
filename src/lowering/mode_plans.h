// From schedules to programs, for each mode, with the setting `recompute`.
#pragma once

#include "lowering/layout.h"

namespace weft {

struct PlanLayout {
  Shapes shapes;
  std::array<ModeLayout, kModes> modes;
};

// Fills the edges and the memory of the ranks of all modes that have a graph and a schedule, and
// arena_bytes. `train` is the training schedule of the pipeline without actions for recompute;
// `again`: per segment, as calls_per_block. Errors name the mode or the rank.
Result<PlanLayout> lay_out_modes(Plan& plan, const Schedule& train,
                                 const std::vector<int32_t>& again);
void write_modes(Plan& plan, const PlanLayout& layout);

}  // namespace weft
