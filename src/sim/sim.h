// The simulator: the engines and the controller that users run, under a virtual clock. A kernel
// takes the cost it is given, a message the latency and bandwidth of its link; values are
// provenance digests, or nothing at all when only time is asked for.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "node/effect_router.h"
#include "sim/events.h"
#include "sim/provenance.h"

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
  double overhead = 0;  // of a rank before each job: handing it out, and taking notice of its end
  SimLink link;         // between any two ranks,
  std::function<SimLink(int32_t from, int32_t to)> link_of = {};  // unless this says otherwise
};

struct SimSpan {
  int32_t rank, job;
  double begin, end;
};

// What one rank did in a step.
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

// Times count from the begin of the step.
struct SimStep {
  StepResult result;
  double makespan = 0;  // until the controller has heard of everything
  double commit = 0;    // when the controller let the weights change; without an update, when the
                        // last rank was ready to
  std::vector<SimRank> ranks;
  std::vector<SimTraffic> traffic;  // between different ranks, tensors alone; ascending
  std::vector<SimSpan> spans;       // in the order they began, if asked for
  std::vector<std::vector<Digest>>
      deliveries;  // [sink][micro-batch], in the order of the mode's sink edges
};

class Sim {
 public:
  // `values`: keep provenance digests (and check every place); false: time alone.
  Sim(std::shared_ptr<const Plan> plan, SimCosts costs, bool values);
  ~Sim();

  void keep_spans() { keep_spans_ = true; }
  // Errors: what an engine refused, or that nothing can happen any more, with what every rank waits
  // for.
  Result<SimStep> step(const StepDescriptor& step);
  const DigestWorker& worker(int32_t rank) const { return workers_[static_cast<size_t>(rank)]; }

 private:
  // One direction between two ranks.
  struct Line {
    int32_t from, to;
    SimLink link;
    double free = 0;  // when the last message has left
    int64_t messages = 0, bytes = 0;
  };
  struct Heard {
    Control control;
    int32_t from;
  };
  struct Rank;

  SimLink link_between(int32_t from, int32_t to) const;
  int32_t line_to(int32_t from, int32_t to);
  void fail(const Status& status);
  int32_t keep(const Digest& value);
  Status handle(const SimEvent& event);
  Status arrive(const SimEvent& event);
  void send(const Route& route, int32_t micro_batch, const Digest& value);
  void start(Rank& on, int32_t job);
  void begin_outcome();
  Status end_outcome(double begin);
  const ModePlan& mode() const { return plan_->mode(step_.mode); }

  std::shared_ptr<const Plan> plan_;
  SimCosts costs_;
  const bool values_;
  bool keep_spans_ = false;
  std::vector<DigestWorker> workers_;
  std::vector<Rank> ranks_;
  std::vector<Line> lines_;  // by `from`
  SimEvents events_;
  std::vector<Heard> heard_;     // control messages of the step
  std::vector<Digest> digests_;  // values on their way
  std::vector<int32_t> free_digests_;
  std::vector<double>
      zeros_;  // without values: the norms of all parameters; a message on its way borrows them
  StepDescriptor step_;
  SimStep outcome_;
  bool committed_ = false;
  Status failure_;
  bool over_ = true;
};

}  // namespace weft
