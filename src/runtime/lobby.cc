#include "runtime/lobby.h"

#include <algorithm>

#include "base/text.h"

namespace weft {

namespace {
// Bytes of what comes from those whom nobody knows yet: a request to join, and the first frame of a rank, which is a hello.
constexpr size_t kMostRequest = 65536, kMostHello = 4096;

Origin no_run(const Status& why) { return {.rank = 0, .code = Code::peer, .text = cat("rank 0 began no run: ", why.text())}; }
}  // namespace

// A connection that has not said yet what it is, or that waits for its rank.
struct Lobby::Guest final : Loop::Disposable, LinkEffects {
  Guest(Lobby& l, std::unique_ptr<Wire> w, LinkTime now)
      : lobby(l), wire(std::move(w)), link(0, kNobody, lobby_identity(), l.times_, 1, kMostRequest), since(now) {}

  void send(Lane lane, std::span<const std::byte, kHeaderBytes> header, std::span<const std::byte> payload, uint64_t token) override {
    wire->connection().send(static_cast<int>(lane), header, payload, token);
  }
  void open() override {}
  Result<std::span<std::byte>> landing(const Tag&, uint64_t) override { return Status(Code::protocol, "a guest sends no tensors"); }
  void arrived(const Tag&) override {}
  void released(const Tag&) override {}
  void granted(const Tag&) override {}
  void message(uint32_t type, std::span<const std::byte> bytes) override {
    if (type == kJoinType) lobby.asked(*this, bytes);
  }
  void leaving() override {
    gone = said_bye = true;
    why.text = "it left";
  }
  void failed(const Origin& origin, bool by_abort) override {
    if (!by_abort && rank < 0) lobby.refusals_.add(wire->connection().peer(), origin.text);
    why = origin;
    told = by_abort;
    gone = true;
  }
  void closed() override { gone = true; }

