// What a link receives. Every frame is either expected, to the byte, or fails the link with the
// reason.
#include <cstring>

#include "base/text.h"
#include "link/link.h"

namespace weft {

namespace {

constexpr uint32_t kMostTag = 0x7fffffff;

Status wrong(std::string text) { return Status(Code::protocol, std::move(text)); }
}  // namespace

void Link::received(Lane lane, std::span<const std::byte> frame, LinkTime now,
                    LinkEffects& effects) {
  if (state_ == State::waiting || state_ == State::ended) return;
  std::span<const std::byte> payload;
  const auto decoded = decode_frame(frame, &payload);
  Status status = decoded.status();
  if (decoded.ok()) {
    const FrameHeader& h = decoded.value();
    status = check_header(lane, h);
    if (status.ok() && h.kind == FrameKind::abort) return heard_abort(payload, now, effects);
    if (state_ == State::aborting) {
      if (status.ok() && h.kind == FrameKind::abort_ack) end();
      return;
    }
    if (status.ok()) status = live_frame(lane, h, payload, now, effects);
  }
  if (status.ok() || !live()) return;
  if (status.code() != Code::peer)
    return fail(of_peer(status.code(), Cause::protocol, status.text()), now, effects);
  // The two ends differ. The higher rank is refused, so that both ends name the same one.
  Origin refused = of_peer(Code::peer, Cause::refused, status.text());
  if (self_ > peer_) {
    refused.rank = self_;
    refused.process = identity_.process;
  }
  fail(refused, now, effects);
}

Status Link::check_header(Lane lane, const FrameHeader& h) {
  if (h.source != static_cast<uint16_t>(peer_) || h.destination != static_cast<uint16_t>(self_))
    return wrong(cat("frame from rank ", h.source, " to rank ", h.destination, ", expected ", peer_,
                     " to ", self_));
  if ((h.kind == FrameKind::data) != (lane == Lane::data))
    return wrong(cat(frame_kind_name(h.kind), " frame on the ",
                     lane == Lane::data ? "data" : "control", " lane"));
  // A hello contains its whole identity, so that its error is more precise.
  if (h.kind != FrameKind::hello && h.incarnation != identity_.incarnation)
    return wrong(cat("frame of another incarnation, ", h.incarnation));
  if (h.kind != FrameKind::data && h.kind != FrameKind::message && h.total != h.length)
    return wrong(cat(frame_kind_name(h.kind), " frame of ", h.total, " bytes in pieces"));
  return {};
}

void Link::heard_abort(std::span<const std::byte> payload, LinkTime now, LinkEffects& effects) {
  auto origin = decode_origin(payload);
  if (!origin.ok()) {
    if (live())
      fail(of_peer(origin.status().code(), Cause::protocol, origin.status().text()), now, effects);
    return;
  }
  // An abort counts even if frames before it were lost: it contains the reason.
  send_control(header(FrameKind::abort_ack), {}, effects);
  if (!live()) return;  // aborting: the abort of this side still waits for its answer
  end();
  effects.failed(origin.value(), true);
}

Status Link::live_frame(Lane lane, const FrameHeader& h, std::span<const std::byte> payload,
                        LinkTime now, LinkEffects& effects) {
  uint64_t& expected = in_sequence_[static_cast<size_t>(lane)];
  if (h.sequence != expected)
    return wrong(cat(frame_kind_name(h.kind), " frame ", h.sequence, " of the ",
                     lane == Lane::data ? "data" : "control", " lane, expected ", expected,
                     h.sequence > expected ? ": frames are lost" : ": a frame is repeated"));
  ++expected;
  last_heard_ = now;
  if (greeted_ == (h.kind == FrameKind::hello))
    return wrong(
        cat(frame_kind_name(h.kind), greeted_ ? " frame after a hello" : " frame before a hello"));
  if (state_ == State::greeting && greeted_) {  // the peer has accepted our hello
    state_ = State::open;
    hello_by_ = kNever;
    effects.open();
  }
  return lane == Lane::data ? data_frame(h, payload, now, effects)
                            : control_frame(h, payload, now, effects);
}

Status Link::control_frame(const FrameHeader& h, std::span<const std::byte> payload, LinkTime now,
                           LinkEffects& effects) {
  if (heard_bye_ && h.kind != FrameKind::heartbeat)
    return wrong(cat(frame_kind_name(h.kind), " frame after a bye"));
  switch (h.kind) {
    case FrameKind::hello: return hello_frame(payload, now, effects);
    case FrameKind::heartbeat: return heartbeat_frame(h, payload, now);
    case FrameKind::message: return message_frame(h, payload, effects);
    case FrameKind::grant:
      if (!payload.empty() || h.edge > kMostTag || h.micro_batch > kMostTag)
        return wrong("grant frame with a tag or payload that is not valid");
      effects.granted({h.step, static_cast<int32_t>(h.edge), static_cast<int32_t>(h.micro_batch)});
      return {};
    case FrameKind::bye:
      if (landing_ || message_piece_ > 0)
        return wrong("bye frame in the middle of a tensor or message");
      heard_bye_ = true;
      if (!said_bye_) {
        effects.leaving();
        return {};
      }
      end();
      effects.closed();
      return {};
    case FrameKind::abort_ack: return wrong("abort-ack frame, but nothing was aborted");
    case FrameKind::abort:
    case FrameKind::data: break;  // handled before
  }
  return wrong("frame on the wrong lane");
}

Status Link::hello_frame(std::span<const std::byte> payload, LinkTime now, LinkEffects& effects) {
  const auto theirs = decode_hello(payload);
  if (!theirs.ok()) return theirs.status();
  peer_process_ = theirs.value().process;
  WEFT_TRY(compare_identity(self_, identity_, peer_, theirs.value()));
  greeted_ = true;
  send_heartbeat(now, effects);  // shows the peer that its hello was accepted
  return {};
}

Status Link::heartbeat_frame(const FrameHeader& h, std::span<const std::byte> payload,
                             LinkTime now) {
  WEFT_TRY_ASSIGN(const Activity activity, decode_activity(payload));
  if (h.step < announced_)
    return wrong(cat("heartbeat with fewer data frames than before: ", h.step, " sent, it was ",
                     announced_));
  if (!lagging()) lag_since_ = now;
  announced_ = h.step;
  peer_activity_ = activity;
  peer_activity_at_ = now;
  return {};
}

Status Link::message_frame(const FrameHeader& h, std::span<const std::byte> payload,
                           LinkEffects& effects) {
  if (h.total > most_message_)
    return wrong(cat("message of ", h.total, " bytes, at most ", most_message_));
  if (h.piece != message_piece_ || (h.piece > 0 && h.edge != message_type_))
    return wrong(cat("piece ", h.piece, " of a message of type ", h.edge, ", expected piece ",
                     message_piece_,
                     message_piece_ > 0 ? cat(" of type ", message_type_) : std::string()));
  if (h.piece > 0 && h.total != message_total_)
    return wrong(cat("piece ", h.piece, " of a message of ", h.total, " bytes, expected ",
                     message_total_, " as in its first piece"));
  if (h.piece == 0 && h.last()) {
    effects.message(h.edge, payload);
    return {};
  }
  if (long_message_.size() != h.offset()) return wrong("message whose pieces do not add up");
  long_message_.insert(long_message_.end(), payload.begin(), payload.end());
  message_type_ = h.edge;
  message_total_ = h.total;
  ++message_piece_;
  if (!h.last()) return {};
  message_piece_ = 0;
  const std::vector<std::byte> whole = std::exchange(long_message_, {});
  effects.message(h.edge, whole);
  return {};
}

Status Link::data_frame(const FrameHeader& h, std::span<const std::byte> payload, LinkTime now,
                        LinkEffects& effects) {
  lag_since_ = now;
  if (heard_bye_) return wrong("data frame after a bye");
  if (h.edge > kMostTag || h.micro_batch > kMostTag)
    return wrong("data frame with a tag that is not valid");
  const Tag tag{h.step, static_cast<int32_t>(h.edge), static_cast<int32_t>(h.micro_batch)};
  if (!landing_) {
    if (h.piece != 0)
      return wrong(cat("piece ", h.piece, " of a tensor whose first piece did not arrive"));
    WEFT_TRY_ASSIGN(landing_bytes_, effects.landing(tag, h.total));
    if (landing_bytes_.size() != h.total)
      return wrong(cat("tensor of ", h.total, " bytes, its place has ", landing_bytes_.size()));
    landing_ = true;
    landing_tag_ = tag;
    landing_piece_ = 0;
  } else if (tag != landing_tag_ || h.piece != landing_piece_ || h.total != landing_bytes_.size()) {
    return wrong(cat("piece ", h.piece, " of another tensor before the last piece of this one"));
  }
  if (!payload.empty())
    std::memcpy(landing_bytes_.data() + h.offset(), payload.data(), payload.size());
  ++landing_piece_;
  if (!h.last()) return {};
  landing_ = false;
  effects.arrived(tag);
  return {};
}

}  // namespace weft
