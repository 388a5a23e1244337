// The optimizer's tensors of a run, which each owner of a parameter stores beside it.
#pragma once

#include "io/checkpoint.h"
#include "plan/plan.h"
#include "runtime/run.h"

namespace weft {

// By parameter that has a gradient. A model without a loss cannot be trained, and has none.
inline int state_slots(const Plan& plan) {
  return plan.mode(Mode::train).present ? slots(plan.config.optim) : 0;
}

constexpr Part state_part(int slot) { return slot == 0 ? Part::state0 : Part::state1; }

// Calls f(part, name of the tensor) for the tensors of one parameter, until a call fails.
template <typename F>
Status each_state(const Plan& plan, ParamId p, F&& f) {
  if (!plan.whole->param(p).has_gradient()) return {};
  for (int slot = 0; slot < state_slots(plan); ++slot)
    WEFT_TRY(f(state_part(slot), optimizer_tensor_name(plan.whole->param(p).name,
                                                       slot_name(plan.config.optim, slot))));
  return {};
}

}  // namespace weft
