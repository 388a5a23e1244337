// Runs the jobs of one rank: owns the rank's arena, and the programs of its plan bound to addresses
// in it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/group_sums.h"
#include "engine/messages.h"
#include "engine/trace.h"
#include "kernels/tiles.h"
#include "plan/plan.h"
#include "runtime/arena.h"
#include "runtime/batch.h"
#include "runtime/initial_values.h"
#include "runtime/stored_weight.h"

namespace weft {

// A task of a worker.
struct WorkerTask {
  StepDescriptor step;
  double scale = 1;
  int32_t job = -1;      // of the mode's program; -1: copy a message to its destination
  bool deliver = false;  // also copy what the job posts to ranks of this process
  int32_t edge = -1, micro_batch = -1;  // of a copy
};

// Lives on the thread that runs the jobs; between steps any one thread may read and write
// parameters.
class Worker {
 public:
  // Allocates the arena. The resident parameters have their initial values when they are read.
  // `tiles` outlives the worker.
  static Result<std::unique_ptr<Worker>> make(std::shared_ptr<const Plan> plan, int32_t rank,
                                              Tiles& tiles);

  // The workers of all ranks, if they are in this process; otherwise only this one.
  void join(std::span<Worker* const> local) { local_ = local; }
  // The inputs of a step, from which jobs copy the samples that they wait for. Any thread. The
  // batch may be freed after the end of the step, and after drop_feeds().
  void feed(uint64_t sequence, const Batch* batch);
  void drop_feeds();

  // Allocates nothing. Errors of an op name the node.
  Status run(const WorkerTask& task);
  // After a reduce job: by owned parameter, ascending; in a segment, update by update.
  std::span<const double> squares() const { return std::span(squares_).first(summed_); }
  // Of the last job, without copies.
  const JobTime& last_time() const { return last_time_; }

  // Between steps: records the spans of the next jobs, at most that many; 0: stops. Drops earlier
  // spans.
  Status trace(size_t jobs);
  const std::vector<TraceSpan>& spans() const { return spans_; }

  // From now on appends the duration of each call of an action to *out, in nanoseconds; calls that
  // run at once have one duration. Null: stops.
  void time_calls(std::vector<int64_t>* out) { call_times_ = out; }

  // The source of a message of a feed edge: samples of the step.
  std::span<const std::byte> input(const StepDescriptor& step, int32_t edge,
                                   int32_t micro_batch) const;
  // The source of another message, or the destination, and its length.
  std::span<const std::byte> outgoing(Mode mode, int32_t edge, int32_t micro_batch,
                                      int32_t variant);
  std::span<std::byte> landing(Mode mode, int32_t edge, int32_t micro_batch, int32_t variant,
                               uint64_t sequence);

  View delivered(const StepDescriptor& step, int32_t edge, int32_t micro_batch);  // rank 0

  // Memory of a resident parameter; only its owner has the gradient and the optimizer state
  // (otherwise null).
  struct ParamMemory {
    StoredWeight value = {};
    InitialValues* initial = nullptr;  // which the value may not have yet
    float* grad = nullptr;
    std::array<float*, 2> slots{};
  };
  ParamMemory param(ParamId id);  // all null when this rank does not use it
  // To write: what was derived from its data is made again.
  ParamMemory writable_param(ParamId id);
  // Before the first job, so that a later read takes no time.
  void draw_initial_values() { initial_.draw_all(); }

  Result<int64_t> resident_bytes() const { return arena_.resident(); }
  int32_t rank() const { return rank_; }
  const Plan& plan() const { return *plan_; }

 private:
  // The views of a call: shapes are fixed, addresses are set for each micro-batch.
  struct BoundCall {
    std::vector<View> in, weights, stash, din;
    View out, dout, acc;
    std::vector<View> state;
    kernels::PackedMatrix stored;   // see Call
    bool* empty = nullptr;          // of an accumulator that is kept: see empty_
    std::vector<BoundCall> blocks;  // by blocks of rows: per part of the scratch memory
    std::vector<BoundCall> others;  // of the other micro-batches of jobs that run at once
  };
  using BoundProgram = std::vector<BoundCall>;

