// Two links on a simulated network under a virtual clock.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "link/link.h"
#include "support/sim_network.h"

namespace weft::test {

inline Identity identity() {
  Identity id;
  id.incarnation = 4;
  id.version = "0.1.0";
  id.profile = "avx2+blis";
  id.run = {1, 2};
  id.model = {3, 4};
  id.partition = {5, 6};
  id.schedule = {7, 8};
  id.settings = {9, 10};
  return id;
}

inline std::vector<std::byte> pattern(size_t size, uint64_t seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>((i * 2654435761u + seed * 40503u) >> 11);
  return bytes;
}

// One end: owns the memory that it sends and receives, and records the calls of the link.
class Side final : public LinkEffects {
 public:
  Side(int32_t self, int32_t peer, const Identity& id, SimNetwork& network, LinkTimes times = {})
      : link(self, peer, id, times), self_(self), network_(network) {}

  void send(Lane lane, std::span<const std::byte, kHeaderBytes> header,
            std::span<const std::byte> payload, uint64_t token) override {
    network_.send(self_, link.peer(), lane, header, payload, token, now);
  }
  void open() override { ++opened; }
  Result<std::span<std::byte>> landing(const Tag& tag, uint64_t bytes) override {
    if (refuse) return Status(Code::protocol, "no grant for it");
    auto& place = landed[{tag.edge, tag.micro_batch}];
    place.assign(static_cast<size_t>(bytes), std::byte{0xee});
    return std::span<std::byte>(place);
  }
  void arrived(const Tag& tag) override { arrivals.push_back(tag); }
  void released(const Tag& tag) override {
    auto& memory = out[{tag.edge, tag.micro_batch}];
    std::fill(memory.begin(), memory.end(), std::byte{0x55});  // a later read sends garbage
    releases.push_back(tag);
  }
  void granted(const Tag& tag) override { grants.push_back(tag); }
  void message(uint32_t type, std::span<const std::byte> bytes) override {
    messages.emplace_back(type, std::vector<std::byte>(bytes.begin(), bytes.end()));
  }
  void leaving() override { ++leavings; }
  void failed(const Origin& origin, bool by_abort) override {
    ++failures;
    failure = origin;
    aborted = by_abort;
    failed_at = now;
  }
  void closed() override { ++closes; }
  std::string trouble() override { return last_try; }

  void send_tensor(const Tag& tag, std::vector<std::byte> bytes) {
    auto& memory = out[{tag.edge, tag.micro_batch}];
    memory = std::move(bytes);
    link.send_tensor(tag, memory, *this);
  }

  Link link;
  LinkTime now = 0;
  int opened = 0, leavings = 0, failures = 0, closes = 0;
  bool refuse = false, aborted = false;
  Origin failure;
  std::string last_try;  // the reason from the transport
  LinkTime failed_at = -1;
  std::map<std::pair<int32_t, int32_t>, std::vector<std::byte>> out, landed;
  std::vector<Tag> arrivals, releases, grants;
  std::vector<std::pair<uint32_t, std::vector<std::byte>>> messages;

 private:
  const int32_t self_;
  SimNetwork& network_;
};

class Pair {
 public:
  explicit Pair(uint64_t seed = 1, SimFaults faults = {}, const Identity& left = identity(),
                const Identity& right = identity(), LinkTimes times = {})
      : network(seed, faults), a(2, 5, left, network, times), b(5, 2, right, network, times) {
    a.link.start(0);
    b.link.start(0);
    network.connect(2, 5, 0);
  }
  Side& side(int32_t rank) { return rank == 2 ? a : b; }

  // Everything that happens up to that time.
  void run_until(LinkTime end) {
    for (;;) {
      const LinkTime tick =
          std::min(a_deaf ? kNever : a.link.next_tick(), b_deaf ? kNever : b.link.next_tick());
      const LinkTime next = std::min(network.next_time(), tick);
      if (next > end || next == kNever) break;
      set_now(std::max(now, next));
      if (network.next_time() <= tick) {
        SimNetwork::Event event;
        if (network.take(event)) handle(event);
      } else {
        Side& side = (!a_deaf && a.link.next_tick() == tick) ? a : b;
        side.link.tick(now, side);
      }
      for (Side* s : {&a, &b})
        if (s->link.is_dead()) network.close(s == &a ? 2 : 5, s == &a ? 5 : 2, now);
    }
    if (end != kNever) set_now(end);
  }
  void run_for(LinkTime time) { run_until(now + time); }
  bool open() const { return a.link.is_open() && b.link.is_open(); }

  SimNetwork network;
  Side a, b;
  LinkTime now = 0;
  std::string why = "connection closed";  // the reason of a loss from the transport
  bool a_deaf = false, b_deaf = false;    // its loop hangs

 private:
  void set_now(LinkTime time) { now = a.now = b.now = time; }
  void handle(const SimNetwork::Event& event) {
    if (event.rank == 2 ? a_deaf : b_deaf) return;
    Side& s = side(event.rank);
    switch (event.kind) {
      case SimNetwork::Event::Kind::connected: return s.link.connected(now, s);
      case SimNetwork::Event::Kind::frame: return s.link.received(event.lane, event.frame, now, s);
      case SimNetwork::Event::Kind::sent: return s.link.sent(event.token, now, s);
      case SimNetwork::Event::Kind::disconnected: return s.link.disconnected(why, now, s);
    }
  }
};

}  // namespace weft::test
