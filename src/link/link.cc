// The states of a link, its deadlines and what it sends; what it receives is in receive.cc.
#include "link/link.h"

#include <algorithm>

#include "base/text.h"

namespace weft {

namespace {
constexpr size_t kControl = 0, kData = 1;

}  // namespace

Link::Link(int32_t self, int32_t peer, Identity identity, LinkTimes times, size_t tensors,
           size_t most_message)
    : self_(self),
      peer_(peer),
      identity_(std::move(identity)),
      times_(times),
      most_message_(most_message),
      sending_(tensors),
      in_flight_(kWindowFrames) {
  activity_bytes_.reserve(kActivityBytes);
}

void Link::start(LinkTime now) {
  if (state_ == State::waiting && hello_by_ == kNever) hello_by_ = now + times_.hello;
  last_tick_ = now;
}

void Link::connected(LinkTime now, LinkEffects& effects) {
  if (state_ == State::aborting &&
      !connection_) {  // it failed before the peer connected: send the reason to the peer
    connection_ = true;
    return send_abort(now, effects);
  }
  if (state_ != State::waiting) return;
  start(now);
  state_ = State::greeting;
  connection_ = true;
  last_heard_ = now;
  const std::vector<std::byte> hello = encode_hello(identity_);
  send_control(header(FrameKind::hello), hello, effects);
}

void Link::disconnected(const std::string& why, LinkTime now, LinkEffects& effects) {
  connection_ = false;
  if (state_ == State::aborting) return end();
  if (state_ == State::ended || lost_at_ != kNever) return;
  // After either bye no frame is in transit. The bye of the peer can be lost with the connection,
  // if the peer has received ours and closed it.
  if (heard_bye_ || said_bye_) {
    end();
    return effects.closed();
  }
  lost_at_ = now + times_.suspicion;
  lost_why_ = why;
}

void Link::end() {
  state_ = State::ended;
  connection_ = false;
}

// --- failure

void Link::fail(const Origin& origin, LinkTime now, LinkEffects& effects) {
  abort(origin, now, effects);
  effects.failed(origin, false);
}

// A failure of this end.
void Link::fail_here(std::string detail, LinkTime now, LinkEffects& effects) {
  fail({.rank = self_,
        .code = Code::internal,
        .cause = Cause::failed,
        .process = identity_.process,
        .detail = std::move(detail)},
       now, effects);
}

Origin Link::of_peer(Code code, Cause cause, std::string detail) const {
  return {.rank = peer_,
          .code = code,
          .cause = cause,
          .process = peer_process_,
          .detail = std::move(detail)};
}

void Link::lose(Cause cause, std::string detail, LinkTime now, LinkEffects& effects) {
  Origin origin = of_peer(Code::peer, cause, std::move(detail));
  origin.activity = peer_activity_;
  if (cause == Cause::silent) origin.limit_ms = times_.silence;
  if (cause == Cause::missing) {
    origin.limit_ms = kDataSilence * times_.silence;
    // The peer's number may be any.
    origin.count =
        static_cast<int64_t>(std::min<uint64_t>(announced_ - in_sequence_[kData], INT64_MAX));
  }
  if (greeted_) origin.heard_ms = now - last_heard_;
  if (peer_activity_.state != Activity::State::unknown)
    origin.reported_ms = now - peer_activity_at_;
  fail(origin, now, effects);
}

void Link::abort(const Origin& origin, LinkTime now, LinkEffects& effects) {
  if (state_ == State::aborting || state_ == State::ended) return;
  if (!connection_ && state_ != State::waiting) return end();
  const Status said = attempt([&] {
    abort_payload_ = encode_origin(origin);
    state_ = State::aborting;
    send_abort(now, effects);
  });
  if (!said.ok()) end();  // without memory for the abort, the end of the connection replaces it
}

void Link::send_abort(LinkTime now, LinkEffects& effects) {
  send_control(header(FrameKind::abort), abort_payload_, effects);
  abort_by_ = now + times_.suspicion;
}

// --- time

LinkTime Link::silent_at() const {
  return greeted_ ? std::max(last_heard_ + times_.silence, deaf_until_) : kNever;
}

LinkTime Link::lag_at() const {
  return lagging() ? std::max(lag_since_ + kDataSilence * times_.silence, deaf_until_) : kNever;
}

LinkTime Link::next_tick() const {
  switch (state_) {
    case State::waiting: return std::min(hello_by_, lost_at_);
    case State::greeting:
    case State::open: {
      const LinkTime heartbeat = connection_ ? next_heartbeat_ : kNever;
      return std::min({hello_by_, lost_at_, silent_at(), lag_at(), bye_by_, heartbeat});
    }
    case State::aborting: return abort_by_;
    case State::ended: return kNever;
  }
  return kNever;
}

void Link::tick(LinkTime now, LinkEffects& effects) {
  if (now - last_tick_ > 2 * times_.heartbeat) deaf_until_ = now + times_.suspicion;
  last_tick_ = now;
  switch (state_) {
    case State::waiting:
      if (now >= lost_at_) return lose(Cause::unreachable, lost_why_, now, effects);
      if (now >= hello_by_) {
        Origin late = of_peer(Code::timed_out, Cause::unreachable, effects.trouble());
        late.limit_ms = times_.hello;
        fail(late, now, effects);
      }
      return;
    case State::greeting:
    case State::open: return tick_live(now, effects);
    case State::aborting:
      if (now >= abort_by_) end();
      return;
    case State::ended: return;
  }
}

void Link::tick_live(LinkTime now, LinkEffects& effects) {
  const auto late = [&](const char* what, LinkTime limit) {
    Origin origin = of_peer(Code::timed_out, Cause::late, what);
    origin.limit_ms = limit;
    fail(origin, now, effects);
  };
  if (now >= lost_at_)
    return lose(Cause::closed, greeted_ ? lost_why_ : cat(lost_why_, " before its hello"), now,
                effects);
  if (now >= hello_by_) return late(greeted_ ? "answer our hello" : "send hello", times_.hello);
  if (now >= silent_at()) return lose(Cause::silent, "", now, effects);
  if (now >= lag_at()) return lose(Cause::missing, "", now, effects);
  if (now >= bye_by_) return late("answer bye", times_.silence);
  if (connection_ && now >= next_heartbeat_) send_heartbeat(now, effects);
}

// --- sending

FrameHeader Link::header(FrameKind kind) const {
  FrameHeader h;
  h.kind = kind;
  h.incarnation = identity_.incarnation;
  h.source = static_cast<uint16_t>(self_);
  h.destination = static_cast<uint16_t>(peer_);
  return h;
}

void Link::send_control(FrameHeader h, std::span<const std::byte> payload, LinkEffects& effects) {
  if (!connection_) return;
  h.sequence = out_sequence_[kControl]++;
  if (h.kind != FrameKind::message) h.total = payload.size();
  h.length = static_cast<uint32_t>(payload.size());
  std::array<std::byte, kHeaderBytes> bytes;
  encode_header(h, payload, bytes);
  effects.send(Lane::control, bytes, payload, 0);
}

void Link::send_heartbeat(LinkTime now, LinkEffects& effects) {
  FrameHeader h = header(FrameKind::heartbeat);
  h.step = out_sequence_[kData];
  encode_activity(activity_, activity_bytes_);
  send_control(h, activity_bytes_, effects);
  next_heartbeat_ = now + times_.heartbeat;
}

namespace {
void put_tag(FrameHeader& h, const Tag& tag) {
  h.step = tag.step;
  h.edge = static_cast<uint32_t>(tag.edge);
  h.micro_batch = static_cast<uint32_t>(tag.micro_batch);
}
}  // namespace

void Link::send_tensor(const Tag& tag, std::span<const std::byte> bytes, LinkEffects& effects) {
  if (state_ != State::open || said_bye_) return;
  sending_.push({tag, bytes});
  send_pieces(effects);
}

void Link::send_pieces(LinkEffects& effects) {
  while (connection_ && posted_ < sending_.size() && in_flight_.size() < kWindowFrames) {
    const Sending& tensor = sending_[posted_];
    const uint32_t length = piece_length(tensor.bytes.size(), next_piece_);
    if (in_flight_bytes_ + length > kWindowBytes) return;
    FrameHeader h = header(FrameKind::data);
    put_tag(h, tensor.tag);
    h.sequence = out_sequence_[kData]++;
    h.total = tensor.bytes.size();
    h.piece = next_piece_;
    h.length = length;
    const auto payload = tensor.bytes.subspan(static_cast<size_t>(h.offset()), length);
    const uint64_t token = next_token_++;
    in_flight_.push({token, length, h.last()});
    in_flight_bytes_ += length;
    if (h.last()) {
      ++posted_;
      next_piece_ = 0;
    } else {
      ++next_piece_;
    }
    std::array<std::byte, kHeaderBytes> bytes;
    encode_header(h, payload, bytes);
    effects.send(Lane::data, bytes, payload, token);
  }
}

void Link::sent(uint64_t token, LinkTime now, LinkEffects& effects) {
  if (!live()) return;
  if (in_flight_.empty() || in_flight_.front().token != token)
    return fail_here(cat("the transport to rank ", peer_, " sent frames out of order"), now,
                     effects);
  const Piece piece = in_flight_.pop();
  in_flight_bytes_ -= piece.bytes;
  if (piece.last) {
    const Tag tag = sending_.pop().tag;
    --posted_;
    effects.released(tag);
  }
  send_pieces(effects);
}

void Link::send_grant(const Tag& tag, LinkEffects& effects) {
  if (state_ != State::open || said_bye_) return;
  FrameHeader h = header(FrameKind::grant);
  put_tag(h, tag);
  send_control(h, {}, effects);
}

void Link::send_message(uint32_t type, std::span<const std::byte> bytes, LinkTime now,
                        LinkEffects& effects) {
  if (state_ != State::open || said_bye_) return;
  if (bytes.size() > kMaxMessage)
    return fail_here(cat("message of ", bytes.size(), " bytes, at most ", kMaxMessage), now,
                     effects);
  FrameHeader h = header(FrameKind::message);
  h.edge = type;
  h.total = bytes.size();
  do {
    const uint32_t length = piece_length(h.total, h.piece);
    send_control(h, bytes.subspan(static_cast<size_t>(h.offset()), length), effects);
    ++h.piece;
  } while (h.offset() < h.total);
}

void Link::bye(LinkTime now, LinkEffects& effects) {
  if (state_ != State::open || said_bye_) return;
  if (!sending_.empty())
    return fail_here(cat("bye to rank ", peer_, " while tensors are being sent"), now, effects);
  said_bye_ = true;
  send_control(header(FrameKind::bye), {}, effects);
  if (heard_bye_) {
    end();
    return effects.closed();
  }
  bye_by_ = now + times_.silence;
}

}  // namespace weft