  Worker(std::shared_ptr<const Plan> plan, int32_t rank, Tiles& tiles, Arena arena);
  void bind();
  void bind_mode(const ModePlan& mode);
  BoundCall bind_call(const ProgramCall& call, size_t variant);
  static void add_others(BoundCall& call, size_t count);
  void expect_values();
  const RankProgram& program(Mode mode) const {
    return plan_->mode(mode).ranks[static_cast<size_t>(rank_)];
  }
  void* at(const RankProgram& program, const Place& place, int32_t micro_batch,
           uint64_t sequence) const;
  // Of the step of the running job.
  void* at(const RankProgram& program, const Place& place, int32_t micro_batch) const {
    return at(program, place, micro_batch, sequence_);
  }
  void take_feeds(const StepDescriptor& step, const Job& job);
  void deliver(const StepDescriptor& step, const Job& job);
  void copy(const StepDescriptor& step, int32_t edge, int32_t micro_batch);
  Status run_job(const StepDescriptor& step, double scale, const Job& job);
  Status run_action(const StepDescriptor& step, const RankProgram& program, const Job& job);
  // The calls of the job and of those that run with it, for all their micro-batches in turn.
  Status run_together(const StepDescriptor& step, const RankProgram& program,
                      const ActionProgram& action, std::span<const Job> jobs);
  Status run_sum(const StepDescriptor& step, const RankProgram& program,
                 const ActionProgram& action, size_t call, std::span<const Job> jobs);
  Status run_call(const StepDescriptor& step, const RankProgram& program, const ProgramCall& call,
                  BoundCall& bound, int32_t micro_batch);
  Status run_fold(const RankProgram& program, const ProgramCall& call, BoundCall& bound,
                  int32_t micro_batch);
  Status run_op(const StepDescriptor& step, const RankProgram& program, const ProgramCall& call,
                BoundCall& bound, int32_t micro_batch);
  void bind_weights(const StepDescriptor& step, const RankProgram& program, const ProgramCall& call,
                    BoundCall& bound, int32_t micro_batch);
  bool begin_sum(const ProgramCall& call, BoundCall& bound, const GroupSums& sums);
  // The call of an op; begins its sum.
  Call make_call(const StepDescriptor& step, const RankProgram& program, const ProgramCall& call,
                 BoundCall& bound, int32_t micro_batch, const GroupSums& sums);
  // A part of the scratch memory, and the rows that are computed in it.
  struct Block {
    int part;
    int64_t first, count;
  };
  static std::vector<BoundCall> bind_blocks(const ProgramCall& call, size_t variant);
  Status run_kernel(const RankProgram& program, const ProgramCall& call, BoundCall& bound,
                    const Op& op, const Call& whole, int32_t micro_batch);
  Status run_blocks(const RankProgram& program, const ProgramCall& call, BoundCall& bound,
                    const Op& op, const Call& whole, int32_t micro_batch);
  Status run_block(const RankProgram& program, const ProgramCall& call, BoundCall& bound,
                   const Op& op, const Call& whole, int32_t micro_batch, Block rows);
  const void* packed_weight(const RankProgram& program, const ProgramCall& call,
                            const BoundCall& bound, int32_t micro_batch);
  void pack_weight(const View& weight, const PackedOperand& packed, void* out);
  void set_packed(const ResidentParam& param, bool packed);
  // Calls visit(operand, view, written) for each tensor of a call.
  template <typename Visit>
  static void each_operand(const ProgramCall& call, BoundCall& bound, Visit&& visit);
  // Sets the addresses of the operands and, unless the call is made by blocks of rows, fills the
  // copies of those that it reads.
  void point(const RankProgram& program, const ProgramCall& call, BoundCall& bound,
             int32_t micro_batch);
  // Stores what the call has written to copies.
  void store(const RankProgram& program, const ProgramCall& call, BoundCall& bound,
             int32_t micro_batch);
  ParamMemory memory_of(const ResidentParam& p) const;
  const WeightVersions& versions() const { return plan_->versions[static_cast<size_t>(rank_)]; }
  // One of the sums of an accumulator, see GroupSums.
  float* sum_at(const Place& accumulator, const Desc& desc, int32_t depth) const;
  // The rows of one of them that may not be +0; null: not noted.
  RowSet* rows_at(const Place& accumulator, int32_t depth);
  void clear(const Place& accumulator, const Desc& desc, int32_t depth);
  void clear(const PlacedOperand& accumulator, int32_t depth);
  void fold(const PlacedOperand& accumulator, int32_t depth);
  void clear_run(const ActionProgram& action);
  void clear(const StepDescriptor& step);
  void reduce(const Bucket& bucket, int32_t update, int32_t parts);
  void add_sums(const ResidentParam& p, const Bucket::Part& part, int32_t update, float* gradient,
                int64_t begin, int64_t count);
  struct Update {
    double rate;
    uint64_t number;  // of updates before it
    double scale;     // of the gradients; 0: nothing changes
    int32_t micro_batches;
  };
  void update_weights(const Update& made, int32_t from, int32_t to);
  void make_first(int32_t version);
  void run_update(const StepDescriptor& step, int32_t update);

  std::shared_ptr<const Plan> plan_;
  const int32_t rank_;
  Tiles& tiles_;
  Arena arena_;
  InitialValues initial_;
  std::array<std::array<std::vector<BoundProgram>, 2>, kModes>
      bound_;  // [mode][variant][program][call]
  // By place: the accumulators that are kept and to which calls add. True: the next call begins the
  // sum; the memory still contains an earlier one.
  std::map<int64_t, bool> empty_;
  // By place and depth, of accumulators whose calls note rows: see rows_at().
  std::map<int64_t, std::vector<RowSet>> rows_;
  std::span<Worker* const> local_;
  uint64_t sequence_ = 0;  // of the step of the running job
  std::mutex feed_mutex_;  // batches_: held while a job copies from one
  std::array<const Batch*, kStepsAtOnce> batches_ = {};  // by sequence
  // By place: whether the packed copy of a weight is that of its value.
  std::unordered_map<int64_t, bool> is_packed_;
  std::vector<int32_t> contributions_;  // per parameter: those of a micro-batch to its gradient
  std::vector<double> squares_;
  size_t owned_ = 0, summed_ = 0;  // parameters; squares of the last step
  JobTime last_time_;
  std::vector<int64_t>* call_times_ = nullptr;
  std::vector<TraceSpan> spans_;
  size_t spans_wanted_ = 0;
};

template <typename Visit>
void Worker::each_operand(const ProgramCall& call, BoundCall& bound, Visit&& visit) {
  const bool makes = makes_output(call.kind);
  const auto all = [&visit](const std::vector<PlacedOperand>& operands, std::vector<View>& views,
                            bool written) {
    for (size_t i = 0; i < operands.size(); ++i) visit(operands[i], views[i], written);
  };
  all(call.in, bound.in, false);
  visit(call.out, bound.out, makes);
  all(call.stash, bound.stash, makes);
  visit(call.dout, bound.dout, false);
  all(call.din, bound.din, true);
}

}  // namespace weft
