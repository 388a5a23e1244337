#include "partition/balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/text.h"
#include "partition/least_double.h"

namespace weft {

BytesOfRun BytesOfRun::capped(int64_t cap) const {
  BytesOfRun out = *this;
  if (most - cap > all - limit) {
    out.all = most;
    out.limit = cap;
  }
  out.more = more && least <= cap;
  return out;
}

namespace {

// What stages and cuts may take at most.
struct Limits {
  double stage = 0, cut = 0;
};

// The search relies on one property: a run of nodes does not take longer than a run that contains
// it. Rounding preserves this order for sums of doubles that are not negative, so that the search
// is exact. Bytes do not have this property: a longer run may end at a cut with fewer bytes.
class Chain {
 public:
  static Result<Chain> make(const NodeCosts& nodes, const ChainLoads& loads,
                            std::span<const StageRoom> stages) {
    Chain chain;
    chain.stages_ = stages;
    const size_t n = nodes.cost.size();
    chain.bytes_ = &loads.bytes;
    chain.cut_time_ = &loads.cut_time;
    chain.cut_bytes_ = loads.cut_bytes;
    for (const double bytes : loads.cut_bytes) chain.mean_cut_ += bytes / static_cast<double>(n);
    chain.time_.resize(n + 1);
    for (size_t v = 0; v < n; ++v) chain.time_[v + 1] = chain.time_[v] + nodes.cost[v];
    chain.time_again_ = chain.time_;
    double again = 0;
    for (size_t v = 0; v < loads.forward.size(); ++v) {
      again += loads.forward[v];
      chain.time_again_[v + 1] += again;
    }
    chain.needed_.assign(loads.needed.begin(), loads.needed.end());
    for (size_t v = 0; loads.needed.empty() && v < n; ++v) chain.needed_.push_back(v);
    chain.first_end_.assign(n, n + 1);
    for (size_t v = 0, i = 0; v < n; ++v) {
      if (i < chain.needed_.size() && chain.needed_[i] < v) ++i;
      if (i < chain.needed_.size()) chain.first_end_[v] = chain.needed_[i] + 1;
    }
    for (const StageRoom& stage : stages) {
      if (!(stage.speed > 0) || std::isinf(stage.speed))
        return Status(Code::invalid, cat("rank ", stage.rank, " has speed ", stage.speed,
                                         ", expected a finite number above 0"));
      chain.fastest_ = std::max(chain.fastest_, stage.speed);
    }
    return chain;
  }

  size_t nodes() const { return time_.size() - 1; }
  double time(size_t s, size_t begin, size_t end) const {
    const std::vector<double>& sums = stages_[s].recomputes ? time_again_ : time_;
    return (sums[end] - sums[begin]) / stages_[s].speed;
  }
  BytesOfRun bytes(size_t s, size_t begin, size_t end) const {
    return bytes_ && *bytes_ ? (*bytes_)({s, begin, end}).capped(cap_) : BytesOfRun();
  }
  Chain without_bytes() const {
    Chain out = *this;
    out.bytes_ = nullptr;
    return out;
  }
  // With a limit for all ranks, too.
  Chain capped(int64_t cap) const {
    Chain out = *this;
    out.cap_ = cap;
    return out;
  }
  bool fits(const std::vector<int32_t>& cuts) const {
    bool fits = true;
    each_stage(cuts, [&](size_t s, size_t begin, size_t end) {
      fits = fits && bytes(s, begin, end).fits();
    });
    return fits;
  }
  // The bytes of the largest rank.
  int64_t most_bytes(const std::vector<int32_t>& cuts) const {
    int64_t most = 0;
    each_stage(cuts, [&](size_t s, size_t begin, size_t end) {
      most = std::max(most, bytes(s, begin, end).most);
    });
    return most;
  }
  bool has_cut_times() const { return static_cast<bool>(*cut_time_); }

