// Who is lost when one rank says so of another: rank 0 decides, which has a link to both.
#include <algorithm>

#include "base/bytes.h"
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
  if (rank_ == 0 || peer.rank == 0 || peer.origin.code != Code::peer) return false;
  return peer.told_by_peer ? peer.opened && peer.origin.rank == rank_ : peer.link.lost_peer();
}

void RankNode::accuse(Peer& peer) {
  Peer& zero = *find(0);
  if (accusation_.of >= 0) return;  // one is enough
  // The other end calls this one lost: for rank 0, and if it does not answer, that is a loss of the
  // other.
  const std::string lost = cat("rank ", peer.origin.rank, " lost: ");
  const std::string why =
      peer.origin.text.starts_with(lost) ? peer.origin.text.substr(lost.size()) : peer.origin.text;
  accusation_ = {.by = rank_,
                 .of = peer.rank,
                 .origin = {.rank = peer.rank,
                            .code = Code::peer,
                            .text = cat("rank ", peer.rank, " lost: ", why)},
                 .until = now_ + kAnswerMs};
  std::vector<std::byte> bytes;
  ByteWriter(bytes).number(peer.rank).text(why);
  zero.link.send_message(kLostMessage, bytes, now_, zero);
}

Status RankNode::heard_accusation(int32_t from, std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const int32_t of = reader.number<int32_t>();
  const std::string why = reader.text();
  if (!controller_) return Status(Code::protocol, "it tells of a lost rank to a rank other than 0");
  if (!reader.at_end() || of == from || !find(of) || why.size() > kMaxOriginText)
    return Status(Code::protocol, cat("it tells of rank ", of, " as lost, in ", bytes.size(),
                                      " bytes that cannot be"));
  if (accusation_.of >= 0)
    return {};  // one at a time; and if it is the accused that speaks, it has just been heard
  accusation_ = {
      .by = from,
      .of = of,
      .origin = {.rank = of, .code = Code::peer, .text = cat("rank ", of, " lost: ", why)},
      .until = now_ + kJudgeMs};
  return {};
}

// The accused is heard after the accusation, so it is there.
void RankNode::acquit(int32_t heard) {
  if (!controller_ || failed_ || accusation_.of != heard) return;
  const int32_t low = std::min(accusation_.by, accusation_.of),
                high = std::max(accusation_.by, accusation_.of);
  const std::string lost = cat("rank ", accusation_.of, " lost: ");
  fail_with({.rank = high,
             .code = Code::peer,
             .text = cat("the connection between rank ", low, " and rank ", high,
                         " was lost: rank 0 hears both (rank ", accusation_.by,
                         " says: ", accusation_.origin.text.substr(lost.size()), ")")});
}

void RankNode::judge_in_time() {
  if (failed_ || now_ < accusation_.until) return;
  fail_with(accusation_.origin);
  hang_up_dead();
}

}  // namespace weft
