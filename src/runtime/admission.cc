#include "runtime/admission.h"

#include <algorithm>

#include "base/text.h"
#include "loop/descriptors.h"
#include "net/address.h"

namespace weft {

namespace {
// Limits for frames of unknown clients, in bytes: a request to join, and the first frame of a rank,
// which is a hello.
constexpr size_t kMostRequest = 65536, kMostHello = 4096;

// Two for the request of a rank to join, then two for the run, and some for other files.
constexpr int kDescriptorsPerRank = 4, kDescriptors = 8;

Origin no_run(const Status& why) {
  return {.rank = 0,
          .code = Code::peer,
          .cause = Cause::no_run,
          .process = own_process(),
          .detail = why.text()};
}
}  // namespace

// A connection whose first frame has not arrived, or that waits for its rank.
struct Admission::Candidate final : Loop::Disposable, LinkEffects {
  Candidate(Admission& l, std::unique_ptr<PeerConnection> w, LinkTime now)
      : admission(l),
        connection(std::move(w)),
        link(0, kNobody, admission_identity(), l.times_, 1, kMostRequest),
        since(now) {}

  void send(Lane lane, std::span<const std::byte, kHeaderBytes> header,
            std::span<const std::byte> payload, uint64_t token) override {
    connection->raw().send(static_cast<int>(lane), header, payload, token);
  }
  void open() override {}
  void message(uint32_t type, std::span<const std::byte> bytes) override {
    if (type == kJoinType) admission.join_requested(*this, bytes);
  }
  void leaving() override {
    gone = true;
    why.detail = "it left";
  }
  void failed(const Origin& origin, bool by_abort) override {
    if (!by_abort && admission.rank_of(*this) < 0)
      admission.count_refused(connection->raw().peer(), origin_text(origin));
    why = origin;
    reported = by_abort;
    gone = true;
  }
  void closed() override { gone = true; }

