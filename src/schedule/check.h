// Proof that a schedule can run, before it runs: every action there once, in an order that its data
// allows, gradients accumulated ascending, and no deadlock with the places and grants that the plan
// gives it.
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
  // Until when the landing of the forward tensor is used at `to`, and that of the gradient at
  // `from`: F < R < I < W.
  Kind forward_until = Kind::W, gradient_until = Kind::W;
  friend bool operator==(const StageEdge&, const StageEdge&) = default;
};

// Places per edge that let every message land: for each edge, how many micro-batches' landings are
// held at once at the receiver (in its program order), plus `slack` (so that the next one may
// arrive while the receiver computes), at most micro_batches.
struct EdgePlaces {
  int32_t forward = 1, gradient = 1;  // landing places at the receiver
};

struct StagePeaks {
  int32_t f_to_r = 0, f_to_i = 0, f_to_w = 0,
          i_to_w = 0;  // most micro-batches between the ends of those actions at once
};

struct Checked {
  std::vector<EdgePlaces> places;  // per edge
  std::vector<StagePeaks> peaks;   // per stage
};

// Errors name rank, position and reason ("rank 1, action 4 (1B0): stage 1 has not run 1F0").
//  - each stage on one rank, each stage's F exactly once per micro-batch, and (unless forward only)
//  either B or I and W
//  - asynchronous: each stage's O exactly once per update, ascending, after the W of its update and
//  before those of the next
//  - R of a stage for every micro-batch or for none
//  - per stage F, R, I and W ascend by micro-batch; R and I after F, I after R, W after I
//  - program order, data edges and grant edges together have no cycle, with the landing places
//  computed here
Result<Checked> check_schedule(const Schedule& schedule, const std::vector<StageEdge>& edges,
                               int32_t slack = 1);

}  // namespace weft
