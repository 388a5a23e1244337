// A plan: where and when every kernel call of the step graph runs, and where every byte lies.
// Immutable; a pure function of the model and the configuration, so every rank that makes it makes
// the same one; hashed by section, so that a rank that differs is refused with the name of the
// section.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/groups.h"
#include "graph/step.h"
#include "optim/optim.h"
#include "plan/times.h"
#include "schedule/check.h"
#include "schedule/schedule.h"
#include "schedule/weight_versions.h"
#include "tensor/byte_count.h"

namespace weft {

constexpr int32_t kMaxStages = 4096;

enum class SplitBy : uint8_t { uniform = 1, cost = 2, parameters = 3, type = 4, pipedream = 5 };

struct PlanConfig {
  int32_t ranks = 1;        // in all
  int32_t data = 1;         // replicas, each of ranks / data ranks, which divide the micro-batches
  int32_t shard_ranks = 1;  // of each, those that share each stage of a model cut into shards
  int32_t micro_batches = 1;
  int64_t micro_batch_size = 1;  // samples
  int64_t short_size = 0;        // samples of a short last micro-batch; 0: there is none
  std::string schedule = "1f1b";
  std::string schedule_text;  // the schedule written out, as Schedule::text; replaces `schedule`
                              // when not empty
  int32_t chunks = 0, group = 0, warm_up = 0;  // as in ScheduleSizes
  int32_t tensor = 1;                          // pieces that nodes are computed in (shard.h)
  std::string recompute = "none";              // none, stage, every:N, auto
  int32_t slack = 0;         // landing places beyond what a stage holds; 0: as slack_for says
  int64_t memory_limit = 0;  // bytes of a rank, 0: no limit; kept by recompute auto, else by
                             // SplitBy::cost, else checked
  SplitBy split = SplitBy::cost;
  std::vector<std::string> cuts;  // where stages 1, 2, ... begin: names of nodes, or of groups;
                                  // replaces `split` when not empty
  OptimSettings optim;
  uint64_t seed = 0;
  // Asynchronous schedules: updates of a segment, which is what a step is, each of `micro_batches`;
  // 0: the schedule's own number. A plan says what it came to, 0 with a synchronous schedule.
  int32_t segment = 0;
  uint32_t step_kinds =
      0;  // kinds of steps that runs make, 1 << Mode each; 0: all. There is no room for others
  bool vertical_sync =
      false;  // every stage uses the version of its weights that the first stage does
  int32_t gradient_groups = 1;  // of a step's micro-batches, see graph/groups.h; decides rounding
  int64_t bucket_bytes = 4 << 20;   // of gradients, which leave together for their owners
  std::string shard = "optimizer";  // what replicas keep in parts: none, optimizer, parameters
  // pipedream: ranks of each stage, as "3,1", which take turns with its micro-batches. The stage
  // makes an update of so many of them, by their mean; decides rounding. Empty: one each.
  std::string stage_replicas;

  // What the partition is made from. A plan's own config has `cuts` instead, however it was cut,
  // and that is what other ranks are sent.
  std::string split_type;        // SplitBy::type: the name of an op
  std::vector<NodeTimes> times;  // per node of the model; empty: by analysis
  Machines machines;             // SplitBy::cost
};

// A replica of its own: its ranks, gradient groups and micro-batches; of replicas that differ, the
// most micro-batches and the slowest, smallest machines.
PlanConfig replica_config(const PlanConfig& config);

// Whether runs make such steps: they are asked for, and the model can.
bool makes(const Model& model, const PlanConfig& config, Mode mode);

// --- memory
// -------------------------------------------------------------------------------------------------------------------------
// Every `stride`-th micro-batch from `first` to before `end`: those of a rank, or of an edge.
struct MicroBatches {
  int32_t first = 0, end = 1, stride = 1;

  bool has(int32_t micro_batch) const {
    return first <= micro_batch && micro_batch < end &&
           (stride == 1 || (micro_batch - first) % stride == 0);
  }
  int32_t count() const { return first < end ? (end - first + stride - 1) / stride : 0; }
};

// A ring is `count` equal places, which every `turn`-th micro-batch takes in turn. F, I and W
// ascend per stage, so places are taken and left in order.
struct Ring {
  int64_t base = 0, stride = 0;  // bytes from the start of the rank's arena
  int32_t count = 1, turn = 1;

