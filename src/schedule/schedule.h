// A schedule: for each rank the actions it runs, in order. It is data that a pure function makes,
// and can be printed, compared and checked.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft {

enum class Kind : uint8_t {
  F,  // forward
  R,  // part of the forward again, if a stage did not keep the activations that its backward reads
  I,  // input gradients
  W,  // weight gradients
  B,  // I and W, fused
  O,  // optimizer: an update of the stage's weights, in a schedule without a flush
};
constexpr size_t kKindCount = 6;
char kind_letter(Kind kind);

struct Action {
  int32_t stage = 0;
  Kind kind = Kind::F;
  int32_t micro_batch = 0;  // O: the update
  friend bool operator==(const Action&, const Action&) = default;
  std::string text() const;  // "2F0"
};

struct Schedule {
  int32_t stages = 0;
  int32_t micro_batches = 0;
  int32_t updates =
      0;  // asynchronous: updates of a segment, with equal numbers of micro-batches; 0: synchronous
  bool forward_only = false;
  std::vector<int32_t> rank_of_stage;     // [stages]; the first of its ranks
  std::vector<std::vector<Action>> rows;  // [ranks]
  // [stages]: the number of ranks that run the micro-batches of the stage in turn and have no other
  // stage; empty: one each. An update of a stage with r ranks has r times as many micro-batches.
  std::vector<int32_t> replicas = {};
  friend bool operator==(const Schedule&, const Schedule&) = default;

  int32_t ranks() const { return static_cast<int32_t>(rows.size()); }
  int32_t replicas_of(int32_t stage) const {
    return replicas.empty() ? 1 : replicas[static_cast<size_t>(stage)];
  }
  int32_t rank_of(int32_t stage, int32_t micro_batch) const {
    const int32_t first = rank_of_stage[static_cast<size_t>(stage)];
    return replicas.empty() ? first : first + micro_batch % replicas_of(stage);
  }
  // A cell is a stage on one of its ranks.
  int32_t cells() const { return replicas.empty() ? stages : ranks(); }
  int32_t cell_of(int32_t stage, int32_t micro_batch) const {
    return replicas.empty() ? stage : rank_of(stage, micro_batch);
  }
  // Micro-batches of its cell before it.
  int32_t turn_of(int32_t stage, int32_t micro_batch) const {
    return replicas.empty() ? micro_batch : micro_batch / replicas_of(stage);
  }
  int32_t updates_of(int32_t stage) const { return updates / replicas_of(stage); }
  // The update of the stage that a micro-batch is part of.
  int32_t update_of(int32_t stage, int32_t micro_batch) const {
    return micro_batch / (per_update() * replicas_of(stage));
  }
  int32_t per_update() const { return micro_batches / updates; }  // on each rank of a stage
  int32_t last_of(int32_t stage, int32_t update, int32_t replica) const {
    return ((update + 1) * per_update() - 1) * replicas_of(stage) + replica;
  }
  // One row per rank: "0F0 0F1 0B0 0B1\n...". parse_schedule reads it back.
  std::string text() const;
};

constexpr int32_t kDefaultSegment = 16, kMaxSegment = 4096;

// The input besides sizes of a schedule that is made from costs. Per stage; an empty list is 1
// each.
struct ScheduleCosts {
  std::vector<double> forward = {}, input = {}, weight = {};  // time of F, I and W
  std::vector<double> again = {};                             // time of R; empty: that of F
  std::vector<double> held = {};    // memory of a micro-batch from F to I, in any unit (bytes)
  std::vector<double> parked = {};  // its memory from I to W; empty: `held`
  std::vector<double> kept = {};    // the part of `held` and `parked` that it keeps from F to W.
                                    // If given, each kind has its own slots, as in a plan: a
                                    // rank needs the sum of their peaks
  std::vector<double> fixed = {};   // other memory of the rank, for any order; empty: 0
  double latency = 0;               // of a message between ranks, in the unit of time
  double cap = 0;                   // memory limit of a rank, in the unit of `held`; 0: no limit
  // The exact number of bytes by which each rank exceeds its limit with an order, or 0. May be
  // empty. An order that exceeds a limit is not used.
  std::function<std::vector<double>(const Schedule&)> excess = {};
  bool short_spans =
      false;  // of equally long schedules take the one whose ranks begin last and end first, not
              // the one that holds least: where a step need not wait for the end of the one before
};

constexpr int32_t kDelayedGroup = 4;  // of 1f1b-delayed-w, if none is given

