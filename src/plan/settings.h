// All settings of a plan by name, from the list in settings.def: for the hash, the plan file and
// the message to other ranks. The list does not contain the cuts and the rows of a schedule, which
// are hashed as lists, nor the input of the partition. The parameter groups are a list, too.
#pragma once

#include "plan/plan.h"

namespace weft {

// Calls visit(name, field) for each setting.
template <typename Config, typename Visit>
void each_plan_setting(Config& c, Visit&& visit) {
#define PLAN_SETTING(field, value) visit(#field, c.field);
#define PLAN_INTERNAL(field) visit(#field, c.field);
#include "plan/settings.def"
}

template <typename Optim, typename Visit>
void each_optim_setting(Optim& o, Visit&& visit) {
#define OPTIMIZER_SETTING(field, value) visit(#field, o.field);
#include "plan/settings.def"
}

template <typename Group, typename Visit>
void each_group_setting(Group& g, Visit&& visit) {
#define GROUP_SETTING(field, value) visit(#field, g.field);
#include "plan/settings.def"
}

}  // namespace weft
