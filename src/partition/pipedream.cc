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

// Whether each state contains all states before it, in this order, and takes no less time.
bool forms_chain(std::span<const ModelState> states) {
  for (size_t j = 1; j < states.size(); ++j) {
    if (states[j].time < states[j - 1].time || states[j].before.size() != j) return false;
    if (!std::is_sorted(states[j].before.begin(), states[j].before.end())) return false;
  }
  return true;
}

// The best solutions for the states i..j on 1 to M machines of one level, for i below `rows`.
class Level {
 public:
  Level(std::span<const ModelState> states, const MachineLevel& level,
        const ReplicaOptions& options, std::vector<std::vector<double>> part, int32_t within,
        size_t rows)
      : states_(states),
        level_(level),
        options_(options),
        part_(std::move(part)),
        within_(within),
        cells_(rows),
        is_chain_(within == 1 && forms_chain(states)) {
    for (size_t i = 0; i < rows; ++i) solve(i);
  }

  const Cell& at(size_t i, size_t j, int32_t machines) const {
    return cells_[i][(j - i) * static_cast<size_t>(level_.machines) +
                     static_cast<size_t>(machines) - 1];
  }

  // The time of each part for the next level.
  std::vector<std::vector<double>> times() const {
    std::vector<std::vector<double>> out = part_;
    for (size_t i = 0; i < cells_.size(); ++i)
      for (size_t j = i; j < states_.size(); ++j) out[i][j - i] = at(i, j, level_.machines).time;
    return out;
  }

  // The stages of i..j on all machines, in order.
  std::vector<ReplicatedStage> stages(int32_t first, int32_t last) const {
    std::vector<ReplicatedStage> out;
    const auto i = static_cast<size_t>(first);
    for (int32_t machines = level_.machines, end = last;;) {
      const Cell& cell = at(i, static_cast<size_t>(end), machines);
      out.insert(out.begin(), {cell.split < 0 ? first : cell.split + 1, end, cell.replicas});
      if (cell.split < 0) return out;
      end = cell.split;
      machines -= cell.replicas;
    }
  }

 private:
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

  double sync(size_t i, size_t j, int32_t replicas) const {
    return 4.0 * (replicas - 1) * difference(&ModelState::param_bytes, i, j) /
           (level_.bandwidth * replicas);
  }

  Cell& cell(size_t i, size_t j, int32_t machines) {
    return cells_[i][(j - i) * static_cast<size_t>(level_.machines) +
                     static_cast<size_t>(machines) - 1];
  }

  void solve(size_t i) {
    const int32_t most = level_.machines;
    cells_[i].resize((states_.size() - i) * static_cast<size_t>(most));
    for (size_t j = i; j < states_.size(); ++j)
      for (int32_t m = 1; m <= (options_.straight ? 1 : most); ++m)
        if (fits(i, j, most - m, m))
          cell(i, j, m) = {(part_[i][j - i] + sync(i, j, m) / within_) / m, -1, m};
    for (int32_t m = 2; m <= most; ++m)
      for (size_t j = i + 1; j < states_.size(); ++j) {
        if (is_chain_) {
          split_chain(i, j, m);
          continue;
        }
        for (int32_t k : states_[j].before)
          if (static_cast<size_t>(k) >= i) split(i, j, m, static_cast<size_t>(k));
      }
  }

  // From short last stages to long ones, until they take longer than the best solution. Of equal
  // solutions the one with the smallest k is taken, as if k ascended.
  void split_chain(size_t i, size_t j, int32_t m) {
    Cell& best = cell(i, j, m);
    const Cell one = best;
    const int32_t most = options_.straight ? 1 : m - 1;
    for (size_t k = j; k-- > i && (part_[k + 1][j - k - 1] / most <= best.time);) {
      const Cell later = best;
      best = one;
      split(i, j, m, k);
      if (best.time > later.time || best.split < 0) best = later;
    }
  }

  void split(size_t i, size_t j, int32_t m, size_t k) {
    Cell& best = cell(i, j, m);
    for (int32_t replicas = 1; replicas <= (options_.straight ? 1 : m - 1); ++replicas) {
      const double before = cell(i, k, m - replicas).time;
      if (before == kNever || !fits(k + 1, j, level_.machines - m, replicas)) continue;
      // A part of a state that an inner level could not place has no time.
      const double own =
          k + 1 < part_.size() ? part_[k + 1][j - k - 1] : difference(&ModelState::time, k + 1, j);
      if (own == kNever) continue;
      double time = std::max(before, (own + sync(k + 1, j, replicas)) / replicas);
      double arriving = 2 * states_[k].output_bytes;
      if (options_.fed_bytes && i == 0 && m - replicas == 1)
        arriving += options_.fed_bytes(k + 1, j);
      time = std::max(time, arriving / (level_.bandwidth * replicas));
      if (j + 1 < states_.size())
        time = std::max(time, 2 * states_[j].output_bytes / (level_.bandwidth * replicas));
      if (time < best.time) best = {time, static_cast<int32_t>(k), replicas};
    }
  }

  std::span<const ModelState> states_;
  const MachineLevel level_;
  const ReplicaOptions& options_;
  std::vector<std::vector<double>> part_;  // [i][j - i]
  const int32_t within_;                   // machines of the level below
  std::vector<std::vector<Cell>> cells_;
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
  if (options.levels.empty())
    return Status(Code::invalid, "machines are in at least one level, found none");
  for (const MachineLevel& level : options.levels) {
    if (level.machines < 1 || level.machines > 4096)
      return Status(Code::invalid,
                    cat("a level has ", level.machines, " machines, expected 1 to 4096"));
    if (!(level.bandwidth > 0))
      return Status(Code::invalid,
                    cat("a level has bandwidth ", level.bandwidth, ", expected more than 0"));
  }
  if (!(options.memory >= 0))
    return Status(Code::invalid,
                  cat("memory is ", options.memory, ", expected 0 (no limit) or more"));
  return {};
}

}  // namespace

Result<ReplicatedPlan> partition_replicated(std::span<const ModelState> states,
                                            const ReplicaOptions& options) {
  WEFT_TRY(check(states, options));
  const size_t n = states.size();
  // The outermost level is solved only for the whole, the inner levels for every part.
  std::vector<std::vector<double>> part(n);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i; j < n; ++j) part[i].push_back(states[j].time - (i ? states[i - 1].time : 0));
  std::vector<Level> levels;
  int32_t within = 1;
  double replicated = states[n - 1].time;
  for (const MachineLevel& level : options.levels) {
    const bool outermost = &level == &options.levels.back();
    levels.emplace_back(states, level, options, std::move(part), within, outermost ? 1 : n);
    part = levels.back().times();
    const double sync = 4.0 * (level.machines - 1) * states[n - 1].param_bytes /
                        (level.bandwidth * level.machines) / within;
    replicated = (replicated + sync) / level.machines;
    within = level.machines;
  }
  ReplicatedPlan out;
  out.time = part[0][n - 1];
  out.one_machine = states[n - 1].time;
  out.data_parallel = replicated;
  if (out.time == kNever)
    return Status(Code::invalid, cat("no partition of ", n, " states fits the machines"));
  out.stages = {{0, static_cast<int32_t>(n) - 1, 1}};
  for (size_t l = levels.size(); l-- > 0;) {
    std::vector<ReplicatedStage> finer;
    for (const ReplicatedStage& outer : out.stages)
      for (ReplicatedStage inner : levels[l].stages(outer.first, outer.last)) {
        inner.replicas *= outer.replicas;
        finer.push_back(inner);
      }
    out.stages = std::move(finer);
  }
  return out;
}

}  // namespace weft