  int64_t at(int32_t micro_batch) const { return base + micro_batch / turn % count * stride; }
};

// Where an operand lies: inside a place of a ring. Ring 0 is what outlives the step (weights,
// accumulators, optimizer state).
struct Place {
  int32_t ring = -1;  // -1: the call neither reads nor writes it
  int64_t offset = 0;
  explicit operator bool() const { return ring >= 0; }
};

struct PlacedOperand {
  Place place;
  std::array<Desc, 2> desc;  // of a full and of the short micro-batch
};

// --- messages
// -----------------------------------------------------------------------------------------------------------------------
enum class EdgeKind : uint8_t {
  feed,       // an input, from the controller to a stage that uses it
  forward,    // an activation, to a later stage
  gradient,   // back to the stage that folds it
  sink,       // loss, output or gradient of an input, to the controller
  tie_grad,   // accumulator of a tied parameter, to the rank that owns it
  tie_value,  // new value of a tied parameter, to another rank that uses it
  tie_sum,    // gradient of a parameter, from its owner to another rank that updates it too
  gather,     // value of a parameter, from its owner to a unit of an action that reads it
};
const char* edge_kind_name(EdgeKind kind);

// A tensor that travels. A message is tagged (step, edge, micro-batch); ties have micro-batch 0
// only, in a segment of an asynchronous schedule the updates of their stage.
struct Edge {
  EdgeKind kind;
  TensorId tensor = -1;                    // feed, forward, gradient, sink
  ParamId param = -1;                      // ties
  int32_t sum = -1;                        // tie_grad: of the uses that it is of, see Param::Use
  int32_t from_stage = -1, to_stage = -1;  // -1: the controller, or a tie
  Kind action = Kind::F;                   // gather: that reads it, of to_stage,
  int32_t unit = -1;                       // in that unit
  int32_t from_rank = 0, to_rank = 0;
  MicroBatches micro_batches = {};
  int32_t open = 1;           // those before it have a place at the receiver when a step begins;
                              // 0: all are granted later, also to a rank that has not begun yet
  int32_t landing_slots = 1;  // at the receiver: so many may be under way before a grant
  int32_t out_slots = 1;      // at the sender
  Place landing, outgoing;    // in the arena of the receiver, and of the sender (a feed leaves from
                              // the caller's tensor)
  std::array<Desc, 2> desc;

