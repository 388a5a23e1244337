// A plan: the rank and the order of every kernel call of the step graph, and the memory layout. It
// is immutable, and a pure function of the model and the configuration, so that all ranks make the
// same plan. Each section has a hash, so that the error for a rank with another plan names the
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
#include "plan/param_groups.h"
#include "plan/times.h"
#include "schedule/check.h"
#include "schedule/schedule.h"
#include "schedule/weight_versions.h"
#include "tensor/byte_count.h"

namespace weft {

constexpr int32_t kMaxStages = 4096;

enum class SplitBy : uint8_t { uniform = 1, cost = 2, parameters = 3, type = 4, pipedream = 5 };

constexpr const char* kAllPacked = "*";

struct PlanConfig {
  int32_t ranks = 1;        // in all
  int32_t data = 1;         // replicas, each of ranks / data ranks, which divide the micro-batches
  int32_t shard_ranks = 1;  // in each replica, those that share each stage
  int32_t micro_batches = 1;
  int64_t micro_batch_size = 1;  // samples
  int64_t short_size = 0;        // samples of a short last micro-batch; 0: there is none
  std::string schedule = "1f1b";
  std::string schedule_text;  // the schedule as Schedule::text; replaces `schedule`
                              // if it is not empty
  int32_t chunks = 0, group = 0, warm_up = 0;  // as in ScheduleSizes
  int32_t tensor = 1;                          // pieces into which nodes are cut (shard.h)
  std::string recompute = "none";              // none, stage, every:N, auto
  int32_t slack = 0;  // slots in addition to those that a stage holds; 0: the value of slack_for
  int64_t memory_limit = 0;  // bytes of a rank, 0: no limit; recompute auto and SplitBy::cost
                             // observe it, otherwise it is checked
  SplitBy split = SplitBy::cost;
  std::vector<std::string> cuts;  // first nodes of the stages 1, 2, ...: names of nodes or of
                                  // groups; replaces `split` if it is not empty
  std::string precision = "f32";  // in which values between nodes are stored: f32 or bf16
  std::string f32_nodes;          // with bf16: names of nodes that have f32, with patterns
  // Parameters that ranks keep as products read them, see keeps_packed(): names with spaces between
  // them, or all.
  std::string packed = kAllPacked;
  OptimSettings optim;
  std::vector<ParamGroup> groups;
  uint64_t seed = 0;
  // Asynchronous schedules: updates per segment, which is one step, each with `micro_batches`.
  // 0: the default of the schedule. In a plan: the resulting number, 0 if synchronous.
  int32_t segment = 0;
  // Kinds of steps that runs make, 1 << Mode each, and the kinds with a loss whose outputs are
  // delivered, kOutputs << Mode each; 0: all kinds. No memory is planned for others.
  uint32_t step_kinds = 0;
  bool vertical_sync =
      false;  // every stage uses the version of its weights that the first stage does
  int32_t gradient_groups = 1;  // of a step's micro-batches, see graph/groups.h; affects rounding
  int64_t bucket_bytes = 4 << 20;   // of gradients that are sent to owners together
  std::string shard = "optimizer";  // what replicas keep in parts: none, optimizer, parameters
  // Asynchronous schedules: ranks of each stage, as "3,1", which run its micro-batches in turn.
  // With r ranks, an update is the mean of r times `micro_batches`; affects rounding. Empty: one
  // each.
  std::string stage_replicas;

  // The input of the partition. The configuration that a plan stores, and sends to other ranks, has
  // `cuts` instead.
  std::string split_type;        // SplitBy::type: the name of an op
  std::vector<NodeTimes> times;  // per node of the model; empty: by analysis
  Machines machines;             // SplitBy::cost

  static constexpr uint32_t kOutputs = 1u << kModes;

  bool includes(Mode mode) const {
    return step_kinds == 0 || (step_kinds >> static_cast<uint32_t>(mode) & 1);
  }
  bool delivers_outputs(Mode mode) const {
    return mode == Mode::infer || (step_kinds & kOutputs << static_cast<uint32_t>(mode)) != 0;
  }
  StepGraphOptions graph_options(Mode mode) const {
    return {.values = values(), .outputs = delivers_outputs(mode)};
  }
  // Whether ranks get values of parameters from their owners during a step.
  bool gathers() const { return shard == "parameters"; }
  // Whether steps of the mode can begin before all ranks have finished the step before. Values are
  // gathered step by step.
  bool can_overlap(Mode mode) const { return mode != Mode::train && !gathers(); }
  DType values() const { return precision == "bf16" ? DType::bf16 : DType::f32; }
};

// The configuration of one replica: its ranks, gradient groups and micro-batches. If replicas
// differ, it has the most micro-batches and the slowest and smallest machines.
PlanConfig replica_config(const PlanConfig& config);

// Whether ranks may keep the weight packed from call to call. Gathered values, weights with several
// versions, and those for which a memory limit has no room are packed for each call, or not at all.
bool keeps_packed(const PlanConfig& config, const Param& weight);

// Whether the model has what such steps compute: a loss, an output, or state.
bool supports(const Model& model, Mode mode);

// Whether runs make such steps: the configuration includes them, and the model supports them.
bool makes(const Model& model, const PlanConfig& config, Mode mode);

// --- memory
// Every `stride`-th micro-batch from `first` to `end` - 1: those of a rank, or of an edge.
struct MicroBatches {
  int32_t first = 0, end = 1, stride = 1;

