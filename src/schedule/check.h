// Proof that a schedule can run, before it runs: it contains every action once, in an order that
// the data allows, adds gradients in ascending order, and has no deadlock with the slots and
// grants of the plan.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "schedule/schedule.h"

namespace weft {

// Stage `from` makes a tensor that stage `to` uses (from < to). Forward carries it; when
// `gradient`, a gradient comes back.
struct StageEdge {
  int32_t from = 0, to = 0;
  bool gradient = true;
  // The last phase that uses the slot of the forward tensor at `to`, and of the gradient at `from`:
  // F < R < I < W.
  Kind forward_until = Kind::W, gradient_until = Kind::W;
  friend bool operator==(const StageEdge&, const StageEdge&) = default;
};

// Slots per edge at the receiver: the maximum number of micro-batches that hold one at the same
// time, in program order, plus `slack`, so that the next message can arrive while the receiver
// computes; at most micro_batches.
struct EdgeSlots {
  int32_t forward = 1, gradient = 1;  // slots at the receiver
};

struct StagePeaks {
  int32_t f_to_r = 0, f_to_i = 0, f_to_w = 0,
          i_to_w = 0;  // maximum number of micro-batches between the ends of those actions
};

struct Checked {
  std::vector<EdgeSlots> slots;   // per edge
  std::vector<StagePeaks> peaks;  // per stage
};

// Errors name rank, position and reason ("rank 1, action 4 (1B0): stage 1 has not run 1F0").
// clang-format off
//  - Each stage is on one rank. It has F exactly once per micro-batch, and either B, or I and W,
//    unless the schedule is forward only.
//  - Asynchronous: each stage has O exactly once per update, ascending, after the W of its update
//    and before those of the next.
//  - A stage has R for every micro-batch or for none.
//  - Per stage F, R, I and W ascend by micro-batch; R and I are after F, I after R, W after I.
//  - Program order, data edges and grant edges together have no cycle, with the slots computed here.
// clang-format on
Result<Checked> check_schedule(const Schedule& schedule, const std::vector<StageEdge>& edges,
                               int32_t slack = 1);

}  // namespace weft