  // Whether the messages to that stage take at most the limit.
  bool passable(const RunOfNodes& run, double limit) const { return cut_time(run) <= limit; }
  bool is_within(const RunOfNodes& run, Limits limits) const {
    return time(run.stage, run.begin, run.end) <= limits.stage && passable(run, limits.cut);
  }

  // Per stage: the last node at which it can begin. The stages before it take no more time, and
  // each stage has a node.
  std::vector<size_t> last_begins(double limit) const {
    std::vector<size_t> out = {0};
    for (size_t s = 0; s + 1 < stages_.size(); ++s) {
      const size_t most = nodes() - (stages_.size() - 1 - s);
      size_t end = out[s];
      while (end < most && time(s, out[s], end + 1) <= limit) ++end;
      out.push_back(end);
    }
    return out;
  }

  // From the last stage to the first: next[s][v] is the first node from v on, up to last_begins(),
  // at which stage s can begin so that it and the later stages contain the remaining nodes;
  // nodes() + 1 if there is none. Keeps all rows if `rows` is given, the last one for the end of
  // the last stage. True if stage 0 can begin at node 0.
  bool solve(Limits limits, std::vector<std::vector<size_t>>* rows) const {
    const size_t n = nodes(), p = stages_.size(), none = n + 1;
    const std::vector<size_t> last = last_begins(limits.stage);
    std::vector<size_t> behind(n + 2, n), here;  // after the last stage only the end can follow
    behind[n + 1] = none;
    if (rows) rows->assign(p + 1, behind);
    for (size_t s = p; s-- > 0;) {
      here.assign(n + 2, none);
      size_t too_far = none;
      for (size_t v = last[s] + 1; v-- > s;) {
        const bool good =
            passable({s, v, v + 1}, limits.cut) && end_of(s, v, limits, behind, too_far) <= n;
        here[v] = good ? v : here[v + 1];
      }
      std::fill(here.begin(), here.begin() + static_cast<std::ptrdiff_t>(s), here[s]);
      behind.swap(here);
      if (rows) (*rows)[s] = behind;
    }
    return behind[0] == 0;
  }

  // The first node at which stage s can end, if it begins at v, and the next can begin; nodes() + 1
  // if there is none. No stage that begins at v or before can end at `too_far` or behind it.
  size_t end_of(size_t s, size_t v, Limits limits, const std::vector<size_t>& behind,
                size_t& too_far) const {
    for (size_t end = behind[first_end_[v]]; end < too_far && is_within({s, v, end}, limits);
         end = behind[end + 1]) {
      const BytesOfRun run = bytes(s, v, end);
      if (run.fits()) return end;
      if (!run.within()) too_far = end;
      if (!run.more) break;
    }
    return nodes() + 1;
  }

  // The partition with the earliest first cut, then second cut, and so on; empty if there is none.
  std::optional<std::vector<int32_t>> earliest(Limits limits) const {
    std::vector<std::vector<size_t>> rows;
    if (!solve(limits, &rows)) return {};
    std::vector<int32_t> cuts;
    for (size_t s = 1, begin = 0; s < stages_.size(); ++s) {
      size_t too_far = nodes() + 1;
      begin = end_of(s - 1, begin, limits, rows[s], too_far);
      cuts.push_back(static_cast<int32_t>(begin));
    }
    return cuts;
  }

  // The partition with the least sum over its stages of cost(); of several, the one with the
  // earliest first cut, then second cut, and so on. There is one within the limits. From the last
  // stage to the first: the least sum of a stage that begins at a node and of all later ones.
  std::vector<int32_t> best(Limits limits) const {
    std::vector<std::vector<size_t>> rows;
    solve(limits, &rows);
    const size_t n = nodes(), p = stages_.size();
    std::vector<std::vector<size_t>> ends(p, std::vector<size_t>(n, n));
    std::vector<double> behind(n + 1, INFINITY), here;
    behind[n] = 0;
    for (size_t s = p; s-- > 0;) {
      here.assign(n + 1, INFINITY);
      for (size_t v = rows[s][s]; v < n; v = rows[s][v + 1])
        here[v] = least_sum({s, v, n}, limits, rows[s + 1], behind, ends[s][v]);
      behind.swap(here);
    }
    std::vector<int32_t> cuts;
    for (size_t s = 0, begin = 0; s + 1 < p; ++s) {
      begin = ends[s][begin];
      cuts.push_back(static_cast<int32_t>(begin));
    }
    return cuts;
  }

