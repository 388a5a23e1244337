#include "partition/cut_search.h"

#include <algorithm>
#include <numeric>

#include "tensor/byte_count.h"

namespace weft {

namespace {

constexpr size_t kPassed = 8;  // maximum number of stages that pass nodes on

}  // namespace

CutSearch::CutSearch(const OpNodes& ops, const Schedule& schedule, int32_t shares,
                     std::vector<StageRoom> stages, CutTime cut_time,
                     const std::vector<size_t>& needed, RunBytes* bytes)
    : rank_of_stage_(schedule.rank_of_stage.begin(), schedule.rank_of_stage.end()),
      shares_(static_cast<size_t>(shares)),
      ranks_(schedule.rows.size()),
      stages_(std::move(stages)),
      time_(1, 0.0),
      forward_(1, 0.0),
      cut_time_(std::move(cut_time)),
      bytes_(bytes) {
  for (const double cost : ops.forward) forward_.push_back(forward_.back() + cost);
  for (const double cost : ops.costs) time_.push_back(time_.back() + cost);
  for (size_t v = 0, count = 0; v <= nodes(); ++v) {
    needed_before_.push_back(needed.empty() ? v : count);
    if (count < needed.size() && needed[count] == v) ++count;
  }
}

std::vector<size_t> CutSearch::start(std::vector<size_t> first_nodes) {
  Judged now = judge(first_nodes);
  for (bool moved = true; moved;) {
    moved = false;
    std::vector<size_t> next = first_nodes;
    for (std::vector<size_t>& tried : moves(first_nodes, now.rank)) {
      left_ -= static_cast<int64_t>(tried.size());
      if (left_ < 0) break;
      const Judged judged = judge(tried);
      if (!(judged < now)) continue;
      now = judged;
      next = std::move(tried);
      moved = true;
    }
    first_nodes = std::move(next);
  }
  if (best_.empty() || now < judged_) {
    best_ = first_nodes;
    judged_ = now;
  }
  return first_nodes;
}

double CutSearch::time(size_t s, size_t begin, size_t end) const {
  const double again = stages_[s].recomputes ? forward_[end] - forward_[begin] : 0;
  return (time_[end] - time_[begin] + again) / stages_[s].speed;
}

CutSearch::Judged CutSearch::judge(const std::vector<size_t>& first) {
  Judged out;
  std::vector<double> busy(ranks_, 0.0);
  bool sound = true;
  for (size_t s = 0; s < first.size(); ++s) {
    const size_t end = s + 1 < first.size() ? first[s + 1] : nodes(), r = rank_of_stage_[s];
    busy[r] += time(s, first[s], end);
    sound = sound && has_needed(first[s], end);
  }
  out.rank = static_cast<size_t>(std::max_element(busy.begin(), busy.end()) - busy.begin());
  out.slowest = busy[out.rank];
  for (size_t s = 1; s < first.size() && cut_time_; ++s) {
    if (rank_of_stage_[s] == rank_of_stage_[s - 1]) continue;
    const double time = cut_time_({s, first[s], s + 1 < first.size() ? first[s + 1] : nodes()});
    if (time <= out.slowest) continue;
    out.slowest = time;
    out.rank = rank_of_stage_[s];
  }
  if (bytes_) add_excess(first, out);
  if (!sound) out.excess = kEndless;
  return out;
}

void CutSearch::add_excess(const std::vector<size_t>& first, Judged& out) {
  int64_t most = 0;
  for (const RankBytes& rank : bytes_->of_ranks(first)) {
    out.excess = sum_of_bytes(out.excess, rank.over());
    if (rank.over() > most) out.rank = rank.position / shares_;
    most = std::max(most, rank.over());
  }
}

void CutSearch::try_all() {
  constexpr int64_t kTried = 1 << 16;
  int64_t left = kTried;
  std::vector<size_t> first = {0};
  if (!is_far() && extend(first, left) == stages_.size()) start(std::move(first));
}

// What all ranks need together depends on the cuts, but not that much.
bool CutSearch::is_far() {
  int64_t needed = 0, room = 0;
  for (const RankBytes& rank : bytes_->of_ranks(best_)) {
    needed = sum_of_bytes(needed, rank.all);
    room = sum_of_bytes(room, rank.limit);
  }
  return needed < kEndless && needed > sum_of_bytes(room, room / 2);
}

size_t CutSearch::extend(std::vector<size_t>& first, int64_t& left) {
  const size_t s = first.size() - 1, last = stages_.size() - 1;
  if (s == last) {
    left -= static_cast<int64_t>(nodes());
    if (left < 0) return 0;
    // What a rank needs depends on the cuts up to the end of its last stage.
    const Judged judged = judge(first);
    return judged.excess == 0 ? stages_.size() : std::min(last, last_stage(judged.rank) + 1);
  }
  std::vector<RunOfNodes> own = stages_with_ends(rank_of_stage_[s], first);
  own.push_back({s, first[s], 0});
  size_t end = first[s] + 1;
  if (s + 1 == last) end = std::max(end, earliest_last(first));
  for (; end + (last - s) <= nodes() && has_needed(end, nodes()); ++end) {
    if (!has_needed(first[s], end)) continue;
    left -= static_cast<int64_t>(end - first[s]);
    if (left < 0) return 0;
    own.back().end = end;
    if (!bytes_->can_fit(own)) break;
    first.push_back(end);
    const size_t decides = extend(first, left);
    if (decides != s + 1) return decides;
    first.resize(s + 1);
  }
  return s;
}

std::vector<RunOfNodes> CutSearch::stages_with_ends(size_t rank,
                                                    const std::vector<size_t>& first) const {
  std::vector<RunOfNodes> out;
  for (size_t s = 0; s + 1 < first.size(); ++s)
    if (rank_of_stage_[s] == rank) out.push_back({s, first[s], first[s + 1]});
  return out;
}

size_t CutSearch::last_stage(size_t rank) const {
  const auto after = std::find(rank_of_stage_.rbegin(), rank_of_stage_.rend(), rank).base();
  return static_cast<size_t>(after - rank_of_stage_.begin()) - 1;
}

// The later it begins, the fewer nodes it has.
size_t CutSearch::earliest_last(const std::vector<size_t>& first) {
  const size_t last = stages_.size() - 1;
  std::vector<RunOfNodes> own = stages_with_ends(rank_of_stage_[last], first);
  own.push_back({last, 0, nodes()});
  size_t low = first.back() + 1, high = nodes();
  while (low < high) {
    own.back().begin = std::midpoint(low, high);
    if (bytes_->can_fit(own))
      high = own.back().begin;
    else
      low = own.back().begin + 1;
  }
  return low;
}

// Cuts that reduce the stages of a rank. The next stages may pass nodes on to later ones. A move of
// several nodes can succeed if a move of one node does not, because a value that is sent at that
// cut may be large.
std::vector<std::vector<size_t>> CutSearch::moves(const std::vector<size_t>& first,
                                                  size_t rank) const {
  std::vector<std::vector<size_t>> out;
  for (size_t s = 1; s < first.size(); ++s) {
    if (rank_of_stage_[s - 1] == rank)
      for (size_t last = s; last < first.size() && last < s + kPassed; ++last)
        add_shifted(first, s, last, -1, out);
    if (rank_of_stage_[s] == rank)
      for (size_t from = s; from > 0 && from + kPassed > s; --from)
        add_shifted(first, from, s, 1, out);
  }
  return out;
}

// With the stages from `first` to `last` beginning 1, 2 and 3 nodes earlier or later.
void CutSearch::add_shifted(const std::vector<size_t>& from, size_t first, size_t last, int64_t way,
                            std::vector<std::vector<size_t>>& out) const {
  for (const int64_t shift : {1, 2, 3}) {
    std::vector<size_t> moved = from;
    for (size_t s = first; s <= last; ++s)
      moved[s] = static_cast<size_t>(static_cast<int64_t>(moved[s]) + way * shift);
    bool sound = moved.back() < nodes();  // a negative one wraps around
    for (size_t s = 1; s < moved.size(); ++s) sound = sound && moved[s] > moved[s - 1];
    if (sound) out.push_back(std::move(moved));
  }
}

}  // namespace weft
