// A rank other than 0: requests a place from rank 0, receives the model and the plan, and serves
// until the run ends.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "kernels/fpenv.h"
#include "plan/encode.h"
#include "runtime/event_queue.h"
#include "runtime/mesh.h"
#include "runtime/rank_process.h"
#include "runtime/waiter.h"
#include "runtime/weight_files.h"
#include "tune/make_plan.h"

namespace weft {

namespace {

// The connection to the admission of rank 0: sends the request, waits for the welcome, and stays
// open until the rank has joined the run, so that each side detects if the other one ends in
// between. Loop thread, except wait(). `lost` is called with the reason when the connection ends.
class Applicant final : private PeerConnection::Reader, private LinkEffects {
 public:
  Applicant(Mesh& mesh, std::string zero, JoinRequest request,
            std::function<void(const Origin&)> lost)
      : mesh_(mesh),
        zero_(std::move(zero)),
        request_(std::move(request)),
        on_lost_(std::move(lost)),
        link_(kNobody, 0, admission_identity(),
              LinkTimes{.silence = mesh.options().peer_timeout_ms,
                        .hello = mesh.options().join_timeout_ms}),
        timer_(mesh.loop(), [this] { tick(); }) {}

  ~Applicant() override {
    if (connection_) retire(mesh_.loop(), std::move(connection_));
  }

  Status start() {
    const DialKeys keys = mesh_.keys_to_join();
    WEFT_TRY_ASSIGN(auto raw, mesh_.transport().dial(zero_, &keys));
    connection_ = std::make_unique<PeerConnection>(std::move(raw));
    link_.start(now());
    connection_->start(*this);
    tick();
    return {};
  }

  Result<Welcome> wait() {
    WEFT_TRY(answer_.wait());
    return std::move(welcome_);
  }

  void stop(const Status& why) {
    lost_ = why;
    answer_.set(why);
  }

  // Detects if rank 0 ends while this rank makes its plan.
  const Status& lost() const { return lost_; }
  // Its last frames are still sent after this object is destroyed.
  void leave() {
    link_.bye(now(), *this);
    connection_->raw().close_after(kLingerMs);
  }
  // Reports to rank 0 why this process cannot be the assigned rank. Rank kNobody: because of this
  // process.
  void give_up(const Origin& why) {
    if (!connection_) return;
    link_.abort(why, now(), *this);
    connection_->raw().close_after(kLingerMs);
  }

 private:
  int64_t now() const { return mesh_.loop().now_ms(); }
  void tick() {
    if (link_.next_tick() <= now()) link_.tick(now(), *this);
    timer_.start(50);
  }

  void connected(PeerConnection&) override { link_.connected(now(), *this); }
  void received(PeerConnection&, int lane, std::span<const std::byte> frame) override {
    link_.received(static_cast<Lane>(lane), frame, now(), *this);
  }
  void sent(PeerConnection&, uint64_t token) override { link_.sent(token, now(), *this); }
  void disconnected(PeerConnection&, const std::string& why) override {
    link_.disconnected(why, now(), *this);
  }

  void send(Lane lane, std::span<const std::byte, kHeaderBytes> header,
            std::span<const std::byte> payload, uint64_t token) override {
    connection_->raw().send(static_cast<int>(lane), header, payload, token);
  }
  void open() override {
    // Not from within a call of the link.
    mesh_.loop().post(
        [this] { link_.send_message(kJoinType, encode_join(request_), now(), *this); });
  }
  void message(uint32_t type, std::span<const std::byte> bytes) override {
    if (type != kWelcomeType) return;
    // Another thread may use the first one.
    if (std::exchange(welcomed_, true))
      return failed({.rank = 0,
                     .code = Code::protocol,
                     .cause = Cause::protocol,
                     .process = link_.peer_process(),
                     .detail = "it sent a second welcome"},
                    false);
    auto welcome = decode_welcome(bytes);
    if (welcome.ok()) {
      welcome_ = welcome.take();
      mesh_.admission().admit_ranks(welcome_.keys);
    }
    answer_.set(welcome.status());
  }
  void leaving() override {
    failed({.rank = 0, .cause = Cause::closed, .detail = "it left"}, true);
  }
  void failed(const Origin& origin, bool) override {
    lost_ = Status(origin).within(cat("joining ", mesh_.options().endpoint));
    answer_.set(lost_);
    on_lost_(origin);
  }
  void closed() override {}
  std::string trouble() override { return connection_->raw().trouble(); }

