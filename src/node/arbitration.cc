// Who is lost when one rank says so of another: rank 0 decides, which has a link to both.
#include <algorithm>

#include "base/text.h"
#include "node/adapters.h"

namespace weft {

namespace {
// A rank that lives is heard within a heartbeat, one that does not is lost by rank 0 about as soon
// as by the accuser. An accuser that has no answer from rank 0 by then goes by its own word.
constexpr LinkTime kJudgeMs = 700, kAnswerMs = 1200;
}  // namespace

// A loss between two ranks that rank 0 may hear both: found by this end, or told to this rank as
// its own loss by the other. Also while the ranks still greet each other: a rank may leave because
// of another one that only rank 0 knows of.
bool RankNode::ask_first(const Peer& peer) const {
  if (rank_ == 0 || peer.rank == 0 || !peer.origin.lost() || peer.origin.other >= 0) return false;
  return !peer.told_by_peer || (peer.opened && peer.origin.rank == rank_);
}

void RankNode::accuse(Peer& peer) {
  Peer& zero = *find(0);
  if (accusation_.of >= 0) return;  // one is enough
  Origin origin = peer.origin;
  if (origin.rank == rank_) {
    // The other end calls this one lost: for rank 0, and if it does not answer, that is a loss of
    // the other.
    origin.rank = peer.rank;
    origin.process = peer.link.peer_process();
    origin.activity = peer.link.peer_activity();
    origin.heard_ms = now_ - peer.link.last_heard();
    origin.reported_ms = now_ - peer.link.peer_activity_at();
  }
  accusation_ = {.by = rank_, .of = peer.rank, .origin = origin, .until = now_ + kAnswerMs};
  zero.link.send_message(kLostMessage, encode_origin(origin), now_, zero);
}

Status RankNode::heard_accusation(int32_t from, std::span<const std::byte> bytes) {
  WEFT_TRY_ASSIGN(const Origin origin, decode_origin(bytes));
  const int32_t of = origin.rank;
  if (!controller_) return Status(Code::protocol, "it tells of a lost rank to a rank other than 0");
  if (!origin.lost() || origin.other >= 0 || of == from || !find(of))
    return Status(Code::protocol,
                  cat("it tells of rank ", of, " as lost, which rank ", from, " cannot know"));
  // One at a time; and if it is the accused that speaks, it has just been heard.
  if (accusation_.of >= 0) return {};
  accusation_ = {.by = from, .of = of, .origin = origin, .until = now_ + kJudgeMs};
  return {};
}

// The accused is heard after the accusation, so it is there, and so is the accuser.
void RankNode::acquit(int32_t heard) {
  if (!controller_ || failed_ || accusation_.of != heard) return;
  Origin origin = accusation_.origin;
  origin.rank = std::max(accusation_.by, accusation_.of);
  origin.other = std::min(accusation_.by, accusation_.of);
  origin.process = {};  // of the accused
  origin.activity = {};
  fail_with(origin);
}

void RankNode::judge_in_time() {
  if (failed_ || now_ < accusation_.until) return;
  fail_with(accusation_.origin);
  hang_up_dead();
}

}  // namespace weft
