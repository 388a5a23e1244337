// The engine of a rank: a state machine that takes events and returns effects. It owns no thread,
// socket or clock, and allocates nothing after its construction.
//
//            begin ──► clear, actions in program order ──► reduce ──► [ready → commit] ──► update
//            ──► finish ──► done
//
// A step that overlaps the one before it, which has no backward pass, begins when that one is done
// here: see StepDescriptor::overlaps.
//
// An action runs when its messages have arrived, the actions before it were given out, and the
// slots it writes were released. A segment of an asynchronous schedule has updates among its
// actions; the update at its end only makes the newest weights the first of the next one.
//
// The next job can be given out while one runs, so that the worker does not wait for the event
// loop.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/origin.h"
#include "base/result.h"
#include "engine/messages.h"
#include "plan/plan.h"

namespace weft {

class Engine {
 public:
  static constexpr int32_t kAhead = 2;  // jobs given out at once

  Engine(std::shared_ptr<const Plan> plan, int32_t rank);

  // Events. An event that violates the protocol returns
  // Code::protocol and has no effect. A step that overlaps begins when the one before it is
  // finished.
  Status begin(const StepDescriptor& step, Effects& effects);
  Status arrived(uint64_t sequence, int32_t edge, int32_t micro_batch, Effects& effects);
  Status granted(uint64_t sequence, int32_t edge, int32_t micro_batch, Effects& effects);
  Status released(int32_t edge, int32_t micro_batch, Effects& effects);
  // `squares`: after a reduce job, the sums of squares of the owned parameters, of a segment update
  // by update.
  Status ran(int32_t job, std::span<const double> squares, Effects& effects,
             const JobTime& time = {});
  Status commit(uint64_t sequence, double scale, Effects& effects);
  void abort();

  int32_t rank() const { return rank_; }
  bool idle() const { return !running_; }
  const StepDescriptor& step() const { return step_; }
  // The step that runs, or the one that overlaps it and is next: their messages may arrive. Null:
  // neither has this sequence.
  const StepDescriptor* find(uint64_t sequence) const {
    if (running_ && step_.sequence == sequence) return &step_;
    return !waiting_.empty() && waiting_.front().sequence == sequence ? &waiting_.front() : nullptr;
  }
  double scale() const { return scale_; }

  // What the rank does; unknown after a failure.
  Activity activity() const;

 private:
  Activity activity_of(Activity::State state, const Job& job) const;
  int32_t held_edge() const;
  // The state of 64 micro-batches of an edge, one bit each. They are adjacent, because one event
  // reads several of them.
  struct Marks {
    uint64_t arrived[2] = {0, 0};  // by parity of the sequence: a peer can be one step ahead
    uint64_t granted = 0, held = 0, released = 0;
  };
  // An edge that begins or ends here in any mode, and what it does here in each: kBegins, kEnds;
  // kGathers: begins here, and is posted as soon as it is granted.
  struct Port {
    int32_t edge;
    std::array<uint8_t, kModes> ends = {};
    std::array<MicroBatches, kModes> micro_batches = {};
  };
  static constexpr uint8_t kBegins = 1, kEnds = 2, kGathers = 4;
  // An edge as an action uses it, with what the engine needs of it at hand.
  struct Use {
    int32_t port;  // its index in ports_
    int32_t back;  // distance of two micro-batches that use the same slot at this end
    MicroBatches micro_batches;
    bool has(int32_t micro_batch) const { return micro_batches.has(micro_batch); }
  };
  // The edges of an action in Table::uses: those it waits for, posts and frees.
  struct Span {
    int32_t waits, gathers, posts, frees, sums, end;
    bool update;     // an action of kind O, or a job of its update
    int32_t slot;    // of what it gathers
    int32_t run;     // of its accumulators, or -1
    bool sums_only;  // what a replica without a micro-batch does of it: its sums are zeros
  };
  struct Given {
    Job job;
    bool deliver;
  };
  struct Table {
    std::vector<Use> uses;
    std::vector<Span> actions;  // per program of the mode
    bool gathers = false;
    std::vector<int32_t> asked;  // of a step with that many micro-batches: values to post
  };
  // A bucket of the train mode.
  struct Reduction {
    int32_t job = 0;
    int32_t missing = 0;  // sums and messages
    bool given = false;
    // Of a run: that, the bucket of a later one, and whether it follows the bucket of another.
    int32_t run = -1, next = -1;
    bool follows = false;
  };

