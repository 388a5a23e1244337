// A rank and its peers: joining, failing, leaving. The messages of a step are in flow.cc.
#include "node/node.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "node/adapters.h"

namespace weft {

std::vector<int32_t> RankNode::peers_of(const Plan& plan, int32_t rank) {
  std::set<int32_t> peers = {0};
  for (int32_t r = 1; rank == 0 && r < plan.config.ranks; ++r) peers.insert(r);
  for (const ModePlan& mode : plan.modes) {
    if (!mode.present) continue;
    for (int32_t id : mode.ranks[static_cast<size_t>(rank)].edges) {
      const Edge& e = mode.edges[static_cast<size_t>(id)];
      peers.insert({e.from_rank, e.to_rank});
    }
  }
  peers.erase(rank);
  return {peers.begin(), peers.end()};
}

RankNode::RankNode(std::shared_ptr<const Plan> plan, int32_t rank, const Identity& identity,
                   RankNodeEffects& effects, LinkTimes times)
    : plan_(std::move(plan)),
      rank_(rank),
      effects_(effects),
      process_(identity.process),
      join_time_(2 * times.hello),
      peers_(peers_of(*plan_, rank)),
      router_(plan_, rank, *this, [this](int32_t peer) {
        return static_cast<int32_t>(std::lower_bound(peers_.begin(), peers_.end(), peer) -
                                    peers_.begin());
      }) {
  for (int32_t peer : peers_)
    links_.push_back(
        std::make_unique<Peer>(*this, peer, identity, times, router_.most_posts(peer)));
  size_t edges = 0, landing = 0, granted = 0;
  for (const ModePlan& mode : plan_->modes) {
    const std::span<const Route> routes = router_.routes(mode.mode);
    edges += routes.size();
    for (const Route& r : routes)
      if (const Edge& edge = mode.edges[static_cast<size_t>(r.edge)]; r.incoming) {
        landing += static_cast<size_t>(edge.landing_slots);
        granted += static_cast<size_t>(edge.open);
      }
  }
  queue_ = Fifo<Event>(64 + 2 * edges + 3 * granted);
  early_.reserve(landing);
  const size_t updates = static_cast<size_t>(plan_->config.segment);
  numbers_.reserve(controls() ? plan_->model->params().size() * std::max<size_t>(updates, 1)
                              : updates);
  denominators_.reserve(updates);
}

RankNode::~RankNode() = default;

RankNode::Peer* RankNode::find(int32_t rank) {
  const auto at = std::lower_bound(peers_.begin(), peers_.end(), rank);
  return at == peers_.end() || *at != rank ? nullptr
                                           : links_[static_cast<size_t>(at - peers_.begin())].get();
}

// --- events from outside

void RankNode::start(LinkTime now) {
  for (auto& peer : links_) peer->link.start(now);
  if (controls()) join_by_ = now + join_time_;
  if (!peers_.empty()) return;
  now_ = now;
  fault_ = joined_here();
  drain(now);
}

void RankNode::connected(int32_t peer, LinkTime now) {
  now_ = now;
  Peer* p = find(peer);
  if (!p) return;
  p->connected = true;
  p->link.connected(now, *p);
  drain(now);
}

void RankNode::disconnected(int32_t peer, const std::string& why, LinkTime now) {
  now_ = now;
  if (Peer* p = find(peer)) p->link.disconnected(why, now, *p);
  drain(now);
}

void RankNode::received(int32_t peer, Lane lane, std::span<const std::byte> frame, LinkTime now) {
  now_ = now;
  if (Peer* p = find(peer)) {
    p->link.received(lane, frame, now, *p);
    if (suspicion_.of == peer && p->link.is_open()) refute_suspicion(peer);
  }
  drain(now);
}

void RankNode::sent(int32_t peer, uint64_t token, LinkTime now) {
  now_ = now;
  if (Peer* p = find(peer)) p->link.sent(token, now, *p);
  drain(now);
}

LinkTime RankNode::next_tick() const {
  LinkTime next = failed_ ? kNever : std::min(suspicion_.until, join_by_);
  for (const auto& peer : links_) next = std::min(next, peer->link.next_tick());
  return next;
}

void RankNode::tick(LinkTime now) {
  now_ = now;
  if (next_tick() > now) return;
  for (auto& peer : links_) {
    peer->link.set_activity(engine().activity());
    peer->link.tick(now, *peer);
  }
  if (!failed_ && now >= join_by_) fail_with(not_joined());
  drain(now);
  confirm_suspicion();
}

void RankNode::ran(int32_t job, std::span<const double> squares, const Status& status, LinkTime now,
                   const JobTime& time) {
  if (failed_) return;
  now_ = now;
  if (status.ok())
    note(router_.ran(job, squares, time));
  else
    fail_with(of_this(status.code(), status.text(), engine().activity()));
  drain(now);
}

void RankNode::copied(int32_t edge, int32_t micro_batch, LinkTime now) {
  if (failed_) return;
  copied_here(at(router_.step(), edge, micro_batch));
  drain(now);
}

Status RankNode::begin(const StepDescriptor& step, LinkTime now) {
  if (failed_) return Status(origin_);
  if (!controls() || !joined_ || leaving_)
    return Status(Code::state, cat("rank ", rank_, " cannot begin a step now"));
  if (!plan_->mode(step.mode).present)
    return Status(Code::invalid, cat("the plan has no ", mode_name(step.mode), " mode"));
  const int32_t most = plan_->micro_batches(step.mode);
  if (step.micro_batches < 1 || step.micro_batches > most)
    return Status(Code::invalid,
                  cat("step of ", step.micro_batches, " micro-batches, the plan has ", most));
  now_ = now;
  WEFT_TRY(router_.begin(step));
  begun_at_[next_sequence_ % kStepsAtOnce] = now;
  drain(now);
  return failed_ ? Status(origin_) : Status();
}

Status RankNode::feed(int32_t micro_batches, LinkTime now) {
  if (failed_) return Status(origin_);
  now_ = now;
  note(router_.feed(micro_batches));
  drain(now);
  return failed_ ? Status(origin_) : Status();
}

void RankNode::open_sinks(LinkTime now) {
  if (failed_) return;
  now_ = now;
  router_.open_sinks();
  drain(now);
}

void RankNode::send_message(int32_t peer, uint32_t type, std::span<const std::byte> bytes,
                            LinkTime now) {
  if (Peer* p = find(peer)) p->link.send_message(type, bytes, now, *p);
  drain(now);
}

Origin RankNode::of_this(Code code, const std::string& detail, const Activity& during) const {
  return {
      .rank = rank_, .code = code, .cause = Cause::failed, .activity = during, .detail = detail};
}

void RankNode::fail(Code code, const std::string& detail, LinkTime now, const Activity& during) {
  now_ = now;
  fail_with(of_this(code, detail, during));
  drain(now);
}

void RankNode::fail(const Origin& origin, LinkTime now) {
  now_ = now;
  fail_with(origin);
  drain(now);
}

void RankNode::bye(LinkTime now) {
  if (failed_ || leaving_ || !joined_) return;
  if (!idle()) return fail(Code::state, "it left while a step ran", now);
  now_ = now;
  leaving_ = true;
  for (auto& peer : links_) peer->link.bye(now, *peer);
  if (peers_.empty()) {
    closed_ = true;
    effects_.closed();
  }
  drain(now);
}

bool RankNode::idle() const { return !failed_ && router_.idle(); }

bool RankNode::must_progress() const {
  if (failed_ || router_.idle()) return false;
  if (engine().activity().state == Activity::State::runs) return true;
  const bool peer_runs = std::any_of(links_.begin(), links_.end(), [](const auto& peer) {
    return peer->link.peer_activity().state == Activity::State::runs;
  });
  return controls() && !awaits_owner() && !peer_runs;
}

bool RankNode::awaits_owner() const { return controls() && router_.controller()->awaits_owner(); }

bool RankNode::is_dead() const {
  return std::all_of(links_.begin(), links_.end(),
                     [](const auto& peer) { return peer->link.is_dead(); });
}

std::string RankNode::describe(LinkTime now) const {
  if (failed_) return origin_text(origin_);
  std::string text = controls() ? cat(router_.controller()->describe(), "; ") : "";
  append(text, "rank ", rank_, ": ", activity_text(engine().activity()));
  for (const auto& peer : links_) {
    const Link& link = peer->link;
    if (controls() && link.peer_activity().state != Activity::State::unknown)
      text += cat("; rank ", peer->rank, ": ", activity_text(link.peer_activity()), " (",
                  static_cast<double>((now - link.peer_activity_at()) / 100) / 10, " s ago)");
    if (!peer->link.is_open()) text += cat("; no link with rank ", peer->rank);
  }
  return text;
}

// --- the queue

void RankNode::push(const Event& event) { queue_.push(event); }

// The failure of an effect: the first one counts, when drain() reads it.
void RankNode::note(const Status& status) {
  if (fault_.ok()) fault_ = status;
}

void RankNode::drain(LinkTime now) {
  now_ = now;
  auto settle = [&](const Status& status, int32_t peer) {
    if (status.ok() || failed_) return;
    // A failure that a peer caused names the peer; any other names this rank.
    if (peer != rank_ && status.code() == Code::protocol)
      fail_with(
          {.rank = peer, .code = status.code(), .cause = Cause::protocol, .detail = status.text()});
    else
      fail_with(of_this(status.code(), status.text()));
  };
  settle(std::exchange(fault_, {}), rank_);
  while (!queue_.empty()) {
    const Event event = queue_.pop();
    if (failed_) continue;
    settle(handle(event), event.peer);
    settle(std::exchange(fault_, {}), rank_);
  }
  hang_up_dead();
}

Status RankNode::handle(const Event& event) {
  switch (event.kind) {
    case Event::Kind::opened:
      return ++open_links_ == static_cast<int32_t>(peers_.size()) ? joined_here() : Status();
    case Event::Kind::failed: {
      Peer& peer = *find(event.peer);
      if (ask_first(peer))
        suspect(peer);
      else
        fail_with(peer.origin);
      return {};
    }
    case Event::Kind::leaving: return left();
    case Event::Kind::closed:
      if (++closed_links_ == static_cast<int32_t>(peers_.size())) {
        closed_ = true;
        effects_.closed();
      }
      return {};
    case Event::Kind::joined: return received_joined(event.peer);
    case Event::Kind::arrived: return arrived(event);
    case Event::Kind::granted: return granted(event);
    case Event::Kind::released: return released(event);
    case Event::Kind::control: return received_control(event.peer, event.control);
  }
  return {};
}

// --- joining, failing, leaving

Status RankNode::joined_here() {
  if (controls()) return received_joined(0);
  joined_ = true;
  Peer* zero = find(0);
  zero->link.send_message(kJoinedMessage, {}, now_, *zero);
  effects_.joined();
  return {};
}

Status RankNode::received_joined(int32_t from) {
  if (!controls()) return Status(Code::protocol, "it sent joined to a rank other than 0");
  if (Peer* peer = find(from)) {
    if (peer->joined) return Status(Code::protocol, "it has joined twice");
    peer->joined = true;
  }
  if (++joined_ranks_ < plan_->config.ranks) return {};
  joined_ = true;
  join_by_ = kNever;
  effects_.joined();
  return {};
}

Origin RankNode::not_joined() const {
  const auto missing =
      std::find_if(links_.begin(), links_.end(), [](const auto& peer) { return !peer->joined; });
  return {.rank = (*missing)->rank,
          .code = Code::timed_out,
          .cause = Cause::late,
          .limit_ms = join_time_,
          .detail = "connect with the other ranks"};
}

// Adds the information of this rank about the rank that failed.
void RankNode::complete(Origin& origin) {
  if (origin.rank < 0 || origin.rank >= plan_->config.ranks) return;
  origin.stages = plan_->stages_on(origin.rank);
  const Peer* peer = find(origin.rank);
  if (origin.process.pid == 0 && origin.rank == rank_) origin.process = process_;
  if (origin.process.pid == 0 && peer) origin.process = peer->link.peer_process();
}

void RankNode::fail_with(const Origin& origin) {
  if (failed_ || closed_) return;
  origin_ = origin;
  failed_ = true;
  (void)attempt([this] { complete(origin_); });
  router_.abort();
  for (auto& peer : links_) peer->link.abort(origin_, now_, *peer);
  effects_.failed(origin_);
}

Status RankNode::left() {
  if (leaving_) return {};  // both ends sent bye at the same time
  if (controls() || !engine().idle())
    return Status(Code::protocol,
                  cat("it left ", engine().idle() ? "before rank 0 did"
                                                  : cat("while step ", step().step, " ran")));
  leaving_ = true;
  for (auto& peer : links_) peer->link.bye(now_, *peer);
  return {};
}

void RankNode::hang_up_dead() {
  for (auto& peer : links_) {
    if (peer->hung_up || !peer->connected || !peer->link.is_dead()) continue;
    peer->hung_up = true;
    effects_.hang_up(peer->rank);
  }
}

}  // namespace weft
