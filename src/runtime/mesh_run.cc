// Rank 0 of a run over several processes: it submits steps, reads and writes; the other ranks serve
// (serve.cc).
#include <algorithm>
#include <cstring>
#include <random>

#include "base/text.h"
#include "plan/encode.h"
#include "runtime/mesh.h"
#include "runtime/rank_process.h"
#include "runtime/requests.h"
#include "runtime/waiter.h"

namespace weft {

namespace {

// The name of a run is random, so that leftovers of an earlier run are not taken for it.
Digest random_name() {
  std::random_device device;
  auto word = [&device] { return (uint64_t{device()} << 32) | device(); };
  return {word(), word()};
}

// Every header contains it, so it is not part of the name.
uint32_t random_incarnation() { return std::random_device()(); }

class MeshRun final : public LoopRun, private RankProcess::Owner {
 public:
  MeshRun(std::shared_ptr<const Plan> plan, Mesh& mesh, void (*drop)(void*), const LogSink& log)
      : LoopRun(std::move(plan), drop, log),
        mesh_(mesh),
        requests_(
            mesh.loop(), *plan_, mesh.options().answer_timeout_ms,
            [this](int32_t rank, uint32_t type, std::span<const std::byte> bytes) {
              process_->send_message(rank, type, bytes);
            },
            [this](int32_t rank) {
              process_->fail({.rank = rank,
                              .code = Code::timed_out,
                              .cause = Cause::late,
                              .limit_ms = mesh_.options().answer_timeout_ms,
                              .detail = "answer a request"});
            }) {}

  ~MeshRun() override {
    (void)on_loop(mesh_.loop(), [this] { stop_start(); });
    end_start();
    detach();  // a step that began later would have no process
    if (!process_) return;
    log().info([] { return "rank 0 ends the run"; });
    bool orderly = false;
    (void)on_loop(mesh_.loop(), [&] {
      orderly = process_->node().idle();
      if (orderly)
        process_->bye();
      else
        process_->fail(Code::canceled, "rank 0 ended the run");
      if (process_->has_no_connection()) all_closed_.set({});  // no rank came, or all have left
    });
    (void)all_closed_.wait_for(orderly ? mesh_.options().peer_timeout_ms + kHangUpMs
                                       : kHangUpMs);  // a bye is answered within the peer timeout
    (void)on_loop(mesh_.loop(), [this] {
      mesh_.on_stop(nullptr);
      mesh_.admission().end_run();
      process_.reset();
    });
    // What it retired is destroyed in a later turn and reads the worker's memory until then.
    (void)on_loop(mesh_.loop(), [] {});
  }

  // On any thread; `mesh` is reserved for this run.
  Status open(int threads) {
    if (const Status status = attempt([&] { return gather(threads); }); !status.ok()) {
      (void)on_loop(mesh_.loop(), [this] { unwatch(); });
      mesh_.give_back();
      return status;
    }
    mesh_.run_begun();
    if (const Status status = on_loop(mesh_.loop(), [this] { return start_process(); });
        !status.ok()) {
      // These candidates wait for an answer.
      (void)on_loop(mesh_.loop(), [&] {
        mesh_.admission().fail_run({.rank = 0,
                                    .code = status.code(),
                                    .cause = Cause::failed,
                                    .process = own_process(),
                                    .detail = status.text()});
      });
      return status;
    }
    WEFT_TRY(joined_.wait());
    WEFT_TRY(attach(mesh_.loop()));
    log().info([this] { return cat("the run has started with ", plan_->config.ranks, " ranks"); });
    return {};
  }

  Worker* worker_here(int32_t rank) override { return rank == 0 ? worker_.get() : nullptr; }
  Requests* requests() override { return &requests_; }

 private:
  Status gather(int threads) {
    WEFT_TRY_ASSIGN(team_, Team::make(threads));
    WEFT_TRY_ASSIGN(worker_, Worker::make(plan_, 0, *team_));
    const Status waits = on_loop(mesh_.loop(), [this] {
      WEFT_TRY(stopped_);
      watches_ = true;
      mesh_.admission().watch(
          [this](RunEvent::Kind kind, MeshEvent event) { happened(kind, std::move(event)); });
      expects_ = true;
      mesh_.admission().expect(*plan_, mesh_.options().join_timeout_ms,
                               [this](const Status& status) {
                                 expects_ = false;
                                 gathered_.set(status);
                               });
      return Status();
    });
    if (!waits.ok()) {
      (void)on_loop(mesh_.loop(), [&] {
        if (expects_) mesh_.admission().stop(waits);
      });
      return waits;
    }
    return gathered_.wait();
  }

  // Loop thread, as stop_start(). Another run may watch the admission later.
  void unwatch() {
    if (watches_) mesh_.admission().watch(nullptr);
    watches_ = false;
  }