  const ModePlan& mode() const { return plan_->mode(step_.mode); }
  const RankProgram& program() const { return mode().ranks[static_cast<size_t>(rank_)]; }
  std::span<const Use> uses(int32_t begin, int32_t end) const {
    return {table_->uses.data() + begin, static_cast<size_t>(end - begin)};
  }
  // Of a job that belongs to an action.
  const Span& span_of(const Job& job) const {
    return table_->actions[static_cast<size_t>(job.program)];
  }
  void make_ports();
  void make_room_for_early_grants();
  void make_table(const ModePlan& mode);
  void count_asked(const ModePlan& mode);
  void make_reductions(const RankProgram& program);
  int32_t port_of(int32_t edge) const;  // -1: the edge neither begins nor ends here
  Marks& marks(int32_t port, int32_t mb) {
    return marks_[static_cast<uint32_t>(mb) / 64 * ports_.size() + static_cast<size_t>(port)];
  }
  const Marks& marks(int32_t port, int32_t mb) const {
    return const_cast<Engine*>(this)->marks(port, mb);
  }
  static uint64_t bit(int32_t mb) { return uint64_t{1} << (static_cast<uint32_t>(mb) % 64); }
  // Whether a message of the edge can arrive (`end` is kEnds) or be granted (kBegins) here;
  // refusal() returns the reason if not.
  bool fits(int32_t port, int32_t micro_batch, uint8_t end) const;
  Status refusal(int32_t edge, int32_t micro_batch, bool incoming) const;
  bool skipped(const Job& job) const;
  int32_t updates() const;  // of the step, by this rank
  bool here(int32_t port, int32_t mb) const {
    return marks(port, mb).arrived[step_.sequence & 1] & bit(mb);
  }
  // The update whose result the action reads, if another rank makes it in this segment; or -1.
  int32_t uses_update(const Job& action) const;
  int32_t missing(const Job& job) const;  // an edge that has not arrived, or -1
  bool ready(const Job& job);
  bool sums_are_free(const Job& clear) const;
  bool await(const uint64_t& marks, int32_t mb);
  void move_to(size_t job);  // makes it the next one
  Status advance(Effects& effects);
  void give(const Job& job, int32_t index, Effects& effects);
  void gather(Effects& effects);
  Status check(const StepDescriptor& step) const;
  Status start(const StepDescriptor& step, Effects& effects);
  void open_edges(const StepDescriptor& step, const StepDescriptor* before, bool unused,
                  Effects& effects) const;
  Status take_early(uint64_t sequence, int32_t edge, int32_t micro_batch);
  Status take_grant(int32_t edge, int32_t micro_batch, Effects& effects);
  void begin_reductions();
  void complete(int32_t bucket);              // one sum or message of it
  void leave(int32_t run, Effects& effects);  // one use of its slot is over
  bool has_slot(int32_t run) const {
    return run < kRunSlots || uses_of_run_[static_cast<size_t>(run - kRunSlots)] == 0;
  }
  // The backward of a replica without a micro-batch, if accumulators are not kept.
  bool adds_zeros(const Job& job) const;
  // Whether that is the last micro-batch of the step here.
  bool is_last(int32_t micro_batch) const {
    return micro_batch + own_.stride >= std::min(own_.end, step_.micro_batches);
  }
  bool may_deliver(const Job& job) const;
  void leave_action(const Job& job, bool delivered, Effects& effects);
  Status finish_job(const Job& job, bool delivered, Effects& effects);
  void offer(int32_t port, int32_t micro_batch, bool delivered,
             Effects& effects);  // post it, or hold it until there is a grant
  int32_t edge(int32_t port) const { return ports_[static_cast<size_t>(port)].edge; }
  Status end_step(Effects& effects);

  std::shared_ptr<const Plan> plan_;
  const int32_t rank_;

  // The data of every event, in few cache lines: a simulation runs thousands of engines in turn.
  bool running_ = false, failed_ = false, committed_ = false;
  int32_t in_flight_ = 0;
  int32_t unreleased_ = 0;             // posts that were not released
  int32_t held_ = 0;                   // messages that wait for a grant
  int32_t timed_ = 0;                  // actions that times_ covers
  size_t next_ = 0;                    // the next job to give out
  const uint64_t* awaited_ = nullptr;  // the mark that it waits for, if it is known to wait
  uint64_t awaited_bit_ = 0;
  Job upcoming_{};                     // that job
  std::array<Given, kAhead> given_{};  // those in flight, oldest first
  std::span<const Job> jobs_;          // the program of the step's mode
  const Table* table_ = nullptr;
  std::vector<Port> ports_;   // ascending
  std::vector<Marks> marks_;  // [micro-batch / 64][port]: those of one time lie together
  StepDescriptor step_;

  RankTimes times_;
  int64_t reducing_ = 0;  // the time of reductions since the last action
  uint64_t next_sequence_ = 0;
  double scale_ = 1;
  std::array<Table, kModes> tables_;
  // Edges of the train mode. unsent_: of tie_out_, those that no action posts.
  std::vector<int32_t> tie_out_, unsent_, sum_in_, value_out_, value_in_;
  std::vector<Reduction> reductions_;
  std::vector<int32_t> reducible_;    // reductions with all inputs; the last one is given out first
  std::vector<int32_t> bucket_of_;    // per port: that waits for it, or -1
  std::vector<int32_t> run_of_;       // per port: that it leaves from, or -1
  std::vector<int32_t> uses_of_run_;  // per run: sums that have not left, and the reduction
  size_t gather_next_ = 0;            // the next job whose values no slot was free for
  std::array<bool, kGatherSlots> occupied_ = {};
  struct Grant {
    uint64_t sequence;
    int32_t edge, micro_batch;
  };
  std::vector<Grant> early_grants_;      // of later steps, from ranks that have begun them
  std::vector<StepDescriptor> waiting_;  // steps that overlap and have not begun here, ascending
  MicroBatches own_ = {};                // of the replica
  int32_t owed_ = 0;                     // values that will be requested before the end of the step
  int32_t unreduced_ = 0;                // reductions of the step that have not run
  bool overlaps_ = false;                // reductions run between actions
};

}  // namespace weft
