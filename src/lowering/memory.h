// The planned bytes of a rank by what they are for.
#pragma once

#include "plan/plan.h"

namespace weft {

enum class MemoryKind : uint8_t {
  weights,      // all versions
  gradients,    // accumulators, and the sums for the norm
  optimizer,    // state
  activations,  // values of micro-batches that only this rank uses
  messages,     // slots of values that come from other ranks or go there, gathered weights
  scratch,      // of one kernel, or of one action
  state,        // of nodes, kept between steps: keys and values of attention
};
constexpr size_t kMemoryKinds = 7;

// By MemoryKind. The sum is plan.arena_bytes of the rank.
std::array<int64_t, kMemoryKinds> memory_by_kind(const Plan& plan, int32_t rank);

}  // namespace weft
