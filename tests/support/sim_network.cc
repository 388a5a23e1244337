#include "support/sim_network.h"

#include <algorithm>

namespace weft::test {

namespace {
struct Later {
  bool operator()(const SimNetwork::Event& a, const SimNetwork::Event& b) const {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }
};
}  // namespace

bool SimNetwork::happens(uint32_t chance) {
  if (chance == 0 || rng_() % 1000000 >= chance) return false;
  ++made_;
  return true;
}

void SimNetwork::push(Event event, LinkTime time) {
  event.time = time;
  event.order = order_++;
  heap_.push_back(std::move(event));
  std::push_heap(heap_.begin(), heap_.end(), Later{});
}

LinkTime SimNetwork::delay() {
  return faults_.latency +
         (faults_.jitter > 0
              ? static_cast<LinkTime>(rng_() % static_cast<uint64_t>(faults_.jitter + 1))
              : 0);
}

SimNetwork::Connection* SimNetwork::find(int32_t a, int32_t b) {
  const auto found = current_.find(std::minmax(a, b));
  return found == current_.end() ? nullptr : &connections_[found->second];
}

void SimNetwork::connect(int32_t a, int32_t b, LinkTime now) {
  Connection made;
  for (size_t i = 0; i < 2; ++i)
    made.ends[i] = {.rank = i == 0 ? a : b, .closed = false, .last = {now, now}, .last_sent = now};
  current_[std::minmax(a, b)] = connections_.size();
  for (const auto& [rank, peer] : {std::pair{a, b}, std::pair{b, a}}) {
    Event event;
    event.kind = Event::Kind::connected;
    event.rank = rank;
    event.peer = peer;
    event.connection = connections_.size();
    // No message of the peer arrives before.
    made.ends[rank == a ? 1 : 0].last[0] = made.ends[rank == a ? 1 : 0].last[1] = now + delay();
    push(std::move(event), made.ends[rank == a ? 1 : 0].last[0]);
  }
  connections_.push_back(made);
}

void SimNetwork::send(int32_t from, int32_t to, Lane lane, std::span<const std::byte> header,
                      std::span<const std::byte> payload, uint64_t token, LinkTime now) {
  Connection* c = find(from, to);
  if (!c || c->broken || end(*c, from).closed || stalled_.contains(from)) return;
  Event event;
  event.rank = from;
  event.peer = to;
  event.lane = lane;
  event.token = token;
  event.connection = current_[std::minmax(from, to)];
  event.frame.assign(header.begin(), header.end());
  if (token == 0) {
    event.frame.insert(event.frame.end(), payload.begin(), payload.end());
    return fly(std::move(event), now);
  }
  event.kind = Event::Kind::sent;
  event.payload = payload;
  LinkTime& last = end(*c, from).last_sent;
  last = std::max(last, now + static_cast<LinkTime>(rng_() % 2));
  push(std::move(event), last);
}

// `frame` names its sender as `rank`.
void SimNetwork::fly(Event frame, LinkTime now) {
  const int32_t from = frame.rank, to = frame.peer;
  if (happens(faults_.disconnect)) return cut(from, to, now);
  if (happens(faults_.lose)) return;
  if (happens(faults_.corrupt)) {
    const size_t bit = static_cast<size_t>(rng_() % (frame.frame.size() * 8));
    frame.frame[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
  frame.kind = Event::Kind::frame;
  frame.token = 0;
  frame.payload = {};
  frame.rank = to;
  frame.peer = from;
  LinkTime& last = end(connections_[frame.connection], from).last[static_cast<size_t>(frame.lane)];
  LinkTime arrival = std::max(last, now + delay());
  if (happens(faults_.reorder))
    arrival += 1 + static_cast<LinkTime>(rng_() % 20);  // later frames can overtake it
  else
    last = arrival;
  if (happens(faults_.duplicate)) push(frame, arrival + static_cast<LinkTime>(rng_() % 20));
  push(std::move(frame), arrival);
}

void SimNetwork::tell_closed(size_t connection, int32_t rank, int32_t peer, LinkTime time) {
  Event event;
  event.kind = Event::Kind::disconnected;
  event.rank = rank;
  event.peer = peer;
  event.connection = connection;
  push(std::move(event), time);
}

void SimNetwork::close(int32_t rank, int32_t peer, LinkTime now) {
  Connection* c = find(rank, peer);
  if (!c || end(*c, rank).closed) return;
  End& mine = end(*c, rank);
  mine.closed = true;
  tell_closed(current_[std::minmax(rank, peer)], peer, rank,
              std::max({mine.last[0], mine.last[1], now + faults_.latency}));
}

void SimNetwork::cut(int32_t a, int32_t b, LinkTime now) {
  Connection* c = find(a, b);
  if (!c || c->broken) return;
  c->broken = true;
  tell_closed(current_[std::minmax(a, b)], a, b, now + delay());
  tell_closed(current_[std::minmax(a, b)], b, a, now + delay());
}

void SimNetwork::kill(int32_t rank, LinkTime now) {
  for (const auto& [pair, connection] : current_)
    if (pair.first == rank || pair.second == rank)
      close(rank, pair.first == rank ? pair.second : pair.first, now);
  stall(rank);
}

bool SimNetwork::take(Event& event) {
  std::pop_heap(heap_.begin(), heap_.end(), Later{});
  event = std::move(heap_.back());
  heap_.pop_back();
  Connection& c = connections_[event.connection];
  if (stalled_.contains(event.rank) || end(c, event.rank).closed) return false;
  if (c.broken && event.kind != Event::Kind::disconnected) return false;
  if (event.kind == Event::Kind::sent) {
    Event frame = event;
    frame.frame.insert(frame.frame.end(), event.payload.begin(), event.payload.end());
    fly(std::move(frame), event.time);
  }
  return true;
}

}  // namespace weft::test
