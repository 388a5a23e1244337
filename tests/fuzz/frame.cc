// Frames from outside: any bytes are either refused or read as what encodes to the same bytes; and
// a link in every state takes them without a crash, an endless wait or a second failure.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "link/link.h"

namespace weft {
namespace {

void check(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

class Owner final : public LinkEffects {
 public:
  void send(Lane, std::span<const std::byte, kHeaderBytes>, std::span<const std::byte>,
            uint64_t token) override {
    if (token) last_token = token;
  }
  void open() override {}
  Result<std::span<std::byte>> landing(const Tag&, uint64_t bytes) override {
    if (bytes > memory_.size()) return Status(Code::protocol, "no such tensor");
    return std::span<std::byte>(memory_).first(static_cast<size_t>(bytes));
  }
  void arrived(const Tag&) override {}
  void released(const Tag&) override {}
  void granted(const Tag&) override {}
  void message(uint32_t, std::span<const std::byte>) override {}
  void leaving() override {}
  void failed(const Origin& origin, bool) override {
    check(++ends == 1, "a link failed or closed twice");
    check(!origin_text(origin).empty(), "a failure without a text");
  }
  void closed() override { check(++ends == 1, "a link failed or closed twice"); }
  uint64_t last_token = 0;
  int ends = 0;

 private:
  std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
};

std::vector<std::byte> frame_of(FrameHeader h, std::span<const std::byte> payload) {
  std::vector<std::byte> frame(kHeaderBytes);
  encode_header(h, payload, std::span<std::byte, kHeaderBytes>(frame.data(), kHeaderBytes));
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

FrameHeader from_peer(FrameKind kind, uint64_t sequence, size_t length) {
  FrameHeader h;
  h.kind = kind;
  h.source = 1;
  h.sequence = sequence;
  h.total = h.length = static_cast<uint32_t>(length);
  return h;
}

// 0 waiting, 1 greeting, 2 hello taken, 3 open, 4 a tensor leaves, 5 bye said, 6 aborting, 7
// suspicion
void bring_to(int state, Link& link, Owner& owner, std::span<const std::byte> tensor) {
  link.start(0);
  if (state >= 1) link.connected(0, owner);
  if (state >= 2) {
    const auto hello = encode_hello({});
    link.received(Lane::control, frame_of(from_peer(FrameKind::hello, 0, hello.size()), hello), 0,
                  owner);
  }
  if (state >= 3)
    link.received(Lane::control, frame_of(from_peer(FrameKind::heartbeat, 1, 0), {}), 0, owner);
  if (state == 4) link.send_tensor({0, 0, 0}, tensor, owner);
  if (state == 5) link.bye(0, owner);
  if (state == 6) link.abort({.rank = 0, .code = Code::user, .detail = "here"}, 0, owner);
  if (state == 7) link.disconnected("closed", 0, owner);
}

// The first two bytes choose the state and the way in; then come frames: lane, length and either
// bytes as they are, or header fields and payload that get right checks, so that the bytes reach
// what lies behind them.
void feed(std::span<const std::byte> in) {
  if (in.size() < 2) return;
  const int state = static_cast<int>(in[0]) & 7;
  const bool raw = static_cast<int>(in[1]) & 1;
  in = in.subspan(2);
  const std::vector<std::byte> tensor(3000);
  Link link(0, 1, {});
  Owner owner;
  bring_to(state, link, owner, tensor);
  LinkTime now = 0;
  while (in.size() >= 3) {
    const Lane lane = static_cast<int>(in[0]) & 1 ? Lane::data : Lane::control;
    now += static_cast<LinkTime>(in[0]) >> 1;
    const size_t size = std::min<size_t>(
        static_cast<size_t>(in[1]) | static_cast<size_t>(in[2]) << 8, in.size() - 3);
    const auto body = in.subspan(3, size);
    in = in.subspan(3 + size);
    if (raw || size < 24) {
      link.received(lane, body, now, owner);
    } else {
      FrameHeader h;
      h.kind = static_cast<FrameKind>(1 + static_cast<int>(body[0]) % 8);
      h.source = 1;
      h.sequence = static_cast<uint64_t>(body[1]);
      h.step = static_cast<uint64_t>(body[2]);
      std::memcpy(&h.edge, body.data() + 4, 4);
      std::memcpy(&h.micro_batch, body.data() + 8, 4);
      std::memcpy(&h.piece, body.data() + 12, 4);
      std::memcpy(&h.total, body.data() + 16, 8);
      h.length = static_cast<uint32_t>(size - 24);
      if (static_cast<int>(body[3]) & 1) h.total = h.length;
      link.received(lane, frame_of(h, body.subspan(24)), now, owner);
    }
    link.tick(now, owner);
    if (owner.last_token) link.sent(owner.last_token, now, owner);
    owner.last_token = 0;
  }
  // Every link ends if nothing else happens.
  for (int i = 0; i < 1000 && !link.is_dead(); ++i) {
    check(link.next_tick() != kNever, "a link waits for ever");
    now = std::max(now, link.next_tick());
    link.tick(now, owner);
  }
  check(link.is_dead(), "a link without a peer does not end");
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  std::span<const std::byte> payload;
  const auto header = weft::decode_frame(bytes, &payload);
  if (header.ok()) {
    std::array<std::byte, weft::kHeaderBytes> again;
    weft::encode_header(header.value(), payload, again);
    // The minor version is not checked, and not kept.
    again[5] = bytes[5];
    weft::check(std::memcmp(again.data(), bytes.data(), 56) == 0, "a frame reads as another");
  }
  if (const auto origin = weft::decode_origin(bytes); origin.ok()) {
    const auto again = weft::decode_origin(weft::encode_origin(origin.value()));
    weft::check(again.ok() && again.value() == origin.value(), "a failure reads as another");
  }
  weft::feed(bytes);
  return 0;
}
