// One rank reports another one as lost: rank 0, which has a link to both, decides which one is.
#include <algorithm>

#include "base/text.h"
#include "node/adapters.h"

namespace weft {

namespace {
// Rank 0 receives a frame of a live rank within a heartbeat, and loses a dead one at about the same
// time as the reporter. Without an answer by then, the reporter uses its own observation.
constexpr LinkTime kConfirmMs = 700, kAnswerMs = 1200;
}  // namespace

// A loss between two ranks, if rank 0 may still receive from both. This rank detected it, or the
// other rank reported this rank as lost. This also applies before all hellos have arrived: a rank
// may leave because of a third rank that only rank 0 knows of.
bool RankNode::ask_first(const Peer& peer) const {
  if (rank_ == 0 || peer.rank == 0 || !peer.origin.lost() || peer.origin.other >= 0) return false;
  return !peer.reported_by_peer || (peer.opened && peer.origin.rank == rank_);
}

void RankNode::suspect(Peer& peer) {
  Peer& zero = *find(0);
  if (suspicion_.of >= 0) return;  // one report is enough
  Origin origin = peer.origin;
  if (origin.rank == rank_) {
    // The other end reports this rank as lost. If rank 0 does not answer, the other end is lost.
    origin.rank = peer.rank;
    origin.process = peer.link.peer_process();
    origin.activity = peer.link.peer_activity();
    origin.heard_ms = now_ - peer.link.last_heard();
    origin.reported_ms = now_ - peer.link.peer_activity_at();
  }
  suspicion_ = {.by = rank_, .of = peer.rank, .origin = origin, .until = now_ + kAnswerMs};
  zero.link.send_message(kLostMessage, encode_origin(origin), now_, zero);
}

Status RankNode::received_suspicion(int32_t from, std::span<const std::byte> bytes) {
  WEFT_TRY_ASSIGN(const Origin origin, decode_origin(bytes));
  const int32_t of = origin.rank;
  if (!controls()) return Status(Code::protocol, "it reports a lost rank to a rank other than 0");
  if (!origin.lost() || origin.other >= 0 || of == from || !find(of))
    return Status(Code::protocol,
                  cat("it reports rank ", of, " as lost, which rank ", from, " cannot know"));
  // One at a time. If the suspect sends a report itself, it is alive.
  if (suspicion_.of >= 0) return {};
  suspicion_ = {.by = from, .of = of, .origin = origin, .until = now_ + kConfirmMs};
  return {};
}

// A frame of the suspect arrived after the report, so that both it and the reporter are alive.
void RankNode::refute_suspicion(int32_t alive) {
  if (!controls() || failed_ || suspicion_.of != alive) return;
  Origin origin = suspicion_.origin;
  origin.rank = std::max(suspicion_.by, suspicion_.of);
  origin.other = std::min(suspicion_.by, suspicion_.of);
  origin.process = {};  // of the suspect
  origin.activity = {};
  fail_with(origin);
}

void RankNode::confirm_suspicion() {
  if (failed_ || now_ < suspicion_.until) return;
  fail_with(suspicion_.origin);
  hang_up_dead();
}

}  // namespace weft
