// The simulator: the engines and the controller that users run, under a virtual clock. A kernel takes the cost it is given, a message the
// latency and bandwidth of its link; values are provenance digests, or nothing at all when only time is asked for.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/controller.h"
#include "engine/engine.h"
#include "sim/provenance.h"

namespace weft {

struct SimCosts {
  // Time of one job on a rank; times are in any unit.
  std::function<double(int32_t rank, const RankProgram& program, const Job& job)> job;
  double latency = 0;             // one way, per message
  double bytes_per_time = 0;      // of a link; 0: unlimited
};

struct SimSpan {
  int32_t rank, job;
  double begin, end;
};

struct SimStep {
  StepResult result;
  double makespan = 0;
  std::vector<SimSpan> spans;     // in the order they ended
  std::vector<std::vector<Digest>> deliveries;   // [sink][micro-batch], in the order of the mode's sink edges
};

class Sim {
 public:
  // `values`: keep provenance digests (and check every place); false: time alone.
  Sim(std::shared_ptr<const Plan> plan, SimCosts costs, bool values);
  ~Sim();

  // Errors: what an engine refused, or that nothing can happen any more, with what every rank waits for.
  Result<SimStep> step(const StepDescriptor& step);
  const DigestWorker& worker(int32_t rank) const { return workers_[static_cast<size_t>(rank)]; }

 private:
  struct Event {
    enum class Kind : uint8_t { ran, arrived, granted, released, control } kind;
    int32_t rank;
    int32_t edge_or_job = 0, micro_batch = 0, from = 0;
    Control control;
    Digest value;
    double time = 0;
    uint64_t order = 0;
  };
  class RankEffects;
  class MainEffects;

  void push(Event event, double time);
  Status handle(const Event& event);
  void send(int32_t from, int32_t edge, int32_t micro_batch, const Digest& value);
  void start(int32_t rank, int32_t job);

  std::shared_ptr<const Plan> plan_;
  SimCosts costs_;
  const bool values_;
  std::vector<DigestWorker> workers_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<std::unique_ptr<RankEffects>> effects_;
  std::unique_ptr<MainEffects> main_;
  Controller controller_;
  std::vector<Event> heap_;
  std::vector<double> worker_free_;            // per rank
  std::vector<std::vector<double>> link_free_;   // [from][to]
  double now_ = 0;
  uint64_t order_ = 0;
  std::vector<double> zeros_;                  // without values: the norms of all parameters; a message on its way borrows them
  StepDescriptor step_;
  SimStep outcome_;
  Status failure_;
  bool over_ = true;
};

}  // namespace weft
