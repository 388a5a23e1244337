// A network under a virtual clock, between any number of ranks: connections with two lanes, each in
// order unless a seeded fault changes it. It replaces net/transport.h with the same rules for
// memory: a payload with a token is read when it is "sent".
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "link/link.h"

namespace weft::test {

// Faults per million frames.
struct SimFaults {
  uint32_t lose = 0, duplicate = 0, reorder = 0, corrupt = 0;
  uint32_t disconnect = 0;           // the connection breaks instead
  LinkTime latency = 0, jitter = 0;  // of every frame: latency + at most jitter
};

class SimNetwork {
 public:
  struct Event {
    enum class Kind : uint8_t { connected, frame, sent, disconnected } kind = Kind::frame;
    int32_t rank = 0, peer = 0;  // happens at `rank`
    Lane lane = Lane::control;
    uint64_t token = 0;
    std::vector<std::byte> frame;  // for `sent`: the header, until the payload is read
    std::span<const std::byte> payload;
    LinkTime time = 0;
    uint64_t order = 0;
    size_t connection = 0;
  };

  SimNetwork(uint64_t seed, SimFaults faults) : rng_(seed), faults_(faults) {}

  void set_faults(SimFaults faults) { faults_ = faults; }
  int64_t faults_made() const { return made_; }

  void connect(int32_t a, int32_t b, LinkTime now);
  void send(int32_t from, int32_t to, Lane lane, std::span<const std::byte> header,
            std::span<const std::byte> payload, uint64_t token, LinkTime now);
  // `rank` closes: frames that it has sent still arrive, then the connection of the peer is closed.
  void close(int32_t rank, int32_t peer, LinkTime now);
  // Breaks the connection: frames in transit are lost, and both ends get the event.
  void cut(int32_t a, int32_t b, LinkTime now);
  // Ends the rank and its connections; its peers get the event.
  void kill(int32_t rank, LinkTime now);
  // The rank stops sending and receiving; its peers get no event.
  void stall(int32_t rank) { stalled_.insert(rank); }

  bool empty() const { return heap_.empty(); }
  LinkTime next_time() const { return heap_.empty() ? kNever : heap_.front().time; }
  // Takes the next event; false if it has no effect because its connection or rank has ended.
  bool take(Event& event);

 private:
  struct End {
    int32_t rank = 0;
    bool closed = false;        // neither sends nor receives
    LinkTime last[2] = {0, 0};  // arrival of its last frame per lane
    LinkTime last_sent = 0;
  };
  struct Connection {
    End ends[2];
    bool broken = false;  // frames in transit are lost
  };
  void push(Event event, LinkTime time);
  void fly(Event frame, LinkTime now);
  void tell_closed(size_t connection, int32_t rank, int32_t peer, LinkTime time);
  LinkTime delay();
  bool happens(uint32_t chance);
  Connection* find(int32_t a, int32_t b);
  static End& end(Connection& c, int32_t rank) { return c.ends[c.ends[0].rank == rank ? 0 : 1]; }

  std::mt19937_64 rng_;
  SimFaults faults_;
  int64_t made_ = 0;
  std::vector<Connection> connections_;
  std::map<std::pair<int32_t, int32_t>, size_t> current_;  // of a pair, lower rank first
  std::set<int32_t> stalled_;
  std::vector<Event> heap_;
  uint64_t order_ = 0;
};

}  // namespace weft::test
