// The ranks of a run while its processes join: which candidate has which rank, and what it asked
// for. Rank 0 is this process.
#pragma once

#include <string>
#include <vector>

#include "runtime/welcome.h"

namespace weft {

class PeerConnection;

class RankTable {
 public:
  // `endpoint`: of rank 0. `plan` must outlive the table.
  RankTable(const Plan& plan, const std::string& endpoint);

  const Plan& plan() const { return plan_; }
  int32_t ranks() const { return static_cast<int32_t>(requests_.size()); }
  const std::vector<JoinRequest>& requests() const { return requests_; }  // by rank
  int32_t missing() const;
  std::string missing_text() const;  // "ranks 1, 3 have"

  PeerConnection* holder(int32_t rank) const { return holders_[static_cast<size_t>(rank)]; }
  int32_t rank_of(const PeerConnection& candidate) const;  // -1: none
  bool has_key(const PublicKey& key) const;

  // Gives the candidate the rank that it asks for, or the first free one. A candidate that accepts
  // any rank makes room for one that asks for its rank. Returns the changed ranks, that of the
  // candidate last.
  Result<std::vector<int32_t>> assign(PeerConnection& candidate, const JoinRequest& request);
  // The rank has no candidate any more. Its request stays.
  void leave(int32_t rank) { holders_[static_cast<size_t>(rank)] = nullptr; }
  // And may be assigned again.
  void free(int32_t rank);

 private:
  void set(int32_t rank, PeerConnection& candidate, const JoinRequest& request);
  int32_t first_free() const;

  const Plan& plan_;
  std::vector<PeerConnection*> holders_;  // by rank; index 0 stays empty
  std::vector<JoinRequest> requests_;
};

}  // namespace weft
