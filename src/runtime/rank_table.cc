#include "runtime/rank_table.h"

#include <algorithm>

#include "base/text.h"

namespace weft {

RankTable::RankTable(const Plan& plan, const std::string& endpoint)
    : plan_(plan),
      holders_(static_cast<size_t>(plan.config.ranks)),
      requests_(static_cast<size_t>(plan.config.ranks)) {
  requests_[0].endpoint = endpoint;
}

int32_t RankTable::missing() const {
  return static_cast<int32_t>(std::count(holders_.begin() + 1, holders_.end(), nullptr));
}

std::string RankTable::missing_text() const {
  std::string out;
  for (int32_t r = 1; r < ranks(); ++r)
    if (!holder(r)) out += cat(out.empty() ? "" : ", ", r);
  return missing() > 1 ? cat("ranks ", out, " have") : cat("rank ", out, " has");
}

int32_t RankTable::rank_of(const PeerConnection& candidate) const {
  const auto at = std::find(holders_.begin(), holders_.end(), &candidate);
  return at == holders_.end() ? -1 : static_cast<int32_t>(at - holders_.begin());
}

bool RankTable::has_key(const PublicKey& key) const {
  for (int32_t r = 1; r < ranks(); ++r)
    if (holder(r) && requests_[static_cast<size_t>(r)].key == key) return true;
  return false;
}

int32_t RankTable::first_free() const {
  return static_cast<int32_t>(std::find(holders_.begin() + 1, holders_.end(), nullptr) -
                              holders_.begin());
}

Result<std::vector<int32_t>> RankTable::assign(PeerConnection& candidate,
                                               const JoinRequest& request) {
  const int32_t unused = first_free();
  const int32_t rank = request.wanted_rank == -1 ? unused : request.wanted_rank;
  if (rank < 1 || rank >= ranks())
    return Status(Code::invalid,
                  cat("it asks to be rank ", rank, ", the run has the ranks 0 to ", ranks() - 1));
  std::vector<int32_t> changed;
  if (PeerConnection* const there = holder(rank)) {
    const JoinRequest& theirs = requests_[static_cast<size_t>(rank)];
    if (theirs.wanted_rank >= 0 || unused == ranks())
      return Status(Code::invalid, cat("it asks to be rank ", rank, ", which has joined already"));
    set(unused, *there, theirs);
    changed.push_back(unused);
  }
  set(rank, candidate, request);
  changed.push_back(rank);
  return changed;
}

void RankTable::set(int32_t rank, PeerConnection& candidate, const JoinRequest& request) {
  holders_[static_cast<size_t>(rank)] = &candidate;
  requests_[static_cast<size_t>(rank)] = request;
}

void RankTable::free(int32_t rank) {
  leave(rank);
  requests_[static_cast<size_t>(rank)] = {};
}

}  // namespace weft