  Admission& admission;
  std::unique_ptr<PeerConnection> connection;
  Link link;
  LinkTime since;
  bool greeted = false;  // the first frame was from a candidate, not from a rank
  bool gone = false;
  Origin why{.cause = Cause::closed};  // why it is gone; the candidate reported it if `reported`
  bool reported = false;
  std::vector<std::byte> request;  // arrived before expect()
  int32_t member = -1;             // a rank of the run, whose first frame is in `first`
  FrameHeader hello;
  int first_lane = 0;
  std::vector<std::byte> first;
};

Admission::Admission(Loop& loop, Transport& transport, LinkTimes times, size_t most_early)
    : loop_(loop), transport_(transport), times_(times), most_early_(most_early) {}
Admission::~Admission() = default;

Status Admission::listen(const std::string& endpoint) {
  WEFT_TRY_ASSIGN(
      listener_,
      transport_.listen(
          endpoint, [this](std::unique_ptr<Connection> c) { accepted(std::move(c)); },
          [this](const std::string& peer, const std::string& why) { count_refused(peer, why); }));
  endpoint_ = listener_->endpoint();
  timer_ = std::make_unique<Loop::Timer>(loop_, [this] { tick(); });
  return {};
}

void Admission::admit_candidates(std::vector<PublicKey> keys) {
  candidate_keys_ = std::move(keys);
  transport_.admit(candidate_keys_);  // ranks are admitted after their welcome
}

void Admission::admit_ranks(std::vector<PublicKey> keys) {
  if (!transport_.encrypts()) return;
  rank_keys_ = std::move(keys);
  transport_.admit(rank_keys_);
}

bool Admission::may_join(const Candidate& candidate) const {
  const PublicKey* const key = candidate.connection->raw().key();
  return !transport_.encrypts() || (key && std::find(candidate_keys_.begin(), candidate_keys_.end(),
                                                     *key) != candidate_keys_.end());
}

bool Admission::is_own_key(const PublicKey& key) const {
  if (!transport_.encrypts()) return true;
  return key != PublicKey{} && !table_->has_key(key) &&
         std::find(candidate_keys_.begin(), candidate_keys_.end(), key) == candidate_keys_.end();
}

void Admission::accepted(std::unique_ptr<Connection> raw) {
  auto candidate = std::make_unique<Candidate>(
      *this, std::make_unique<PeerConnection>(std::move(raw)), loop_.now_ms());
  PeerConnection& connection = *candidate->connection;
  candidate->link.start(loop_.now_ms());
  candidates_[&connection] = std::move(candidate);
  tick_soon();
  connection.start(*this);
}

void Admission::received(PeerConnection& connection, int lane, std::span<const std::byte> frame) {
  auto at = candidates_.find(&connection);
  if (at == candidates_.end()) return;
  Candidate& candidate = *at->second;
  if (candidate.member >= 0) return drop(connection);  // a rank sends nothing before its answer
  if (!candidate.greeted) {
    std::span<const std::byte> payload;
    auto header = decode_frame(frame, &payload);
    if (!header.ok())
      return reject(connection, cat("not a weft frame: ",
                                    header.status().text()));  // no answer: not a weft peer
    if (header.value().source != kNobody)
      return received_from_rank(candidate, header.value(), lane, frame);
    candidate.greeted = true;
    candidate.link.connected(loop_.now_ms(), candidate);
  }
  candidate.link.received(static_cast<Lane>(lane), frame, loop_.now_ms(), candidate);
  if (candidate.gone) drop(connection);
}

// A connection that claims to be a rank of the run.
void Admission::received_from_rank(Candidate& candidate, const FrameHeader& header, int lane,
                                   std::span<const std::byte> frame) {
  PeerConnection& connection = *candidate.connection;
  const std::string who = rank_name(header.source);
  candidate.hello = header;
  if (failure_) {
    send_failure(candidate, *failure_);
    return drop(connection);
  }
  if (over_) return reject(connection, cat(who, " of a run that is over"));
  if (header.kind != FrameKind::hello || frame.size() > kMostHello)
    return reject(connection, cat(who, " begins with ", frame_kind_name(header.kind), " of ",
                                  frame.size(), " bytes, expected hello of at most ", kMostHello));
  const auto early = static_cast<size_t>(std::count_if(
      candidates_.begin(), candidates_.end(), [](const auto& g) { return g.second->member >= 0; }));
  if (!member_ && early >= most_early_)
    return reject(connection,
                  cat(who, " connected before it was expected, as ", early, " others did"));
  candidate.member = header.source;
  candidate.first_lane = lane;
  candidate.first.assign(frame.begin(), frame.end());
  if (member_) hand_over(connection);
}

void Admission::sent(PeerConnection& connection, uint64_t token) {
  if (auto at = candidates_.find(&connection); at != candidates_.end())
    at->second->link.sent(token, loop_.now_ms(), *at->second);
}

void Admission::disconnected(PeerConnection& connection, const std::string& why) {
  const auto at = candidates_.find(&connection);
  if (at == candidates_.end() || at->second->greeted || at->second->member >= 0)
    return drop(connection);
  reject(connection, cat("not a weft connection: ", why));
}

void Admission::reject(PeerConnection& connection, const std::string& why) {
  count_refused(connection.raw().peer(), why);
  drop(connection);
}

// A candidate that left is removed; its rank is free again.
void Admission::drop(PeerConnection& connection) {
  auto at = candidates_.find(&connection);
  if (at == candidates_.end()) return;
  std::unique_ptr<Candidate> candidate = std::move(at->second);
  candidates_.erase(at);
  if (const int32_t rank = rank_of(*candidate); rank >= 0) {
    if (done_) {
      table_->free(rank);
      report_rank(RunEvent::Kind::left, rank, {});
    } else {
      table_->leave(rank);
    }
    // The connection of the run decides from then on. The bye on this connection may be lost: the
    // rank closes it at once, and the system then discards what a lossy network has not
    // delivered.
    if (!has_connection_[static_cast<size_t>(rank)] || candidate->reported)
      report_left(*candidate, rank);
  }
  candidate->connection->raw().close_after(kLingerMs);
  retire(loop_, std::move(candidate->connection));
  loop_.dispose(std::move(candidate));
}

void Admission::report_left(const Candidate& candidate, int32_t rank) {
  if (!left_) return;
  Origin why = candidate.why;
  if (!candidate.reported || why.rank == kNobody) {  // otherwise it failed because of another rank
    why.rank = rank;
    why.process = candidate.link.peer_process();
    why.joining = true;
  }
  left_(why);
}

void Admission::expect(const Plan& plan, int64_t timeout_ms,
                       std::function<void(const Status&)> done) {
  over_ = false;
  failure_.reset();
  table_.emplace(plan, endpoint());
  has_connection_.assign(static_cast<size_t>(plan.config.ranks), false);
  deadline_ = loop_.now_ms() + timeout_ms;
  done_ = std::move(done);
  tick_soon();
  // Requests that arrived earlier, in the order of their arrival.
  std::vector<Candidate*> early;
  for (auto& [connection, candidate] : candidates_)
    if (!candidate->request.empty()) early.push_back(candidate.get());
  std::sort(early.begin(), early.end(),
            [](const Candidate* a, const Candidate* b) { return a->since < b->since; });
  for (Candidate* candidate : early)
    join_requested(*candidate, std::exchange(candidate->request, {}));
  finish_if_full();
  if (const Status status = done_ ? can_connect(table_->missing()) : Status(); !status.ok())
    finish(status);
  if (!stopped_.ok()) stop(stopped_);
}

// ZeroMQ ends the process if it accepts a connection at a socket file without a free descriptor.
Status Admission::can_connect(int32_t ranks) const {
  return spare_descriptors(kDescriptors + kDescriptorsPerRank * ranks,
                           cat("'", endpoint(), "': ", ranks, " ranks cannot be connected"));
}

void Admission::expect_no_more(const Status& why) {
  if (done_) finish(why);
}

void Admission::stop(const Status& why) {
  if (stopped_.ok()) stopped_ = why;
  if (done_) return finish(why);
  for (auto& [connection, candidate] : candidates_)
    if (!candidate->request.empty()) candidate->link.abort(no_run(why), loop_.now_ms(), *candidate);
}

void Admission::join_requested(Candidate& candidate, std::span<const std::byte> bytes) {
  if (rank_of(candidate) >= 0 || !candidate.request.empty())  // it has its rank and keeps it
    return count_refused(candidate.connection->raw().peer(), "it asked to join twice");
  if (!may_join(candidate))
    return refuse(candidate, Status(Code::invalid, "a rank of a run does not join again"));
  if (!table_) {
    if (!stopped_.ok())
      return candidate.link.abort(no_run(stopped_), loop_.now_ms(),
                                  candidate);  // no candidates will be expected
    candidate.request.assign(bytes.begin(), bytes.end());
    return;
  }
  auto request = decode_join(bytes);
  const Status status = request.ok() ? choose_rank(candidate, request.value()) : request.status();
  if (!status.ok()) return refuse(candidate, status);
  finish_if_full();
}

Status Admission::choose_rank(Candidate& candidate, const JoinRequest& request) {
  if (!done_) return Status(Code::state, "the run has all its ranks");
  // A process that has the plan could build the model.
  WEFT_TRY(request.plan ? compare_plans(table_->plan(), *request.plan)
                        : check_ops(*table_->plan().whole, request.ops));
  WEFT_TRY(check_peer_endpoint(request.endpoint, endpoint()).within("its address"));
  if (!is_own_key(request.key))
    return Status(Code::invalid, "another process has the same key for the run");
  WEFT_TRY_ASSIGN(const std::vector<int32_t> changed,
                  table_->assign(*candidate.connection, request));
  for (const int32_t rank : changed)
    report_rank(RunEvent::Kind::joined, rank, candidate_of(rank)->link.peer_process());
  if (endpoints_.size() == kEndpoints) endpoints_.erase(endpoints_.begin());
  endpoints_.push_back(request.endpoint);
  return {};
}

int32_t Admission::rank_of(const Candidate& candidate) const {
  return table_ ? table_->rank_of(*candidate.connection) : -1;
}

Admission::Candidate* Admission::candidate_of(int32_t rank) const {
  PeerConnection* const holder = table_->holder(rank);
  return holder ? candidates_.at(holder).get() : nullptr;
}

void Admission::report_rank(RunEvent::Kind kind, int32_t rank, const Process& process) const {
  if (!watcher_) return;
  watcher_(
      kind,
      {.rank = rank, .ranks = table_->ranks(), .missing = table_->missing(), .process = process});
}

void Admission::watch(Watcher watcher) {
  watcher_ = std::move(watcher);
  if (watcher_ && refused_.count > 0) watcher_(RunEvent::Kind::refused, refused_);
}

void Admission::count_refused(const std::string& peer, const std::string& why) {
  ++refused_.count;
  refused_.text = printable(cat("a connection", peer.empty() ? "" : " from ", peer, ": ", why));
  if (watcher_) watcher_(RunEvent::Kind::refused, refused_);
}

void Admission::refuse(Candidate& candidate, const Status& why) {
  count_refused(candidate.connection->raw().peer(), why.text());
  candidate.link.abort(
      {.rank = kNobody, .code = Code::peer, .cause = Cause::refused, .detail = why.text()},
      loop_.now_ms(), candidate);
}

void Admission::tick() {
  ticks_ = false;
  const LinkTime now = loop_.now_ms();
  std::vector<PeerConnection*> over;
  for (auto& [connection, candidate] : candidates_) {
    if (candidate->member >= 0) continue;  // its next frame is read when take_members() is called
    if (candidate->greeted && candidate->link.next_tick() <= now)
      candidate->link.tick(now, *candidate);
    // A connection that sends nothing is no candidate.
    const bool late = now - candidate->since > times_.hello, silent = late && !candidate->greeted;
    if (late && candidate->link.is_open() && rank_of(*candidate) < 0 && candidate->request.empty())
      refuse(*candidate, Status(Code::timed_out, "it did not ask to join"));
    if (silent)
      count_refused(connection->raw().peer(), cat("not a weft connection: it sent nothing for ",
                                                  static_cast<double>(times_.hello) / 1000, " s"));
    if (silent || candidate->gone || candidate->link.is_dead()) over.push_back(connection);
  }
  for (PeerConnection* connection : over) drop(*connection);
  if (done_ && now >= deadline_ && table_->missing() > 0) finish(not_joined());
  if (done_ || !candidates_.empty()) tick_soon();
}

Status Admission::not_joined() const {
  return Status(Code::timed_out,
                cat(table_->missing_text(), " not joined at ", endpoint(), " in time",
                    refused_.count ? cat("; last refused: ", refused_.text) : ""));
}

void Admission::tick_soon() {
  if (ticks_) return;
  ticks_ = true;
  timer_->start(50);
}

void Admission::finish_if_full() {
  if (done_ && table_->missing() == 0) finish({});
}

void Admission::finish(const Status& status) {
  auto done = std::move(done_);
  done_ = nullptr;
  done(status);
  if (!status.ok()) refuse_all(status);
}

// These candidates wait for an answer. They leave when they have received it, and do not count for
// the next expect().
void Admission::refuse_all(const Status& status) {
  const Origin why = no_run(status);
  for (auto& [connection, candidate] : candidates_) {
    candidate->request.clear();
    if (candidate->greeted) candidate->link.abort(why, loop_.now_ms(), *candidate);
  }
  table_.reset();
}

void Admission::take_members(int32_t self, const Identity& run, Member member) {
  self_ = self;
  run_ = run;
  member_ = std::move(member);
  over_ = false;
  std::vector<PeerConnection*> waiting;
  for (auto& [connection, candidate] : candidates_)
    if (candidate->member >= 0) waiting.push_back(connection);
  for (PeerConnection* connection : waiting) hand_over(*connection);
}

// The key of the rank, or without encryption the name of the run, shows that it was welcomed. If
// such a rank differs in another way, the run fails, and its link reports the difference.
Status Admission::check_member(const Candidate& candidate) const {
  if (transport_.encrypts()) {
    const PublicKey* const key = candidate.connection->raw().key();
    const auto rank = static_cast<size_t>(candidate.member);
    if (!key || rank >= rank_keys_.size() || rank_keys_[rank] != *key)
      return Status(Code::peer, cat("it claims to be ", rank_name(candidate.member),
                                    ", which has another key"));
  }
  WEFT_TRY_ASSIGN(const Identity theirs,
                  decode_hello(std::span(candidate.first).subspan(kHeaderBytes)));
  if (theirs.run == run_.run && theirs.incarnation == run_.incarnation) return {};
  return compare_identity(self_, run_, candidate.member, theirs);
}

void Admission::hand_over(PeerConnection& connection) {
  auto at = candidates_.find(&connection);
  if (const Status status = check_member(*at->second); !status.ok()) {
    const Origin refused{.rank = at->second->member,
                         .code = status.code(),
                         .cause = Cause::refused,
                         .detail = status.text()};
    send_failure(*at->second, refused);
    return reject(connection, origin_text(refused));
  }
  std::unique_ptr<Candidate> candidate = std::move(at->second);
  candidates_.erase(at);
  candidate->connection->hand_to(nullptr);
  if (member_(candidate->member, candidate->connection, candidate->first_lane, candidate->first)) {
    if (static_cast<size_t>(candidate->member) < has_connection_.size())
      has_connection_[static_cast<size_t>(candidate->member)] = true;
  } else {
    count_refused(candidate->connection->raw().peer(),
                  cat("a second connection of ", rank_name(candidate->member)));
    retire(loop_, std::move(candidate->connection));
  }
  loop_.dispose(std::move(candidate));
}

void Admission::welcome(const Welcome& base, Left left) {
  left_ = std::move(left);
  for (int32_t r = 1; r < table_->ranks(); ++r) {
    Candidate* candidate = candidate_of(r);
    if (!candidate) {  // it left in the meantime
      left_({.rank = r, .cause = Cause::closed, .joining = true});
      continue;
    }
    Welcome own = base;
    own.rank = r;
    candidate->link.send_message(kWelcomeType, encode_welcome(own), loop_.now_ms(), *candidate);
  }
}

// Sent by a link that is made for this frame only.
void Admission::send_failure(Candidate& candidate, const Origin& origin) {
  Identity identity;
  identity.incarnation = candidate.hello.incarnation;
  Link link(self_, candidate.hello.source, identity);
  link.abort(origin, loop_.now_ms(), candidate);
  link.connected(loop_.now_ms(), candidate);
}

void Admission::fail_run(const Origin& origin) {
  failure_ = origin;
  for (int32_t r = 1; table_ && r < table_->ranks(); ++r)
    if (Candidate* const candidate = candidate_of(r))
      candidate->link.abort(origin, loop_.now_ms(), *candidate);
}

void Admission::end_run() {
  member_ = nullptr;
  left_ = nullptr;
  over_ = true;
}

}  // namespace weft
