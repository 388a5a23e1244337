// Converts the step graph, schedule and layout of a mode to the programs of its ranks.
#pragma once

#include "lowering/layout.h"

namespace weft {

// Fills programs and jobs of mode.ranks.
void write_programs(const Plan& plan, const Shapes& shapes, const ModeLayout& layout,
                    ModePlan& mode);

}  // namespace weft
