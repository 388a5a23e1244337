// Cuts by the times and bytes of all stages together: for ranks with several stages, whose time and
// limit are those of the sum of the stages, and for tensors that skip stages. A search from stage
// to stage knows neither.
#pragma once

#include "partition/balance.h"
#include "partition/run_bytes.h"

namespace weft {

// Moves cuts one after another, as long as this reduces the excess over the limits or, within the
// limits, the bottleneck: the time of the busiest rank or of a cut.
class CutSearch {
 public:
  // `shares`: ranks that share a stage. `stages`: as for partition_for(). `cut_time`, `needed`: as
  // in ChainLoads. `bytes`: null if there are no limits.
  CutSearch(const OpNodes& ops, const Schedule& schedule, int32_t shares,
            std::vector<StageRoom> stages, CutTime cut_time, const std::vector<size_t>& needed,
            RunBytes* bytes);

  // Starts from these first nodes of stages, and returns where it ends. Several starts can be
  // tried.
  std::vector<size_t> start(std::vector<size_t> first_nodes);
  // Starts from any cuts that are within the limits, if a short search finds some.
  void try_all();

  const std::vector<size_t>& best() const { return best_; }
  bool fits() const { return judged_.excess == 0; }
  bool fits(const std::vector<size_t>& first_nodes) { return judge(first_nodes).excess == 0; }

 private:
  struct Judged {
    int64_t excess = 0;
    double slowest = 0;  // time of a rank or cut
    size_t rank = 0;     // the one with the largest excess; if no rank exceeds its limit, the
                         // busiest, or the one after the slowest cut
    bool operator<(const Judged& other) const {
      return std::pair(excess, slowest) < std::pair(other.excess, other.slowest);
    }
  };
  Judged judge(const std::vector<size_t>& first);
  void add_excess(const std::vector<size_t>& first, Judged& out);
  size_t nodes() const { return time_.size() - 1; }
  double time(size_t s, size_t begin, size_t end) const;
  bool has_needed(size_t begin, size_t end) const {
    return needed_before_[end] > needed_before_[begin];
  }
  // Whether the best cuts are so far above the limits that others are, too.
  bool is_far();
  // Adds first nodes that are within the limits, and returns the number of stages. If there are
  // none, it returns a stage: to begin later ones elsewhere does not help. `left`: nodes that may
  // be counted.
  size_t extend(std::vector<size_t>& first, int64_t& left);
  std::vector<RunOfNodes> stages_with_ends(size_t rank, const std::vector<size_t>& first) const;
  size_t last_stage(size_t rank) const;
  // The first node with which the last stage can be within the limit of its rank.
  size_t earliest_last(const std::vector<size_t>& first);
  std::vector<std::vector<size_t>> moves(const std::vector<size_t>& first, size_t rank) const;
  void add_shifted(const std::vector<size_t>& from, size_t first, size_t last, int64_t way,
                   std::vector<std::vector<size_t>>& out) const;

  std::vector<size_t> rank_of_stage_;
  size_t shares_;
  size_t ranks_;
  std::vector<StageRoom> stages_;
  std::vector<double> time_, forward_;  // of the nodes before each
  CutTime cut_time_;
  std::vector<size_t> needed_before_;  // the number of needed nodes before each
  RunBytes* bytes_;
  std::vector<size_t> best_;
  Judged judged_;
  int64_t left_ = int64_t{1} << 24;  // stages to judge, which limits the time of the search
};

}  // namespace weft