  Lobby& lobby;
  std::unique_ptr<Wire> wire;
  Link link;
  LinkTime since;
  bool greeted = false;  // the first frame was a guest's
  bool gone = false, said_bye = false;
  Origin why;  // it has gone; by its own word if `told`
  bool told = false;
  int32_t rank = -1;
  std::vector<std::byte> request;  // came before anyone was expected
  int32_t member = -1;             // a rank of the run, with its first frame
  FrameHeader hello;
  int first_lane = 0;
  std::vector<std::byte> first;
};

Lobby::Lobby(Loop& loop, Transport& transport, Refusals& refusals, LinkTimes times, size_t most_early)
    : loop_(loop), transport_(transport), refusals_(refusals), times_(times), most_early_(most_early) {}
Lobby::~Lobby() = default;

Status Lobby::listen(const std::string& endpoint) {
  WEFT_TRY_ASSIGN(listener_, transport_.listen(
                                 endpoint, [this](std::unique_ptr<Connection> c) { accepted(std::move(c)); },
                                 [this](const std::string& peer, const std::string& why) { refusals_.add(peer, why); }));
  endpoint_ = listener_->endpoint();
  timer_ = std::make_unique<Loop::Timer>(loop_, [this] { tick(); });
  return {};
}

void Lobby::admit_guests(std::vector<PublicKey> keys) {
  guest_keys_ = std::move(keys);
  transport_.admit(guest_keys_, false);  // no rank comes before it has been welcomed here
}

void Lobby::admit_ranks(std::vector<PublicKey> keys) {
  if (!transport_.encrypts()) return;
  rank_keys_ = std::move(keys);
  transport_.admit(rank_keys_, false);
}

bool Lobby::may_ask(const Guest& guest) const {
  const PublicKey* const key = guest.wire->connection().key();
  return !transport_.encrypts() || (key && std::find(guest_keys_.begin(), guest_keys_.end(), *key) != guest_keys_.end());
}

bool Lobby::is_own_key(const PublicKey& key) const {
  if (!transport_.encrypts()) return true;
  for (size_t r = 1; r < seats_.size(); ++r)
    if (seats_[r] && joined_[r].key == key) return false;
  return key != PublicKey{} && std::find(guest_keys_.begin(), guest_keys_.end(), key) == guest_keys_.end();
}

void Lobby::accepted(std::unique_ptr<Connection> connection) {
  auto guest = std::make_unique<Guest>(*this, std::make_unique<Wire>(std::move(connection)), loop_.now_ms());
  Wire& wire = *guest->wire;
  guest->link.start(loop_.now_ms());
  guests_[&wire] = std::move(guest);
  tick_soon();
  wire.start(*this);
}

void Lobby::received(Wire& wire, int lane, std::span<const std::byte> frame) {
  auto at = guests_.find(&wire);
  if (at == guests_.end()) return;
  Guest& guest = *at->second;
  if (guest.member >= 0) return drop(wire);  // a rank says nothing more before it is answered
  if (!guest.greeted) {
    std::span<const std::byte> payload;
    auto header = decode_frame(frame, &payload);
    if (!header.ok()) return turn_away(wire, cat("not a weft frame: ", header.status().text()));  // nothing it could be told
    if (header.value().source != kNobody) return met_rank(guest, header.value(), lane, frame);
    guest.greeted = true;
    guest.link.connected(loop_.now_ms(), guest);
  }
  guest.link.received(static_cast<Lane>(lane), frame, loop_.now_ms(), guest);
  if (guest.gone) drop(wire);
}

// Whoever says that it is a rank of the run.
void Lobby::met_rank(Guest& guest, const FrameHeader& header, int lane, std::span<const std::byte> frame) {
  Wire& wire = *guest.wire;
  const std::string who = rank_name(header.source);
  guest.hello = header;
  if (failure_) return tell_failure(guest, *failure_), drop(wire);
  if (over_) return turn_away(wire, cat(who, " of a run that is over"));
  if (header.kind != FrameKind::hello || frame.size() > kMostHello)
    return turn_away(wire, cat(who, " begins with ", frame_kind_name(header.kind), " of ", frame.size(),
                               " bytes, expected hello of at most ", kMostHello));
  const auto early =
      static_cast<size_t>(std::count_if(guests_.begin(), guests_.end(), [](const auto& g) { return g.second->member >= 0; }));
  if (!member_ && early >= most_early_) return turn_away(wire, cat(who, " came before it was wanted, as ", early, " others did"));
  guest.member = header.source;
  guest.first_lane = lane;
  guest.first.assign(frame.begin(), frame.end());
  if (member_) hand_over(wire);
}

void Lobby::sent(Wire& wire, uint64_t token) {
  if (auto at = guests_.find(&wire); at != guests_.end()) at->second->link.sent(token, loop_.now_ms(), *at->second);
}

void Lobby::disconnected(Wire& wire, const std::string& why) {
  const auto at = guests_.find(&wire);
  if (at == guests_.end() || at->second->greeted || at->second->member >= 0) return drop(wire);
  turn_away(wire, cat("not a weft connection: ", why));
}

void Lobby::turn_away(Wire& wire, const std::string& why) {
  refusals_.add(wire.connection().peer(), why);
  drop(wire);
}

// A guest that left is no guest; its seat is free again.
void Lobby::drop(Wire& wire) {
  auto at = guests_.find(&wire);
  if (at == guests_.end()) return;
  std::unique_ptr<Guest> guest = std::move(at->second);
  guests_.erase(at);
  if (guest->rank >= 0) {
    seats_[static_cast<size_t>(guest->rank)] = nullptr;  // a guest with a rank sits there: see finish()
    if (done_) {
      joined_[static_cast<size_t>(guest->rank)] = {};
      const std::string rank = rank_name(guest->rank);
      refusals_.add(guest->wire->connection().peer(),
                    cat("it joined as ", rank, " and left before the others came; ", rank, " is awaited again"));
    }
    if (!guest->said_bye || !came_[static_cast<size_t>(guest->rank)]) tell_left(*guest);
  }
  guest->wire->connection().close_after(300);
  retire(loop_, std::move(guest->wire));
  loop_.dispose(std::move(guest));
}

void Lobby::tell_left(const Guest& guest) {
  if (!left_) return;
  const std::string who = cat("rank ", guest.rank);
  if (guest.told && guest.why.rank != kNobody) return left_(guest.why);  // it failed because of another rank
  if (guest.told) return left_({.rank = guest.rank, .code = guest.why.code, .text = cat(who, " failed: ", guest.why.text)});
  left_({.rank = guest.rank,
         .code = Code::peer,
         .text = cat(who, " lost before it had joined: ", guest.why.text.empty() ? "connection closed" : guest.why.text)});
}

void Lobby::expect(const Plan& plan, int64_t timeout_ms, std::function<void(const Status&)> done) {
  over_ = false;
  failure_.reset();
  plan_ = &plan;
  seats_.assign(static_cast<size_t>(plan.config.ranks), nullptr);
  joined_.assign(static_cast<size_t>(plan.config.ranks), {});
  came_.assign(static_cast<size_t>(plan.config.ranks), false);
  joined_[0].endpoint = endpoint();
  deadline_ = loop_.now_ms() + timeout_ms;
  done_ = std::move(done);
  tick_soon();
  // Some have asked already; those first that came first.
  std::vector<Guest*> early;
  for (auto& [wire, guest] : guests_)
    if (!guest->request.empty()) early.push_back(guest.get());
  std::sort(early.begin(), early.end(), [](const Guest* a, const Guest* b) { return a->since < b->since; });
  for (Guest* guest : early) asked(*guest, std::exchange(guest->request, {}));
  finish_if_full();
  if (!stopped_.ok()) stop(stopped_);
}

void Lobby::stop(const Status& why) {
  if (stopped_.ok()) stopped_ = why;
  if (done_) return finish(why);
  for (auto& [wire, guest] : guests_)
    if (!guest->request.empty()) guest->link.abort(no_run(why), loop_.now_ms(), *guest);
}

void Lobby::asked(Guest& guest, std::span<const std::byte> bytes) {
  if (guest.rank >= 0 || !guest.request.empty())  // has its rank, and keeps it
    return refusals_.add(guest.wire->connection().peer(), "it asked to join twice");
  if (!may_ask(guest)) return refuse(guest, Status(Code::invalid, "a rank of a run does not join again"));
  if (!plan_) {
    if (!stopped_.ok()) return guest.link.abort(no_run(stopped_), loop_.now_ms(), guest);  // none will be expected
    guest.request.assign(bytes.begin(), bytes.end());
    return;
  }
  auto request = decode_join(bytes);
  const Status status = request.ok() ? seat(guest, request.value()) : request.status();
  if (!status.ok()) return refuse(guest, status);
  finish_if_full();
}

Status Lobby::seat(Guest& guest, const JoinRequest& request) {
  if (!done_) return Status(Code::state, "the run has all its ranks");
  // Who has a plan has made the model.
  WEFT_TRY(request.plan ? compare_plans(plan_->hash, *request.plan) : check_ops(*plan_->model, request.ops));
  if (!is_own_key(request.key)) return Status(Code::invalid, "its key for the run is that of another");
  const int32_t ranks = static_cast<int32_t>(seats_.size());
  const int32_t free = static_cast<int32_t>(std::find(seats_.begin() + 1, seats_.end(), nullptr) - seats_.begin());
  const int32_t rank = request.wanted_rank < 0 ? free : request.wanted_rank;
  if (rank < 1 || rank >= ranks) return Status(Code::invalid, cat("it asks to be rank ", rank, ", the run has the ranks 0 to ", ranks - 1));
  if (Guest* const there = seats_[static_cast<size_t>(rank)]) {
    // Nobody knows its rank before the welcome, so a process that may have any makes room.
    if (joined_[static_cast<size_t>(rank)].wanted_rank >= 0)
      return Status(Code::invalid, cat("it asks to be rank ", rank, ", which has joined already"));
    place(*there, free, joined_[static_cast<size_t>(rank)]);
  }
  place(guest, rank, request);
  return {};
}

void Lobby::place(Guest& guest, int32_t rank, const JoinRequest& request) {
  guest.rank = rank;
  seats_[static_cast<size_t>(rank)] = &guest;
  joined_[static_cast<size_t>(rank)] = request;
}

void Lobby::refuse(Guest& guest, const Status& why) {
  refusals_.add(guest.wire->connection().peer(), why.text());
  guest.link.abort({.rank = kNobody, .code = Code::peer, .text = cat("refused by rank 0: ", why.text())}, loop_.now_ms(), guest);
}

void Lobby::tick() {
  ticks_ = false;
  const LinkTime now = loop_.now_ms();
  std::vector<Wire*> over;
  for (auto& [wire, guest] : guests_) {
    if (guest->member >= 0) continue;  // its next word is ours, once it is wanted
    if (guest->greeted && guest->link.next_tick() <= now) guest->link.tick(now, *guest);
    // A connection that says nothing is no guest.
    const bool silent = !guest->greeted && now - guest->since > times_.hello;
    if (silent)
      refusals_.add(wire->connection().peer(),
                    cat("not a weft connection: it said nothing for ", static_cast<double>(times_.hello) / 1000, " s"));
    if (silent || guest->gone || guest->link.is_dead()) over.push_back(wire);
  }
  for (Wire* wire : over) drop(*wire);
  if (done_ && now >= deadline_) {
    std::string missing;
    int count = 0;
    for (size_t r = 1; r < seats_.size(); ++r)
      if (!seats_[r]) {
        missing += cat(missing.empty() ? "" : ", ", r);
        ++count;
      }
    if (count)
      finish(Status(Code::timed_out,
                    cat(count > 1 ? "ranks " : "rank ", missing, count > 1 ? " have" : " has", " not joined at ", endpoint(), " in time")));
  }
  if (done_ || !guests_.empty()) tick_soon();
}

void Lobby::tick_soon() {
  if (ticks_) return;
  ticks_ = true;
  timer_->start(50);
}

void Lobby::finish_if_full() {
  if (done_ && std::count(seats_.begin() + 1, seats_.end(), nullptr) == 0) finish({});
}

void Lobby::finish(const Status& status) {
  auto done = std::move(done_);
  done_ = nullptr;
  done(status);
  if (!status.ok()) send_away(status);
}

// Those that came wait for a word. They go when they have heard it, and have no part in what is expected next.
void Lobby::send_away(const Status& status) {
  const Origin why = no_run(status);
  for (auto& [wire, guest] : guests_) {
    guest->rank = -1;
    guest->request.clear();
    if (guest->greeted) guest->link.abort(why, loop_.now_ms(), *guest);
  }
  seats_.clear();
  joined_.clear();
  plan_ = nullptr;
}

void Lobby::take_members(int32_t self, const Identity& run, Member member) {
  self_ = self;
  run_ = run;
  member_ = std::move(member);
  over_ = false;
  std::vector<Wire*> waiting;
  for (auto& [wire, guest] : guests_)
    if (guest->member >= 0) waiting.push_back(wire);
  for (Wire* wire : waiting) hand_over(*wire);
}

// The key of the rank, or where nothing is encrypted the name of the run, tells who was welcomed. If such a rank differs in something else,
// the run cannot be, and its link says so.
Status Lobby::check_member(const Guest& guest) const {
  if (transport_.encrypts()) {
    const PublicKey* const key = guest.wire->connection().key();
    const auto rank = static_cast<size_t>(guest.member);
    if (!key || rank >= rank_keys_.size() || rank_keys_[rank] != *key)
      return Status(Code::peer, cat("it says that it is ", rank_name(guest.member), ", which has another key"));
  }
  WEFT_TRY_ASSIGN(const Identity theirs, decode_hello(std::span(guest.first).subspan(kHeaderBytes)));
  if (theirs.run == run_.run && theirs.incarnation == run_.incarnation) return {};
  return compare_identity(self_, run_, guest.member, theirs);
}

void Lobby::hand_over(Wire& wire) {
  auto at = guests_.find(&wire);
  if (const Status status = check_member(*at->second); !status.ok()) {
    tell_failure(*at->second, {.rank = at->second->member, .code = status.code(), .text = status.text()});
    return turn_away(wire, status.text());
  }
  std::unique_ptr<Guest> guest = std::move(at->second);
  guests_.erase(at);
  guest->wire->hand_to(nullptr);
  if (member_(guest->member, guest->wire, guest->first_lane, guest->first)) {
    if (static_cast<size_t>(guest->member) < came_.size()) came_[static_cast<size_t>(guest->member)] = true;
  } else {
    refusals_.add(guest->wire->connection().peer(), cat("a second connection of ", rank_name(guest->member)));
    retire(loop_, std::move(guest->wire));
  }
  loop_.dispose(std::move(guest));
}

void Lobby::welcome(const Welcome& base, Left left) {
  left_ = std::move(left);
  for (size_t r = 1; r < seats_.size(); ++r) {
    Guest* guest = seats_[r];
    if (!guest) {  // left in between
      left_(
          {.rank = static_cast<int32_t>(r), .code = Code::peer, .text = cat("rank ", r, " lost before it had joined: connection closed")});
      continue;
    }
    Welcome own = base;
    own.rank = static_cast<int32_t>(r);
    guest->link.send_message(kWelcomeType, encode_welcome(own), loop_.now_ms(), *guest);
  }
}

// From a link of its own, which has nothing else to say.
void Lobby::tell_failure(Guest& guest, const Origin& origin) {
  Identity identity;
  identity.incarnation = guest.hello.incarnation;
  Link link(self_, guest.hello.source, identity);
  link.abort(origin, loop_.now_ms(), guest);
  link.connected(loop_.now_ms(), guest);
}

void Lobby::dismiss(const Origin& origin) {
  failure_ = origin;
  for (Guest* guest : seats_)
    if (guest) guest->link.abort(origin, loop_.now_ms(), *guest);
}

void Lobby::end_run() {
  member_ = nullptr;
  left_ = nullptr;
  over_ = true;
}

}  // namespace weft