  // The start ends, if it has not ended yet.
  void stop_start() {
    unwatch();
    stopped_ = Status(Code::canceled, "the run was freed before it had started");
    if (expects_) mesh_.admission().expect_no_more(stopped_);
    if (process_ && !is_joined_) process_->fail(Code::canceled, "rank 0 ended the run");
  }

  Status start_process() {
    WEFT_TRY(stopped_);
    const Digest name = random_name();
    const uint32_t incarnation = random_incarnation();
    const LinkTimes times{.silence = mesh_.options().peer_timeout_ms,
                          .hello = mesh_.options().join_timeout_ms};
    const Identity identity = run_identity(*plan_, incarnation, name);
    process_ = std::make_unique<RankProcess>(mesh_.loop(), plan_, *worker_, identity, times,
                                             static_cast<Owner&>(*this), log());
    WEFT_TRY(process_->start());
    Welcome welcome{.rank = 0,
                    .incarnation = incarnation,
                    .peer_timeout_ms = static_cast<uint32_t>(times.silence),
                    .run = name,
                    .model = encode_model(*plan_->whole),
                    .config = encode_config(plan_->config),
                    .endpoints = {},
                    .keys = {}};
    for (const JoinRequest& request : mesh_.admission().joined()) {
      welcome.endpoints.push_back(request.endpoint);
      welcome.keys.push_back(request.key);
    }
    welcome.keys[0] = mesh_.own().public_key;
    mesh_.admission().admit_ranks(welcome.keys);
    mesh_.admission().take_members(0, identity,
                                   [this](int32_t rank, std::unique_ptr<PeerConnection>& connection,
                                          int lane, std::span<const std::byte> first) {
                                     return process_->accept(rank, connection, lane, first);
                                   });
    mesh_.admission().welcome(welcome, [this](const Origin& origin) { process_->fail(origin); });
    mesh_.on_stop([this](const Status& why) { process_->stop(why); });
    return {};
  }

  // --- loop thread
  void begin_step(Step& step) override {
    // failed() was called for a failure of the run, with the rank that failed.
    if (Status status = process_->begin(step.descriptor, step.batch); !status.ok() && !failed_)
      run_failed(status);
  }
  void feed_step(int32_t micro_batches) override {
    if (Status status = process_->feed(micro_batches); !status.ok() && !failed_) run_failed(status);
  }
  void open_step() override { process_->open_sinks(); }
  void happened(RunEvent::Kind kind, MeshEvent event) {
    log().say(kind == RunEvent::Kind::joined ? LogLevel::info : LogLevel::warning,
              [&] { return mesh_text(kind, event); });
    replace_event({.kind = kind, .mesh = std::move(event)});
  }
  void joined() override {
    is_joined_ = true;
    // Not from within a callback of the listener.
    mesh_.loop().post([this] {
      mesh_.stop_listening();
      joined_.set({});
    });
  }
  void message(int32_t peer, uint32_t type, std::span<const std::byte> bytes) override {
    requests_.answered(peer, type, bytes);
  }
  void micro_batch(int32_t mb) override { micro_batch_over(mb); }
  void step_done(const StepResult& result) override {
    step_over(result);
    begin_soon();
  }
  void failed(const Origin& origin) override {
    failed_ = true;
    const Status failure =
        attempt([&] { return Status(origin).followed_by(requests_.asked_of(origin.rank)); });
    joined_.set(failure);
    requests_.fail(failure);
    run_failed(failure);
    begin_soon();
    mesh_.admission().fail_run(origin);
  }
  void closed() override {}
  void all_closed() override { all_closed_.set({}); }

  Mesh& mesh_;
  std::unique_ptr<Team> team_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<RankProcess> process_;
  Requests requests_;
  Waiter gathered_, joined_, all_closed_;
  Status stopped_;  // loop thread, as all below; ok: the run is not being freed
  bool watches_ = false, expects_ = false, is_joined_ = false, failed_ = false;
};

}  // namespace

Result<std::unique_ptr<Run>> start_mesh(std::shared_ptr<const Plan> plan, Mesh& mesh, int threads,
                                        void (*drop)(void*), const StartOptions& options) {
  auto run = std::make_unique<MeshRun>(std::move(plan), mesh, drop, options.log);
  WEFT_TRY(mesh.reserve(Mesh::Part::start));
  const Status begun = attempt([&] {
    return run->begin(options.wait,
                      [opened = run.get(), threads] { return opened->open(threads); });
  });
  if (begun.ok()) return std::unique_ptr<Run>(std::move(run));
  if (!options.wait) mesh.give_back();  // it has no thread
  return begun;
}

}  // namespace weft