  bool has(int32_t micro_batch) const {
    return first <= micro_batch && micro_batch < end &&
           (stride == 1 || (micro_batch - first) % stride == 0);
  }
  int32_t count() const { return first < end ? (end - first + stride - 1) / stride : 0; }
};

// A ring is `count` equal slots, which every `turn`-th micro-batch uses in turn. F, I and W ascend
// per stage, so that slots are acquired and released in order. Steps with odd sequences begin
// `shift` slots later, so that messages of a step can arrive during the one before.
struct Ring {
  int64_t base = 0, stride = 0;  // bytes from the start of the rank's arena
  int32_t count = 1, turn = 1, shift = 0;

  int64_t at(int32_t micro_batch, uint64_t sequence) const {
    const int32_t begin = sequence % 2 ? shift : 0;
    return base + (micro_batch / turn + begin) % count * stride;
  }
};

// The position of an operand in a slot of a ring. Ring 0 is the memory that persists between steps
// (weights, accumulators, optimizer state).
struct Place {
  int32_t ring = -1;  // -1: the call neither reads nor writes it
  int64_t offset = 0;
  explicit operator bool() const { return ring >= 0; }
};

struct PlacedOperand {
  Place place;
  std::array<Desc, 2> desc;  // as it is stored: of a full and of the short micro-batch
  // A copy for the call: f32 of a bf16 tensor, or bf16 of an f32 one. By blocks of rows: of one
  // block, in the first part of the scratch memory.
  Place converted = {};
};

// A call that is made for some rows at a time (Op::by_rows), because operands are stored in bf16.
struct RowBlocks {
  int64_t rows = 0;   // of a block; 0: the call takes whole tensors
  int64_t parts = 0;  // of the scratch memory: so many blocks may run at the same time
  int64_t bytes = 0;  // of a part
  explicit operator bool() const { return rows > 0; }
};

// A copy of a weight as a product reads it (kernels/packed.h, kernels/bf16_pack.h).
struct PackedOperand {
  Place place;
  bool transposed = false;
  bool kept = false;  // a resident tensor, made again after each update; otherwise for one call
  bool only = false;  // the weight is stored only so
  DType dtype = DType::f32;
};

// --- messages
enum class EdgeKind : uint8_t {
  feed,       // an input, from the controller to a stage that uses it
  forward,    // an activation, to a later stage
  gradient,   // to the earlier stage that folds it
  sink,       // loss, output or gradient of an input, to the controller
  tie_grad,   // accumulator of a tied parameter, to the rank that owns it
  tie_value,  // new value of a tied parameter, to another rank that uses it
  tie_sum,    // gradient of a parameter, from its owner to another rank that updates it too
  gather,     // value of a parameter, from its owner to a unit of an action that reads it
};
const char* edge_kind_name(EdgeKind kind);

// A tensor that is sent. A message has the tag (step, edge, micro-batch). Ties have micro-batch 0
// only, or the updates of their stage in a step of an asynchronous schedule.
struct Edge {
  EdgeKind kind;
  TensorId tensor = -1;                    // feed, forward, gradient, sink
  ParamId param = -1;                      // ties
  int32_t sum = -1;                        // tie_grad: of the uses that it is of, see Param::Use
  int32_t from_stage = -1, to_stage = -1;  // -1: the controller, or a tie
  Kind action = Kind::F;                   // gather: the action of to_stage that reads it,
  int32_t unit = -1;                       // in this unit
  int32_t from_rank = 0, to_rank = 0;
  MicroBatches micro_batches = {};
  int32_t open = 1;           // those before it have a slot at the receiver when a step begins;
                              // 0: all are granted later, also to a rank that has not begun yet
  int32_t landing_slots = 1;  // at the receiver: so many may be in transit before a grant
  int32_t out_slots = 1;      // at the sender
  Place landing, outgoing;  // in the arena of the receiver, and of the sender (a feed is sent from
                            // the tensor of the caller)
  std::array<Desc, 2> desc;

