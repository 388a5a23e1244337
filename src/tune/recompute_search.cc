#include "tune/recompute_search.h"

#include <algorithm>

#include "base/text.h"
#include "lowering/recompute.h"

namespace weft {

namespace {

// A segment of a stage.
struct Spot {
  size_t stage, index;
};

class Fit {
 public:
  Fit(const PlanConfig& config, const std::vector<size_t>& first, RunBytes& bytes)
      : limit_(config.memory_limit),
        own_cuts_(config.split != SplitBy::cost || !config.cuts.empty()),
        first_(first),
        bytes_(bytes),
        times_(analysed_times(bytes.pieces(), config.micro_batch_size)),
        written_(bytes.recompute()),
        spots_at_(static_cast<size_t>(config.ranks)) {
    for (size_t s = 0; s < written_.size(); ++s) {
      const std::vector<RemadeCalls> segments = bytes_.remade(s, first_, times_);
      written_[s].resize(segments.size(), written_[s].front());
      for (size_t i = 0; i < segments.size(); ++i)
        spots_at_[segments[i].position].push_back({s, i});
    }
  }

  Result<RunBytes::Again> run() {
    if (!over(written_)) return written_;
    find_options();
    std::vector<std::vector<std::vector<int32_t>>> ways(spots_at_.size());
    for (size_t p = 0; p < ways.size(); ++p)
      if (!options_[p].empty()) ways[p] = ways_of(options_[p], limit_);
    std::vector<size_t> pick(ways.size(), 0);
    constexpr size_t kMostPicks = 256;
    for (;;) {
      RunBytes::Again again = written_;
      for (size_t p = 0; p < ways.size(); ++p)
        for (size_t i = 0; i < spots_at_[p].size(); ++i)
          calls_at(again, spots_at_[p][i]) = ways[p][pick[p]][i];
      if (!over(again)) return again;
      for (size_t p = 0; p < ways.size(); ++p) {
        if (ranks_[fullest_[p]].all <= limit_) continue;
        if (++pick[p] == std::min(ways[p].size(), kMostPicks)) return of_one_length();
      }
    }
  }

 private:
  // The bytes of combinations are estimates. Recompute blocks of one length may fit where those
  // that were picked do not.
  Result<RunBytes::Again> of_one_length() {
    size_t rank = 0;
    int64_t least = INT64_MAX;
    for (const int32_t length : lengths()) {
      RunBytes::Again again = written_;
      for (auto& stage : again)
        for (int32_t& calls : stage)
          if (calls == 0) calls = length;
      if (!over(again)) return again;
      const auto most =
          std::max_element(ranks_.begin(), ranks_.end(),
                           [](const RankBytes& a, const RankBytes& b) { return a.all < b.all; });
      if (most->all >= least) continue;
      least = most->all;
      rank = static_cast<size_t>(most - ranks_.begin());
    }
    return Status(Code::invalid,
                  cat("rank ", rank, " needs ", bytes_text(least), " with ",
                      own_cuts_ ? "these cuts" : "cuts of equal time",
                      " and everything recomputed that can be, the limit is ", bytes_text(limit_),
                      own_cuts_ ? "; other cuts may need less" : ""));
  }

  static int32_t& calls_at(RunBytes::Again& again, const Spot& spot) {
    return again[spot.stage][spot.index];
  }

  // Counts the bytes.
  bool over(const RunBytes::Again& again) {
    bytes_.set_recompute(again);
    ranks_ = bytes_.of_ranks(first_);
    fullest_.assign(spots_at_.size(), 0);
    std::vector<int64_t> most(spots_at_.size(), -1);
    bool out = false;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      out = out || ranks_[r].all > limit_;
      if (ranks_[r].all <= most[ranks_[r].position]) continue;
      most[ranks_[r].position] = ranks_[r].all;
      fullest_[ranks_[r].position] = r;
    }
    return out;
  }

  // All lengths of short recompute blocks; of long ones, those a quarter apart.
  std::vector<int32_t> lengths() {
    int32_t most = 0;
    for (size_t s = 0; s < written_.size(); ++s)
      for (const RemadeCalls& segment : bytes_.remade(s, first_, times_))
        most = std::max(most, segment.forward);
    std::vector<int32_t> out;
    for (int32_t length = 1; length < most; length += std::max(1, length / 4))
      out.push_back(length);
    out.push_back(Recompute::kWhole);
    return out;
  }

  void find_options() {
    options_.resize(spots_at_.size());
    size_t most = 0;
    for (size_t p = 0; p < spots_at_.size(); ++p) {
      most = std::max(most, spots_at_[p].size());
      for (const Spot& spot : spots_at_[p])
        options_[p].push_back({option(p, calls_at(written_, spot), 0)});
    }
    for (const int32_t length : lengths()) {
      RunBytes::Again all = written_;
      for (auto& stage : all) std::fill(stage.begin(), stage.end(), length);
      bytes_.set_recompute(all);
      std::vector<std::vector<RemadeCalls>> remade;
      for (size_t s = 0; s < all.size(); ++s) remade.push_back(bytes_.remade(s, first_, times_));
      for (size_t j = 0; j < most; ++j) {
        RunBytes::Again again = written_;
        for (const auto& spots : spots_at_)
          if (j < spots.size()) calls_at(again, spots[j]) = length;
        over(again);
        for (size_t p = 0; p < spots_at_.size(); ++p) {
          if (j >= spots_at_[p].size()) continue;
          const Spot& spot = spots_at_[p][j];
          const RemadeCalls& calls = remade[spot.stage][spot.index];
          std::vector<RecomputeOption>& own = options_[p][j];
          if (calls_at(written_, spot) == 0)
            own.push_back(calls.any ? option(p, length, calls.time.total()) : own.front());
        }
      }
    }
  }

  RecomputeOption option(size_t position, int32_t length, double seconds) const {
    // Other replicas may have more micro-batches than the first.
    const RankBytes& rank = ranks_[fullest_[position]];
    return {.calls_per_block = length,
            .seconds = seconds,
            .kept = rank.train - rank.scratch,
            .scratch = rank.scratch};
  }

  const int64_t limit_;
  const bool own_cuts_;  // given, or not chosen by cost
  const std::vector<size_t>& first_;
  RunBytes& bytes_;
  const std::vector<NodeTimes> times_;
  RunBytes::Again written_;                  // stages with an R in the schedule recompute anyway
  std::vector<std::vector<Spot>> spots_at_;  // per position
  std::vector<std::vector<std::vector<RecomputeOption>>> options_;  // per position and its segments
  std::vector<RankBytes> ranks_;                                    // by the last account
  std::vector<size_t> fullest_;                                     // per position: rank
};

}  // namespace

Result<RunBytes::Again> fit_recompute(const PlanConfig& config, const std::vector<size_t>& first,
                                      RunBytes& bytes) {
  return Fit(config, first, bytes).run();
}

}  // namespace weft
