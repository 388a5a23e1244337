// A rank's engine: a state machine. Events go in, effects come out; it owns no thread, socket or clock, and allocates nothing after it
// is made.
//
//            begin ──► clear, actions in program order ──► reduce ──► [ready → commit] ──► update ──► finish ──► done
//
// An action runs when its messages have arrived, the actions before it were given out, and the places it writes into were released.
// One job more than the one that runs may be given out, so that the worker never waits for the loop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/messages.h"
#include "plan/plan.h"

namespace weft {

class Engine {
 public:
  Engine(std::shared_ptr<const Plan> plan, int32_t rank);

  // Events. An event that no sound peer could cause is refused with Code::protocol and changes nothing.
  Status begin(const StepDescriptor& step, Effects& effects);
  Status arrived(uint64_t sequence, int32_t edge, int32_t micro_batch, Effects& effects);
  Status granted(uint64_t sequence, int32_t edge, int32_t micro_batch, Effects& effects);
  Status released(int32_t edge, int32_t micro_batch, Effects& effects);
  // `squares`: after a reduce job, the sums of squares of the owned parameters.
  Status ran(int32_t job, std::span<const double> squares, Effects& effects, const JobTime& time = {});
  Status commit(uint64_t sequence, double scale, Effects& effects);
  void abort();

  int32_t rank() const { return rank_; }
  bool idle() const { return !running_; }
  const StepDescriptor& step() const { return step_; }
  double scale() const { return scale_; }

  // What the rank is doing, for a person: "in 3W4", or "waits for 3B5 from rank 3".
  std::string describe() const;

 private:
  // Bits per (edge, micro-batch).
  class Marks {
   public:
    void resize(size_t edges, int32_t micro_batches);
    bool get(int32_t edge, int32_t mb) const { return bits_[index(edge, mb)] != 0; }
    // False if it was set before.
    bool set(int32_t edge, int32_t mb);
    void clear();

   private:
    size_t index(int32_t edge, int32_t mb) const { return static_cast<size_t>(edge) * stride_ + static_cast<size_t>(mb); }
    std::vector<uint8_t> bits_;
    size_t stride_ = 0;
  };

  const ModePlan& mode() const { return plan_->mode(step_.mode); }
  const RankProgram& program() const { return mode().ranks[static_cast<size_t>(rank_)]; }
  Status check_tag(const ModePlan& mode, int32_t edge, int32_t micro_batch, bool incoming) const;
  bool skipped(const Job& job) const { return job.kind == JobKind::action && job.micro_batch >= step_.micro_batches; }
  int32_t missing(const Job& job) const;      // an edge that has not arrived, or -1
  bool ready(const Job& job) const;
  void advance(Effects& effects);
  void finish_job(const Job& job, Effects& effects);
  void offer(int32_t edge, int32_t micro_batch, Effects& effects);   // post it, or hold it until there is a grant
  void end_step(Effects& effects);

  std::shared_ptr<const Plan> plan_;
  const int32_t rank_;
  int32_t most_edges_ = 0;   // of any mode
  std::vector<int32_t> tie_out_, tie_in_, value_out_, value_in_;   // edges of the train mode

  StepDescriptor step_;
  bool running_ = false, failed_ = false, committed_ = false;
  uint64_t next_sequence_ = 0;
  double scale_ = 1;
  size_t next_ = 0;              // the next job to give out
  int32_t in_flight_ = 0;
  int32_t unreleased_ = 0;       // posts that were not released
  int32_t held_ = 0;             // messages that wait for a grant
  int32_t timed_ = 0;            // actions that times_ covers
  RankTimes times_;
  Marks arrived_[2];             // by parity of the sequence: a neighbour may be one step ahead
  Marks granted_, held_marks_, released_;
};

}  // namespace weft
