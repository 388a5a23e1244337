// The simulator: the engines and the controller of real runs, with a virtual clock. A kernel takes
// its given cost, and a message the time of the latency and bandwidth of its link.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "node/effect_router.h"
#include "sim/events.h"

namespace weft {

struct SimLink {
  double latency = 0;         // one way, per message
  double bytes_per_time = 0;  // 0: unlimited. Messages of one direction follow one another
  friend bool operator==(const SimLink&, const SimLink&) = default;
};

// Times are in any unit.
struct SimCosts {
  // Of one job on a rank.
  std::function<double(int32_t rank, const RankProgram& program, const Job& job)> job;
  double overhead = 0;  // time of a rank before each job: giving it out, and handling its end
  SimLink link;         // between any two ranks,
  std::function<SimLink(int32_t from, int32_t to)> link_of = {};  // unless this is set
};

struct SimSpan {
  int32_t rank, job;
  double begin, end;
};

// The activity of one rank in a step.
struct SimRank {
  double first = 0, last = 0;  // begin of its first action, end of its last
  double busy = 0;             // in actions
  double before_commit = 0;    // in all jobs that began before the commit
  double work = 0;             // in all jobs, and between them
  int64_t actions = 0;
};

struct SimTraffic {
  int32_t from, to;  // ranks
  int64_t messages = 0, bytes = 0;
};

// Times are from the start of the step.
struct SimStep {
  StepResult result;
  double makespan = 0;  // until the controller has received all results
  double commit = 0;    // time of the commit; without an update, the time at which the last
                        // rank was ready
  std::vector<SimRank> ranks;
  std::vector<SimTraffic> traffic;  // between different ranks, tensors only; ascending
  std::vector<SimSpan> spans;       // in the order of their start, if requested
};

// The contents of tensors, for tests. Each event of a step changes them.
class SimValues {
 public:
  virtual ~SimValues() = default;
  // A job has ended. Returns the squares of norms, see EffectRouter::ran().
  virtual Result<std::span<const double>> ran(int32_t rank, const StepDescriptor& step,
                                              double scale, int32_t job) = 0;
  // A message leaves a rank, or arrives at one. Returns the loss, if it is one.
  virtual Status left(int32_t rank, const StepDescriptor& step, int32_t edge,
                      int32_t micro_batch) = 0;
  virtual Result<double> arrived(int32_t rank, const StepDescriptor& step, int32_t edge,
                                 int32_t micro_batch) = 0;
  // The controller has all deliveries of the micro-batch.
  virtual Status delivered(const StepDescriptor& step, int32_t micro_batch) = 0;
};

class Sim {
 public:
  // Without values, tensors have none, and a loss is 0.
  Sim(std::shared_ptr<const Plan> plan, SimCosts costs, SimValues* values = nullptr);
  ~Sim();

  void keep_spans() { keep_spans_ = true; }
  // Errors: an event that an engine refused, or a deadlock with what every rank waits for.
  Result<SimStep> step(const StepDescriptor& step);

 private:
  // One direction between two ranks.
  struct Line {
    int32_t from, to;
    SimLink link;
    double free = 0;  // when the last message has been sent
    int64_t messages = 0, bytes = 0;
  };
  struct Received {
    Control control;
    int32_t from;
  };
  struct Rank;

  SimLink link_between(int32_t from, int32_t to) const;
  int32_t line_to(int32_t from, int32_t to);
  void fail(const Status& status);
  Status handle(const SimEvent& event);
  Status arrive(const SimEvent& event);
  void send(const Route& route, int32_t micro_batch);
  void start(Rank& on, int32_t job);
  void begin_outcome();
  Status end_outcome(double begin);
  const ModePlan& mode() const { return plan_->mode(step_.mode); }

  std::shared_ptr<const Plan> plan_;
  SimCosts costs_;
  SimValues* const values_;
  bool keep_spans_ = false;
  std::vector<Rank> ranks_;
  std::vector<Line> lines_;  // by `from`
  SimEvents events_;
  std::vector<Received> received_;  // control messages of the step
  std::vector<double>
      zeros_;  // without values: the norms of all parameters, which messages in transit borrow
  StepDescriptor step_;
  SimStep outcome_;
  bool committed_ = false;
  Status failure_;
  bool over_ = true;
};

}  // namespace weft