  double bound() const {
    double most = 0;
    for (size_t s = 0; s < stages_.size(); ++s) {
      most = std::max(most, time(s, 0, nodes()));
      for (size_t v = 0; v < nodes(); ++v) most = std::max(most, cut_time({s, v, nodes()}));
    }
    return most;
  }

  // No partition fits, for any time: fills the stages from the front to find the first one that
  // does not fit.
  Status refusal() const {
    const size_t n = nodes(), p = stages_.size();
    size_t begin = 0;
    const auto fault = [&](size_t s, size_t end, const char* why) {
      const BytesOfRun run = bytes(s, begin, end);
      return Status(Code::invalid,
                    cat("no partition fits: rank ", stages_[s].rank, " needs ", bytes_text(run.all),
                        " ", why, ", the limit is ", bytes_text(run.limit)));
    };
    for (size_t s = 0; s + 1 < p; ++s) {
      const size_t last = needed_[needed_.size() - (p - 1 - s)];  // each later stage needs a node
      size_t end = begin;
      for (size_t e = first_end_[begin]; e <= last; ++e) {
        const BytesOfRun run = bytes(s, begin, e);
        if (run.fits()) end = e;
        if (!run.more) break;
      }
      if (end == begin) return fault(s, first_end_[begin], "for the smallest possible stage");
      begin = end;
    }
    return fault(p - 1, n,
                 p == 1 ? "for all nodes" : "for the nodes that do not fit on the ranks before it");
  }

 private:
  template <typename Visit>
  void each_stage(const std::vector<int32_t>& cuts, Visit&& visit) const {
    size_t begin = 0;
    for (size_t s = 0; s < stages_.size(); ++s) {
      const size_t end = s < cuts.size() ? static_cast<size_t>(cuts[s]) : nodes();
      visit(s, begin, end);
      begin = end;
    }
  }

  // Of a stage and the cut at its end. The squares of times have the least sum if all stages take
  // the same time. The narrowest cuts are taken where that changes times by little, such as those
  // before blocks, and no stage is small because its cut is narrow.
  double cost(const RunOfNodes& run, double mean) const {
    constexpr double kOfCuts = 0.2;
    const double share = mean > 0 ? time(run.stage, run.begin, run.end) / mean : 0;
    const bool is_cut = run.end < nodes() && mean_cut_ > 0;
    return share * share * (stages_[run.stage].speed / fastest_) +
           (is_cut ? kOfCuts * (cut_bytes_[run.end] / mean_cut_) : 0);
  }

  // About the mean time of the stages beside the slowest one.
  double mean_time(Limits limits) const {
    constexpr double kMost = 1024;  // times that a stage can take: a square of it is finite
    const double others = time_.back() / fastest_ - limits.stage;
    const auto stages = static_cast<double>(stages_.size());
    return std::max(others / std::max(1.0, stages - 1), limits.stage / kMost);
  }

  // Of a stage that begins there and ends at `end`, and of the stages after it, which can begin at
  // the nodes of `begins` and have the sums `behind`.
  double least_sum(RunOfNodes run, Limits limits, const std::vector<size_t>& begins,
                   const std::vector<double>& behind, size_t& end) const {
    const double mean = mean_time(limits);
    double least = INFINITY;
    for (run.end = begins[first_end_[run.begin]]; run.end <= nodes() && is_within(run, limits);
         run.end = begins[run.end + 1]) {
      const double sum = cost(run, mean) + behind[run.end];
      if (!(sum < least)) continue;
      const BytesOfRun needed = bytes(run.stage, run.begin, run.end);
      if (needed.fits()) {
        least = sum;
        end = run.end;
      }
      if (!needed.more) break;
    }
    return least;
  }