  Mesh& mesh_;
  const std::string zero_;  // the address of rank 0
  JoinRequest request_;
  const std::function<void(const Origin&)> on_lost_;
  Link link_;
  std::unique_ptr<PeerConnection> connection_;
  Loop::Timer timer_;
  bool welcomed_ = false;  // a welcome has arrived
  Welcome welcome_;
  Status lost_;
  Waiter answer_;
};

// Events: joined, refused, started, and the end.
constexpr size_t kMostEvents = 4;

class Server final : public EventSource, private RankProcess::Owner {
 public:
  Server(Mesh& mesh, std::shared_ptr<const Plan> plan, std::vector<const Op*> user_ops,
         const LogSink& log, std::string weights_dir)
      : mesh_(mesh),
        plan_(std::move(plan)),
        user_ops_(std::move(user_ops)),
        log_(log),
        files_(std::move(weights_dir)),
        events_(kMostEvents) {}

  ~Server() override {
    (void)on_loop(mesh_.loop(), [this] { leave(); });
    thread_.reset();
    (void)on_loop(mesh_.loop(), [this] {
      if (has_run_) {
        mesh_.on_stop(nullptr);
        mesh_.admission().end_run();
      }
      process_.reset();
      applicant_.reset();
    });
    // What it retired is destroyed in a later turn, and may read the worker's memory until then.
    (void)on_loop(mesh_.loop(), [] {});
  }

  // Serves until the run has ended. On any thread; `mesh` is reserved for this run.
  Status run(int threads) {
    const Status status = attempt([&] { return join_and_serve(threads); });
    (void)on_loop(mesh_.loop(), [&] {
      if (!status.ok() && applicant_)
        applicant_->give_up({.rank = kNobody,
                             .code = status.code(),
                             .cause = Cause::failed,
                             .process = own_process(),
                             .detail = status.text()});
      mesh_.admission().watch(nullptr);
      if (!has_run_) mesh_.on_stop(nullptr);
      is_over_ = true;
    });
    if (!has_run_) mesh_.give_back();  // another run may use it from now on
    log_.info([&] { return cat("the run has ended", status.ok() ? "" : ": ", status.text()); });
    return status;
  }

  // The same on a thread of this object.
  Status begin(int threads) {
    WEFT_TRY_ASSIGN(
        thread_, Thread::start("weft-serve", [this, threads] {
          const ComputeScope scope;
          const Status status = run(threads);
          events_.push({.kind = status.ok() ? Kind::ended : Kind::failed, .status = status});
        }));
    return {};
  }

  bool poll(RunEvent& event, int64_t timeout_ns) override {
    if (!events_.pop(event, over_ ? 0 : timeout_ns)) return false;
    over_ = over_ || event.kind == Kind::ended || event.kind == Kind::failed;
    return true;
  }
  int descriptor() const override { return events_.descriptor(); }

 private:
  using Kind = RunEvent::Kind;