  bool has(int32_t micro_batch) const { return micro_batches.has(micro_batch); }
};

// --- programs
struct ProgramCall {
  CallKind kind;
  NodeId node;
  int32_t weight = -1;
  std::vector<PlacedOperand> in, weights, stash, din;
  PlacedOperand out, dout, acc;
  std::vector<PlacedOperand> state = {};
  PackedOperand packed = {};  // of weight 0
  // Of the calls of a micro-batch that add to acc: the first, and the last.
  bool opens = true, closes = true;
  bool clears = false;  // acc has held the sum of another run
  RowBlocks blocks = {};
  Place scratch;
};

// The calls of a stage for one micro-batch in one action, or in a unit of it (lowering/units.h);
// they are the same for all micro-batches.
struct ActionProgram {
  int32_t stage;  // of the pipeline
  Kind kind;
  std::vector<ProgramCall> calls;
  std::vector<int32_t> waits;  // edges that must have arrived for this micro-batch
  std::vector<int32_t> posts;  // edges that can be sent when it has run
  std::vector<int32_t> frees;  // edges whose slot it releases
  // After the last micro-batch: gradients that can be sent to their owners, and for each
  // accumulator of an owned parameter the bucket that needs it.
  std::vector<int32_t> sums, buckets;
  // Edges with values for this unit only, whose slot other units use as well. A slot is granted to
  // one unit after another, in the order of the jobs.
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

// Accumulators that are not kept (lowering/gradient_runs.h). Those of a run have the slot of the
// run kRunSlots before it, once its sums have left and its bucket has been added.
struct AccumulatorRun {
  int32_t bucket = -1;          // -1: the rank owns none of its parameters
  std::vector<int32_t> sends;   // edges: sums that leave
  std::vector<int32_t> grants;  // edges: sums of other ranks, granted when the slot is free
};
constexpr int32_t kRunSlots = 2;

enum class JobKind : uint8_t {
  clear,  // accumulators to +0
  action,
  send_ties,  // post the accumulators that other ranks own and that no action has posted
  reduce,  // add the gradients of a bucket, sums of squares; then post the gradients to the other
           // ranks that update. After the last bucket: ready
  update,  // after the commit: new weights; then post them to the other ranks that use them
  finish,  // new values of tied parameters have arrived; the step is complete
};

struct Job {
  JobKind kind;
  // Index into RankProgram::programs: of an action, and of clear and send_ties that belong to an
  // update of an asynchronous step, whose program is that of O and whose micro_batch the update. Of
  // reduce: index into RankProgram::buckets.
  int32_t program = -1;
  int32_t micro_batch = 0;
  // W: of this job and of those after it, which differ in the micro-batch only, so many run at
  // once, when this job does. 0: it has run with an earlier one.
  int32_t together = 1;
};

struct RankProgram {
  std::vector<Ring> rings;
  std::vector<ActionProgram> programs;
  std::vector<Bucket> buckets;       // train: one or more
  std::vector<AccumulatorRun> runs;  // train, in the order of the backward
  std::vector<Job> jobs;
  std::vector<int32_t> edges;  // those of the mode that begin or end here, ascending
  int64_t bytes = 0;           // rings other than ring 0
};

// The tensors of a parameter that a rank keeps.
struct ResidentTensor {
  enum class Role : uint8_t {
    value,        // the first of its versions; with --shard parameters the owner's
    packed,       // for products: a copy of the value, or the form in which it is stored
    sent,         // a bf16 copy of a float32 value, for ranks that store it so
    gradient,     // the owner's, where accumulators are not kept, or several of one sum
    accumulator,  // of a sum of gradients in one replica. The owner has those of all; without a
                  // gradient, the first one of the last sum is where the gradient ends
    state,        // of the optimizer; of a rank that updates the parameter
    squares,      // partial sums for the norm, on the owner
  };
  Role role;
  Desc desc;
  int32_t sum = -1;     // accumulator: of the uses that it adds, see Param::Use
  int32_t replica = 0;  // accumulator: whose micro-batches it sums
  bool local =
      true;  // accumulator: the uses are on this rank; false: that of another rank lands here
  int32_t count = 1;  // accumulator: sums, one behind the other: of groups, see GroupSums, or,
                      // where those of another stage land, of updates in turn
  int32_t run = -1;   // accumulator: that shares its slot with those of other runs; -1: it is kept
  bool by_rows = false;  // accumulator: only W changes it, and some rows of it; see Op::adds_rows
  bool transposed = false;  // packed: of the transpose
  Place place = {};