  bool has(int32_t micro_batch) const { return micro_batches.has(micro_batch); }
};

// --- programs
// -----------------------------------------------------------------------------------------------------------------------
struct ProgramCall {
  CallKind kind;
  NodeId node;
  int32_t weight = -1;
  std::vector<PlacedOperand> in, weights, stash, din;
  PlacedOperand out, dout, acc;
  // Of the calls of a micro-batch that add to acc: the first, and the last.
  bool opens = true, closes = true;
  bool clears = false;  // acc has held the sum of another run
  Place scratch;
};

// What a stage does for one micro-batch in one action, or in a unit of it (lowering/units.h); all
// micro-batches share it.
struct ActionProgram {
  int32_t stage;  // of the pipeline
  Kind kind;
  std::vector<ProgramCall> calls;
  std::vector<int32_t> waits;  // edges that must have arrived for this micro-batch
  std::vector<int32_t> posts;  // edges that can leave when it has run
  std::vector<int32_t> frees;  // edges whose landing place it leaves
  // Once it has run for the last micro-batch: gradients that can leave for their owners, and for
  // each accumulator of an owned parameter the bucket that needs it.
  std::vector<int32_t> sums, buckets;
  // Edges that bring values for this unit only, into the slot that it shares with others. A slot is
  // granted to one unit after another, in the order of the jobs.
  std::vector<int32_t> gathers;
  int32_t slot = 0;
  int32_t run = -1;  // whose accumulators it writes: an index into RankProgram::runs, or -1
};
constexpr int32_t kGatherSlots = 2;

// Gradients of owned parameters that are added together, as soon as all of them have arrived.
struct Bucket {
  struct Part {
    ParamId param;
    int32_t first, end;  // sums, added from the last to the first, to the total of those from `end`
  };
  std::vector<Part> parts;     // ascending by parameter
  int32_t sums = 0;            // accumulators of this rank that they need
  std::vector<int32_t> waits;  // edges: those of other ranks
  std::vector<int32_t> posts;  // edges: the gradients, to the other ranks that update them
};

// Accumulators that are not kept (lowering/gradient_runs.h). Those of a run have the places of the
// run kRunSlots before it, once its sums have left and its bucket has been added.
struct AccumulatorRun {
  int32_t bucket = -1;          // -1: the rank owns none of its parameters
  std::vector<int32_t> sends;   // edges: sums that leave
  std::vector<int32_t> grants;  // edges: sums of other ranks, granted when the places are free
};
constexpr int32_t kRunSlots = 2;

enum class JobKind : uint8_t {
  clear,  // accumulators to +0
  action,
  send_ties,  // post the accumulators that others own and that no action has posted
  reduce,     // add the gradients of a bucket, sums of squares; then post the gradients to the
              // others that update. After the last bucket: ready
  update,     // after the commit: new weights; then post them to the others that use them
  finish,     // new values of tied parameters have arrived; the step is done
};

struct Job {
  JobKind kind;
  // Index into RankProgram::programs: of an action, and of clear and send_ties that belong to an
  // update in a segment, whose program is that of O and whose micro_batch the update. Of reduce:
  // index into RankProgram::buckets.
  int32_t program = -1;
  int32_t micro_batch = 0;
};

struct RankProgram {
  std::vector<Ring> rings;
  std::vector<ActionProgram> programs;
  std::vector<Bucket> buckets;       // train: one or more
  std::vector<AccumulatorRun> runs;  // train, in the order of the backward
  std::vector<Job> jobs;
  std::vector<int32_t> edges;  // those of the mode that begin or end here, ascending
  int64_t bytes = 0;           // rings beyond ring 0
};

// What a rank keeps of a parameter, tensor by tensor.
struct ResidentTensor {
  enum class Role : uint8_t {
    value,        // the first of its versions; with --shard parameters the owner's
    gradient,     // the owner's, where accumulators are not kept
    accumulator,  // of a sum of gradients in one replica. The owner has those of all; if they
                  // are kept, the first is where the gradient ends
    state,        // of the optimizer; of a rank that updates the parameter
    squares,      // partial sums for the norm; the owner's
  };
  Role role;
  Desc desc;
  int32_t sum = -1;     // accumulator: of the uses that it adds, see Param::Use
  int32_t replica = 0;  // accumulator: whose micro-batches it sums
  bool local =
      true;  // accumulator: the uses are on this rank; false: that of another rank lands here
  int32_t count = 1;  // accumulator: sums, one behind the other; see GroupSums
  int32_t run = -1;   // accumulator: that shares its place with those of other runs; -1: it is kept
  Place place = {};

  int64_t bytes() const { return bytes_of_many(padded_bytes(desc), count); }
};

struct ResidentParam {
  ParamId param;
  bool owned = false;    // its gradient is made here; of this copy are files and digests
  bool updated = false;  // by this rank: the owner, and without --shard one rank of each replica
  std::vector<ResidentTensor> tensors;  // by role; accumulators by sum, then replica

  std::span<const ResidentTensor> of(ResidentTensor::Role role) const;
  // Of a rank that updates it: where its gradient ends. No place without training.
  Place gradient() const;
  // No place if the value is gathered.
  Place value() const {
    const auto values = of(ResidentTensor::Role::value);
    return values.empty() ? Place{} : values.front().place;
  }
};

struct ModePlan {
  Mode mode = Mode::train;
  bool present =
      false;  // a model without a loss has no train and no eval, one without outputs no infer
  StepGraph graph;
  Schedule schedule;
  std::vector<Edge> edges;
  std::vector<RankProgram> ranks;
};

// A stage as programs and the engine see it. Where ranks share the stages of a pipeline, each is
// cut into several of these (lowering/segments.h); otherwise each is one.
struct Segment {
  int32_t stage;  // of the pipeline
  int32_t index;  // exchanges of the stage before it
  int32_t place;  // of its rank among those that share the stage
  friend bool operator==(const Segment&, const Segment&) = default;
};

struct PlanHash {
  Digest model, partition, schedule, settings;
  friend bool operator==(const PlanHash&, const PlanHash&) = default;
};

struct Plan {
  std::shared_ptr<const Model> whole;  // as the program built it
  std::shared_ptr<const Model> model;  // what is run: its pieces, or itself with one shard
  PlanConfig config;
  std::vector<Segment> segments;        // what the stages of the other tables are
  std::vector<int32_t> stage_of_node;   // inputs: the stage of their first use
  std::vector<int32_t> stage_of_whole;  // per node of `whole`: that of all its pieces
  std::vector<std::vector<ParamId>>
      pieces;                              // per parameter of `whole`, in the order of coordinates
  std::vector<int32_t> position_of_stage;  // of its rank in replica 0; see positions()
  std::vector<int32_t> stage_replicas;     // per stage; empty: each has config.data
  std::vector<int32_t> owner_of_param;     // rank
  std::array<ModePlan, kModes> modes;
  std::vector<std::vector<ResidentParam>> resident;  // per rank, ascending by parameter
  std::vector<WeightVersions>
      versions;  // per rank; copies of the weights lie at the start of ring 0
  std::vector<int64_t> permanent_bytes;  // per rank: ring 0
  std::vector<int64_t> arena_bytes;      // per rank: everything a run takes for tensors
  PlanHash hash;

