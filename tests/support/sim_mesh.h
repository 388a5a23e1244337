// A whole mesh in one process: the nodes of the processes of a run (engine, controller, links) over
// a simulated network with a virtual clock, with provenance digests as tensors. Faults can be
// injected, and a seed reproduces a failure.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "node/node.h"
#include "support/digest_worker.h"
#include "support/sim_network.h"

namespace weft::test {

struct SimMeshSettings {
  uint64_t seed = 0;
  SimFaults faults;
  LinkTimes times;
  LinkTime longest_job = 0;  // a job takes 0 to this number of milliseconds
  // The hello of each rank; empty: all are equal.
  std::function<Identity(int32_t rank)> identity;
};

class SimMesh {
 public:
  struct Rank;

  SimMesh(std::shared_ptr<const Plan> plan, SimMeshSettings settings);
  ~SimMesh();

  // Connects every pair at once, and starts.
  void start();
  // Runs until this time, or until `until`, which is called after each event, returns true.
  void run(LinkTime end, const std::function<bool()>& until = {});
  // Rank 0 begins a step; while others run, one that overlaps. Steps end in that order.
  Status begin(const StepDescriptor& step);
  void open_sinks() { node(0).open_sinks(now_); }
  size_t steps_over() const { return outcomes_.size(); }
  bool step_is_over() const { return outcomes_.size() == steps_.size(); }
  const DigestStep& outcome() const { return outcomes_.back(); }
  const DigestStep& outcome(size_t sequence) const { return outcomes_[sequence]; }
  void bye() { node(0).bye(now_); }

  void kill(int32_t rank);
  void stall(int32_t rank);  // its event loop stops; no other rank is informed
  void cut(int32_t a, int32_t b) { network_.cut(a, b, now_); }
  // Its worker returns an error from the next job.
  void break_worker(int32_t rank);
  SimNetwork& network() { return network_; }

  LinkTime now() const { return now_; }
  int32_t ranks() const { return static_cast<int32_t>(ranks_.size()); }
  bool alive(int32_t rank) const { return !gone_.contains(rank); }
  RankNode& node(int32_t rank);
  const DigestWorker& worker(int32_t rank) const;
  LinkTime failed_at(int32_t rank) const;  // kNever: it has not
  bool closed(int32_t rank) const;
  bool joined() const { return joined_; }  // as rank 0 knows

 private:
  friend struct Rank;
  struct Job {
    int32_t rank, job;  // -1: a copy
    StepDescriptor step = {};
    double scale = 1;
    MessageAt at = {};  // of a copy
    LinkTime end = 0;
    uint64_t order = 0;
  };
  const StepDescriptor& step(uint64_t sequence) const {
    return steps_[static_cast<size_t>(sequence)];
  }
  void step_event(const SimNetwork::Event& event);
  void finish(const Job& job);
  LinkTime next_tick(int32_t* rank) const;

  std::shared_ptr<const Plan> plan_;
  const SimMeshSettings settings_;
  std::mt19937_64 rng_;
  SimNetwork network_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Job> jobs_;   // in progress, by end
  std::set<int32_t> gone_;  // killed or stalled
  LinkTime now_ = 0;
  uint64_t order_ = 0;
  std::vector<StepDescriptor> steps_;  // that rank 0 began, by sequence
  std::deque<DigestStep> outcomes_;    // of those that are over
  bool joined_ = false;
};

}  // namespace weft::test
