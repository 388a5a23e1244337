#include "partition/pipedream.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"

namespace weft {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The best solution for a run of states on some machines, and the position of its last stage.
struct Cell {
  double time = kNever;
  int32_t split = -1;    // last state before the last stage; -1: one stage
  int32_t replicas = 0;  // of the last stage
};

// The best solutions for the states 0..j on 1 to all machines.
class Search {
 public:
  Search(std::span<const ModelState> states, const ReplicaOptions& options)
      : states_(states),
        options_(options),
        cells_(states.size() * static_cast<size_t>(options.machines)),
        is_chain_(std::all_of(states.begin(), states.end(),
                              [](const ModelState& state) { return state.before.empty(); })) {
    solve();
  }

  // Of all states on all machines.
  double time() const { return cells_.back().time; }

  std::vector<ReplicatedStage> stages() const {
    std::vector<ReplicatedStage> out;
    for (int32_t machines = options_.machines, end = static_cast<int32_t>(states_.size()) - 1;;) {
      const Cell& cell = cells_[index(static_cast<size_t>(end), machines)];
      out.insert(out.begin(), {cell.split + 1, end, cell.replicas});
      if (cell.split < 0) return out;
      end = cell.split;
      machines -= cell.replicas;
    }
  }

 private:
  size_t index(size_t j, int32_t machines) const {
    return j * static_cast<size_t>(options_.machines) + static_cast<size_t>(machines) - 1;
  }
  Cell& cell(size_t j, int32_t machines) { return cells_[index(j, machines)]; }

  // Of a stage with the states i..j.
  double difference(double ModelState::*what, size_t i, size_t j) const {
    return states_[j].*what - (i ? states_[i - 1].*what : 0);
  }

  bool fits(size_t i, size_t j, int32_t behind, int32_t replicas) const {
    if (options_.memory == 0) return true;
    const double versions = std::ceil(static_cast<double>(behind) / replicas);
    return versions * (difference(&ModelState::kept_bytes, i, j) +
                       difference(&ModelState::param_bytes, i, j)) <=
           options_.memory;
  }

  double time_of(size_t i, size_t j, int32_t replicas) const {
    const double sync = 4.0 * (replicas - 1) * difference(&ModelState::param_bytes, i, j) /
                        (options_.bandwidth * replicas);
    return (difference(&ModelState::time, i, j) + sync) / replicas;
  }

  void solve() {
    const int32_t most = options_.machines;
    for (size_t j = 0; j < states_.size(); ++j)
      for (int32_t m = 1; m <= (options_.straight ? 1 : most); ++m)
        if (fits(0, j, most - m, m)) cell(j, m) = {time_of(0, j, m), -1, m};
    for (int32_t m = 2; m <= most; ++m)
      for (size_t j = 1; j < states_.size(); ++j) {
        if (is_chain_) {
          split_chain(j, m);
          continue;
        }
        for (int32_t k : states_[j].before) split(j, m, static_cast<size_t>(k));
      }
  }

  // From short last stages to long ones, until they take longer than the best solution. Of equal
  // solutions the one with the smallest k is taken, as if k ascended.
  void split_chain(size_t j, int32_t m) {
    Cell& best = cell(j, m);
    const Cell one = best;
    const int32_t most = options_.straight ? 1 : m - 1;
    for (size_t k = j; k-- > 0 && (difference(&ModelState::time, k + 1, j) / most <= best.time);) {
      const Cell later = best;
      best = one;
      split(j, m, k);
      if (best.time > later.time || best.split < 0) best = later;
    }
  }

  void split(size_t j, int32_t m, size_t k) {
    Cell& best = cell(j, m);
    for (int32_t replicas = 1; replicas <= (options_.straight ? 1 : m - 1); ++replicas) {
      const double before = cell(k, m - replicas).time;
      if (before == kNever || !fits(k + 1, j, options_.machines - m, replicas)) continue;
      double time = std::max(before, time_of(k + 1, j, replicas));
      double arriving = 2 * states_[k].output_bytes;
      if (options_.fed_bytes && m - replicas == 1) arriving += options_.fed_bytes(k + 1, j);
      time = std::max(time, arriving / (options_.bandwidth * replicas));
      if (j + 1 < states_.size())
        time = std::max(time, 2 * states_[j].output_bytes / (options_.bandwidth * replicas));
      if (time < best.time) best = {time, static_cast<int32_t>(k), replicas};
    }
  }

  std::span<const ModelState> states_;
  const ReplicaOptions& options_;
  std::vector<Cell> cells_;  // by index()
  const bool is_chain_;
};

Status check(std::span<const ModelState> states, const ReplicaOptions& options) {
  if (states.empty()) return Status(Code::invalid, "a model has at least one state, found 0");
  for (size_t s = 0; s < states.size(); ++s) {
    const ModelState& state = states[s];
    for (double v : {state.time, state.kept_bytes, state.param_bytes, state.output_bytes})
      if (!(v >= 0) || std::isinf(v))
        return Status(Code::invalid,
                      cat("state ", s, " has ", v, ", expected finite numbers from 0"));
    for (int32_t b : state.before)
      if (b < 0 || static_cast<size_t>(b) >= s)
        return Status(Code::invalid,
                      cat("state ", s, " contains state ", b, ", expected one before it"));
  }
  if (options.machines < 1 || options.machines > 4096)
    return Status(Code::invalid,
                  cat("there are ", options.machines, " machines, expected 1 to 4096"));
  if (!(options.bandwidth > 0))
    return Status(Code::invalid,
                  cat("the bandwidth is ", options.bandwidth, ", expected more than 0"));
  if (!(options.memory >= 0))
    return Status(Code::invalid,
                  cat("memory is ", options.memory, ", expected 0 (no limit) or more"));
  return {};
}

}  // namespace

Result<ReplicatedPlan> partition_replicated(std::span<const ModelState> states,
                                            const ReplicaOptions& options) {
  WEFT_TRY(check(states, options));
  const Search search(states, options);
  if (search.time() == kNever)
    return Status(Code::invalid,
                  cat("no partition of ", states.size(), " states fits the machines"));
  return ReplicatedPlan{.stages = search.stages(), .time = search.time()};
}

}  // namespace weft