  Status join_and_serve(int threads) {
    WEFT_TRY(
        Team::make(threads).status());  // without its threads it fails before rank 0 counts on it
    JoinRequest request{.wanted_rank = mesh_.options().rank,
                        .endpoint = mesh_.endpoint(),
                        .ops = {},
                        .plan = {},
                        .key = mesh_.own().public_key};
    for (const Op* op : user_ops_) request.ops.push_back(op_text(*op));
    if (plan_) request.plan = plan_->hash;
    mesh_.remember({mesh_.options().endpoint});  // if rank 0 dies before the welcome
    WEFT_TRY_ASSIGN(const std::string zero, resolve(mesh_.options().endpoint));
    WEFT_TRY(on_loop(mesh_.loop(), [&] { return apply(zero, request); }));
    WEFT_TRY_ASSIGN(welcome_, applicant_->wait());
    mesh_.run_begun();
    has_run_ = true;
    mesh_.remember(welcome_.endpoints);
    happened(Kind::joined);
    log_.info([this] {
      return cat("joined as rank ", welcome_.rank, " of ", welcome_.endpoints.size());
    });
    if (!plan_) WEFT_TRY(make_own_plan());
    if (welcome_.rank >= plan_->config.ranks)
      return Status(Code::protocol,
                    cat("welcome as rank ", welcome_.rank, " of ", plan_->config.ranks));
    welcome_.endpoints[0] = zero;
    WEFT_TRY(resolve_peers());
    WEFT_TRY_ASSIGN(team_, Team::make(threads, welcome_.rank));
    WEFT_TRY_ASSIGN(worker_, Worker::make(plan_, welcome_.rank, *team_));
    // The loop thread reads for rank 0, and must not draw a large parameter. Weights of a file
    // replace all values.
    if (!files_.accepts_files()) worker_->draw_initial_values();
    WEFT_TRY(on_loop(mesh_.loop(), [this] { return start_process(); }));
    const Status ended = ended_.wait();
    (void)all_closed_.wait_for(ended.ok()
                                   ? welcome_.peer_timeout_ms + kHangUpMs
                                   : kHangUpMs);  // a bye is answered within the peer timeout
    return ended;
  }

  // The plan of rank 0.
  Status make_own_plan() {
    const auto find = [this](std::string_view name) {
      const auto at = std::find_if(user_ops_.begin(), user_ops_.end(),
                                   [name](const Op* op) { return op->name() == name; });
      return at == user_ops_.end() ? nullptr : *at;
    };
    WEFT_TRY_ASSIGN(auto model, decode_model(welcome_.model, find));
    WEFT_TRY_ASSIGN(const PlanConfig config, decode_config(welcome_.config));
    WEFT_TRY_ASSIGN(plan_, make_plan(model, config));
    return {};
  }

  // An event of this rank.
  void happened(Kind kind) {
    events_.push({.kind = kind,
                  .mesh = {.rank = welcome_.rank,
                           .ranks = static_cast<int32_t>(welcome_.endpoints.size()),
                           .process = own_process()}});
  }

  // Not on the loop, which already has a link: rank 0 would treat a slow lookup as silence.
  Status resolve_peers() {
    for (const int32_t peer : RankNode::peers_of(*plan_, welcome_.rank)) {
      if (peer > welcome_.rank) break;
      std::string& endpoint = welcome_.endpoints[static_cast<size_t>(peer)];
      WEFT_TRY_ASSIGN(endpoint, resolve(endpoint).within(cat("rank ", peer)));
    }
    return {};
  }

  // --- loop thread
  Status apply(const std::string& zero, const JoinRequest& request) {
    WEFT_TRY(left_);
    mesh_.admission().watch([this](Kind kind, MeshEvent event) {
      log_.warning([&] { return mesh_text(kind, event); });
      events_.replace({.kind = kind, .mesh = std::move(event)});
    });
    applicant_ = std::make_unique<Applicant>(mesh_, zero, request, [this](const Origin& origin) {
      if (process_) process_->fail(origin);
    });
    mesh_.on_stop([this](const Status& why) { stop(why); });
    return applicant_->start();
  }

  void stop(const Status& why) {
    if (process_)
      process_->stop(why);
    else
      applicant_->stop(why);
  }

  // The owner does not wait for the end of the run.
  void leave() {
    if (is_over_) return;
    left_ = Status(Code::canceled, "its own process left the run");
    if (process_ || applicant_) stop(left_);
  }