  int32_t stages() const { return static_cast<int32_t>(position_of_stage.size()); }
  // Of the pipeline, which people know.
  int32_t pipeline_stages() const { return segments.back().stage + 1; }
  int32_t first_rank(int32_t pipeline_stage) const;
  // Replica d has the ranks from d * positions(). The ranks at one position have the same stages.
  // With stage_replicas, those of a stage follow each other, and the first is their position.
  int32_t positions() const { return config.ranks / config.data; }
  int32_t position_of(int32_t rank) const;
  int32_t replica_of(int32_t rank) const {
    return stage_replicas.empty() ? rank / positions() : rank - position_of(rank);
  }
  int32_t rank_at(int32_t position, int32_t replica) const {
    return position + replica * (stage_replicas.empty() ? positions() : 1);
  }
  int32_t rank_of(int32_t stage, int32_t replica) const {
    return rank_at(position_of_stage[static_cast<size_t>(stage)], replica);
  }
  int32_t replicas_of(int32_t stage) const {
    return stage_replicas.empty() ? config.data : stage_replicas[static_cast<size_t>(stage)];
  }
  int32_t replicas_of_node(NodeId node) const {
    return replicas_of(stage_of_node[static_cast<size_t>(node)]);
  }
  int32_t most_replicas() const;
  // Of the stages of a rank.
  int32_t replicas_at(int32_t rank) const;
  // Whose row of a schedule says what a rank does.
  int32_t row_of(int32_t rank) const { return stage_replicas.empty() ? position_of(rank) : rank; }
  int32_t rank_of_node(NodeId node, int32_t replica) const {
    return rank_of(stage_of_node[static_cast<size_t>(node)], replica);
  }
  // The most micro-batches of a step, and the first of them that a replica has; replica
  // config.data: where they end.
  int32_t micro_batches(Mode m) const {
    return config.data > 1 ? config.micro_batches : mode(m).schedule.micro_batches;
  }
  int32_t first_micro_batch(Mode m, int32_t replica) const {
    if (replica == config.data) return micro_batches(m);
    return groups().begin(replica * (config.gradient_groups / config.data));
  }
  // Of the stages of a rank.
  MicroBatches micro_batches_at(Mode m, int32_t rank) const;
  GradientGroups groups() const { return {config.micro_batches, config.gradient_groups}; }
  // Of the pipeline, ascending.
  std::vector<uint32_t> stages_on(int32_t rank) const;
  const ModePlan& mode(Mode m) const { return modes[static_cast<size_t>(m)]; }
  // The rows of the pipeline in that mode, whatever ranks share or replicate them.
  std::string timetable() const;
  Mode main_mode() const;  // training if there is any, which a prediction or timetable is of
  bool gathers() const { return config.shard == "parameters"; }
  bool asynchronous() const { return config.segment > 0; }
  // Micro-batches of one update of a segment; 0: the step is one update at most.
  int32_t per_update(Mode m, bool update) const {
    return asynchronous() && m == Mode::train && update ? config.micro_batches : 0;
  }
  // The most that a step of any mode has.
  int32_t most_micro_batches() const {
    return config.micro_batches * (asynchronous() ? config.segment : 1);
  }
  int64_t samples(int32_t variant) const {
    return variant ? config.short_size : config.micro_batch_size;
  }
};

// Errors name the setting or node, what was expected and what was found.
Status check_config(const Model& model, const PlanConfig& config);
// Fills `hash` from everything else.
void hash_plan(Plan& plan);

}  // namespace weft