  double cut_time(const RunOfNodes& run) const {
    const bool crosses = run.stage > 0 && stages_[run.stage].rank != stages_[run.stage - 1].rank;
    return crosses && *cut_time_ ? (*cut_time_)(run) : 0;
  }

  std::span<const StageRoom> stages_;
  double fastest_ = 0;                     // speed of a stage
  std::vector<double> time_, time_again_;  // of the nodes before each; with recompute
  std::vector<size_t> needed_;
  std::vector<size_t> first_end_;  // of a run from each node that contains one of needed_
  const std::function<BytesOfRun(const RunOfNodes&)>* bytes_ = nullptr;
  const CutTime* cut_time_ = nullptr;
  std::span<const double> cut_bytes_;
  double mean_cut_ = 0;  // of cut_bytes_
  int64_t cap_ = INT64_MAX;
};

// The smallest bottleneck of a chain, at least `from`, and the smallest limit of its stages with
// it: if a cut is the bottleneck, the stages can be faster than that. No result if no partition
// fits. `free`: the chain without bytes.
std::optional<Limits> least_limits(const Chain& chain, const Chain& free, double from) {
  const auto both = least_double(from, chain.bound(), [&chain](double limit) {
    return chain.solve({limit, limit}, nullptr);
  });
  if (!both) return {};
  const auto stages_below = [&both](const Chain& of, double first) {
    return *least_double(first, *both, [&](double limit) {
      return of.solve({limit, *both}, nullptr);
    });
  };
  double limit = *both;
  if (chain.has_cut_times()) limit = stages_below(free, 0);
  if (chain.has_cut_times() && &chain != &free) limit = stages_below(chain, limit);
  return Limits{limit, *both};
}

// The least bytes of the largest rank of a partition within these limits, or up to 1 % more.
int64_t least_bytes(const Chain& chain, Limits limits) {
  constexpr int64_t kPrecision = 128;
  int64_t low = 0, high = chain.most_bytes(*chain.earliest(limits));
  while (high - low > high / kPrecision) {
    const int64_t cap = std::midpoint(low, high);
    if (const auto cuts = chain.capped(cap).earliest(limits))
      high = chain.most_bytes(*cuts);
    else
      low = cap + 1;
  }
  return high;
}

}  // namespace

Result<Partition> partition_for(const NodeCosts& nodes, const ChainLoads& loads,
                                std::span<const StageRoom> stages, Among among) {
  // Also checks the nodes and their number.
  WEFT_TRY_ASSIGN(const Partition even,
                  partition_uniform(nodes, static_cast<int32_t>(stages.size())));
  WEFT_TRY_ASSIGN(const Chain chain, Chain::make(nodes, loads, stages));
  const Chain free = chain.without_bytes();
  // If the fastest of all partitions fits, bytes need not be counted to find the bottleneck.
  std::optional<Limits> limits = least_limits(free, free, 0);
  if (!chain.fits(*free.earliest(*limits))) {
    limits = least_limits(chain, free, limits->cut);
    if (!limits) return chain.refusal();
  }
  if (among == Among::earliest) return partition_at(nodes, *chain.earliest(*limits));
  // Of a long chain with many stages, the bytes of too many runs would be counted.
  constexpr size_t kMostRuns = 2000;  // of one length
  int64_t cap = INT64_MAX;
  if (stages.size() * chain.nodes() > kMostRuns) {
    const std::vector<int32_t> cuts = free.best(*limits);
    if (chain.fits(cuts)) return partition_at(nodes, cuts);
  } else {
    cap = least_bytes(chain, *limits);
  }
  return partition_at(nodes, chain.capped(cap).best(*limits));
}

}  // namespace weft