  Status start_process() {
    WEFT_TRY(applicant_->lost());
    const LinkTimes times{.silence = welcome_.peer_timeout_ms,
                          .hello = mesh_.options().join_timeout_ms};
    const Identity identity = run_identity(*plan_, welcome_.incarnation, welcome_.run);
    process_ = std::make_unique<RankProcess>(mesh_.loop(), plan_, *worker_, identity, times,
                                             static_cast<Owner&>(*this), log_);
    WEFT_TRY(process_->start());
    mesh_.admission().take_members(worker_->rank(), identity,
                                   [this](int32_t rank, std::unique_ptr<PeerConnection>& connection,
                                          int lane, std::span<const std::byte> first) {
                                     return process_->accept(rank, connection, lane, first);
                                   });
    mesh_.release_descriptors();
    for (const int32_t peer : process_->node().peers()) {
      const auto at = static_cast<size_t>(peer);
      if (peer < worker_->rank())
        WEFT_TRY(process_->dial(mesh_.transport(), peer, welcome_.endpoints[at],
                                {welcome_.keys[at], mesh_.own()}));
    }
    mesh_.on_stop([this](const Status& why) { stop(why); });  // at once, if it has stopped already
    return {};
  }

  void joined() override {
    applicant_->leave();
    applicant_.reset();
    log_.info([] { return "the run has started"; });
    happened(Kind::started);
    mesh_.loop().post(
        [&mesh = mesh_] { mesh.stop_listening(); });  // not from within a callback of the listener
  }
  void message(int32_t peer, uint32_t type, std::span<const std::byte> bytes) override {
    if (peer != 0) return;
    // Not while the node is on the stack.
    mesh_.loop().post([this, type, answer = rpc::answer(*plan_, *worker_, type, bytes, &files_)] {
      if (process_) process_->send_message(0, type, answer);
    });
  }
  void micro_batch(int32_t) override {}
  void step_done(const StepResult&) override {}
  void failed(const Origin& origin) override {
    ended_.set(attempt([&] { return Status(origin); }));
    if (applicant_)
      applicant_->give_up(
          origin);  // this rank has not joined, so rank 0 may not learn of it otherwise
  }
  void closed() override { ended_.set({}); }
  void all_closed() override { all_closed_.set({}); }

  Mesh& mesh_;
  std::shared_ptr<const Plan> plan_;
  const std::vector<const Op*> user_ops_;  // that this process has
  Log log_;
  WeightFiles files_;  // loop thread
  EventQueue events_;
  bool over_ = false;     // the last event was polled
  bool has_run_ = false;  // this process has a rank
  bool is_over_ = false;  // loop thread, as left_: nothing can stop the run any more
  Status left_;           // ok: the owner has not left
  Welcome welcome_;
  std::unique_ptr<Applicant> applicant_;
  std::unique_ptr<Team> team_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<RankProcess> process_;
  Waiter ended_, all_closed_;
  std::unique_ptr<Thread> thread_;
};

}  // namespace

Status serve(Mesh& mesh, std::shared_ptr<const Plan> plan, int threads,
             std::span<const Op* const> user_ops, const LogSink& log,
             const std::string& weights_dir) {
  Server server(mesh, std::move(plan), {user_ops.begin(), user_ops.end()}, log, weights_dir);
  WEFT_TRY(mesh.reserve(Mesh::Part::serve));
  return server.run(threads);
}

Result<std::unique_ptr<EventSource>> join_run(Mesh& mesh, std::shared_ptr<const Plan> plan,
                                              int threads, std::vector<const Op*> user_ops,
                                              const LogSink& log, const std::string& weights_dir) {
  auto server =
      std::make_unique<Server>(mesh, std::move(plan), std::move(user_ops), log, weights_dir);
  WEFT_TRY(mesh.reserve(Mesh::Part::serve));
  if (const Status begun = attempt([&] { return server->begin(threads); }); !begun.ok()) {
    mesh.give_back();
    return begun;
  }
  return std::unique_ptr<EventSource>(std::move(server));
}

}  // namespace weft