struct ScheduleSizes {
  int32_t ranks = 1, micro_batches = 1;
  int32_t chunks = 0;  // stages per rank; 0: the schedule's own number
  int32_t group = 0;  // interleaved: micro-batches that pass a chunk before the next chunk follows;
                      // 0: the number of ranks. 1f1b-delayed-w: those whose W run at once; 0:
                      // kDelayedGroup
  int32_t segment = 0;  // asynchronous: updates until the pipeline drains, each with
                        // `micro_batches`; 0: kDefaultSegment
  int32_t warm_up = 0;  // 1f1b: forwards before the first backward, per later rank; 0: 1. 2 hides
                        // latency ("eager")
  std::vector<int32_t> replicas = {};  // asynchronous: ranks of each stage; empty: one each
  ScheduleCosts costs = {};
};

// A row of the table of schedules (schedules.def).
struct ScheduleKind {
  std::string_view name;
  int32_t chunks;  // stages per rank: 1, 2 (V-shaped), or 0: any number, default 2
  Result<Schedule> (*make)(const ScheduleSizes& sizes);
  std::string_view about;     // one line, with the sizes that it allows
  bool asynchronous = false;  // weights change while other micro-batches are in the pipeline
  bool forward_only = false;  // cannot train
  bool from_costs = false;  // its order depends on costs and the memory limit; plans keep its rows
};
const ScheduleKind* find_schedule(std::string_view name);
bool is_from_costs(std::string_view name);
const std::vector<ScheduleKind>& all_schedules();

// Stages per rank of `kind` for `chunks` (0: the default). The error contains the allowed numbers.
Result<int32_t> chunks_of(const ScheduleKind& kind, int32_t chunks);

Result<Schedule> make_gpipe(
    const ScheduleSizes& sizes);  // GPipe (Huang et al. 2019), backward ascending
Result<Schedule> make_1f1b(
    const ScheduleSizes& sizes);  // PipeDream-flush / 1F1B (Narayanan et al. 2021)
Result<Schedule> make_1f1b_delayed_w(
    const ScheduleSizes& sizes);  // 1F1B, weight gradients of several micro-batches at once
Result<Schedule> make_interleaved(
    const ScheduleSizes& sizes);  // interleaved 1F1B, depth first (Megatron-LM)
Result<Schedule> make_looped_bfs(
    const ScheduleSizes& sizes);  // breadth first (Lamy-Poirier 2023), backward ascending
Result<Schedule> make_zb_h1(
    const ScheduleSizes& sizes);  // zero bubble (Qi et al. 2023), the memory of 1f1b
Result<Schedule> make_zb_h2(const ScheduleSizes& sizes);  // zero bubble, twice the memory
Result<Schedule> make_interleaved_zb(
    const ScheduleSizes& sizes);  // zb-h1 over several chunks per rank
Result<Schedule> make_zb_v(
    const ScheduleSizes& sizes);  // zero bubble folded into a V (Qi et al. 2024)
Result<Schedule> make_dualpipe_v(
    const ScheduleSizes& sizes);  // DualPipe folded into a V (DeepSeek 2025)
Result<Schedule> make_zb_auto(
    const ScheduleSizes& sizes);  // zero bubble from measured costs under a cap
// The last digits of sums of measured times depend on the order of summation. zb-auto does not
// count smaller shares of a time as a difference.
constexpr double kRounding = 1e-9;
// The time of a schedule of F, I and W with one stage per rank at these costs; zb-auto minimizes
// it.
Result<double> listed_time(const Schedule& schedule, const ScheduleCosts& costs);
Result<Schedule> make_v_half(
    const ScheduleSizes& sizes);  // V-Half (Qi et al. 2024), half the memory of 1f1b
Result<Schedule> make_v_min(const ScheduleSizes& sizes);      // V-Min, a third
Result<Schedule> make_pipedream(const ScheduleSizes& sizes);  // PipeDream (Narayanan et al. 2019)
Result<Schedule> make_pipedream_2bw(
    const ScheduleSizes& sizes);                            // PipeDream-2BW (Narayanan et al. 2021)
Result<Schedule> make_forward(const ScheduleSizes& sizes);  // inference and evaluation

// Only forward actions. Each stage is on its rank of `train`, so that evaluation uses the same
// ranks as training.
Result<Schedule> make_forward(const Schedule& train, int32_t micro_batches);

Result<Schedule> parse_schedule(std::string_view text);

}  // namespace weft