  int64_t bytes() const { return bytes_of_many(padded_bytes(desc), count); }
  // accumulator: the offset of the sum of an update.
  int64_t sum_of(int32_t update) const {
    return place.offset + (local ? 0 : update % count * padded_bytes(desc));
  }
};

struct ResidentParam {
  ParamId param;
  bool owned = false;    // its gradient is made here; of this copy are files and digests
  bool updated = false;  // by this rank: the owner, and without --shard one rank of each replica
  DType dtype = DType::f32;             // of its value, see stored_desc() in lowering/parameters.h
  std::vector<ResidentTensor> tensors;  // by role; accumulators by sum, then replica

  std::span<const ResidentTensor> of(ResidentTensor::Role role) const;
  // Of a rank that updates it: where its gradient ends. No place without training.
  Place gradient() const;
  // Whether the value is stored in packed forms and no other. Writes of the value write to all.
  bool only_packed() const;
  // Of the value, or of its first packed form if it has no other. No place if the value is
  // gathered.
  Place value() const;
};

// A tensor of Inferred::state that a rank keeps between steps.
struct ResidentState {
  NodeId node;
  Desc desc;
  Place place = {};
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

// A stage for programs and the engine. If ranks share the stages of a pipeline, each stage is cut
// into several segments (lowering/segments.h); otherwise each stage is one.
// PlanConfig::segment, a number of updates, is something else.
struct Segment {
  int32_t stage;        // of the pipeline
  int32_t index;        // exchanges of the stage before it
  int32_t tensor_rank;  // which of the ranks that share the stage
  friend bool operator==(const Segment&, const Segment&) = default;
};

struct PlanHash {
  Digest model, partition, schedule, settings;
  std::vector<Digest> each;  // of setting_digests(); `settings` is that of all
  friend bool operator==(const PlanHash&, const PlanHash&) = default;
};

struct Plan {
  std::shared_ptr<const Model> whole;  // as it was built, with the parameter groups
  std::shared_ptr<const Model> model;  // the one to run: its pieces, or itself
  PlanConfig config;
  std::vector<Segment> segments;        // the stages of the other tables
  std::vector<int32_t> stage_of_node;   // inputs: the stage of their first use
  std::vector<int32_t> stage_of_whole;  // per node of `whole`: that of all its pieces
  std::vector<std::vector<ParamId>>
      pieces;                              // per parameter of `whole`, in the order of coordinates
  std::vector<int32_t> position_of_stage;  // of its rank in replica 0; see positions()
  std::vector<int32_t> stage_replicas;     // per stage; empty: each has config.data
  std::vector<int32_t> owner_of_param;     // rank
  std::array<ModePlan, kModes> modes;
  std::vector<std::vector<ResidentParam>> resident;  // per rank, ascending by parameter
  std::vector<std::vector<ResidentState>> states;    // per rank, ascending by node
  std::vector<WeightVersions>
      versions;  // per rank; copies of the weights lie at the start of ring 0
  std::vector<int64_t> permanent_bytes;  // per rank: ring 0
  std::vector<int64_t> arena_bytes;      // per rank: all tensors of a run
  PlanHash hash;

  int32_t stages() const { return static_cast<int32_t>(position_of_stage.size()); }
  // Number of stages of the pipeline, for users.
  int32_t pipeline_stages() const { return segments.back().stage + 1; }
  int32_t first_rank(int32_t pipeline_stage) const;
  // Replica d has the ranks from d * positions(). The ranks at one position have the same stages.
  // With stage_replicas, the ranks of a stage are consecutive, and the first one is their position.
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
  // The row of a schedule that a rank runs.
  int32_t row_of(int32_t rank) const { return stage_replicas.empty() ? position_of(rank) : rank; }
  int32_t rank_of_node(NodeId node, int32_t replica) const {
    return rank_of(stage_of_node[static_cast<size_t>(node)], replica);
  }
  // The maximum number of micro-batches of a step, and the first one of a replica; for the replica
  // config.data, their end.
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
  // The rows of the pipeline in this mode, without shards and replicas.
  std::string timetable() const;
  Mode main_mode() const;  // the mode of predictions and timetables: training if the plan has it
  bool gathers() const { return config.gathers(); }
  bool asynchronous() const { return config.segment > 0; }
  // Micro-batches of each update of an asynchronous step; 0: the step has at most one update.
  int32_t per_update(Mode m, bool update) const {
    return asynchronous() && m == Mode::train && update ? config.micro_batches : 0;
  }
  // The maximum of all modes.
  int32_t most_micro_batches() const {
    return config.micro_batches * (asynchronous() ? config.segment : 1);
  }
  int64_t samples(int32_t variant) const {
    return variant ? config.short_size : config.micro_batch_size;
  }
};

}  // namespace weft
