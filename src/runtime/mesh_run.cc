// Rank 0 of a run over several processes: it submits, reads and writes; the others serve
// (serve.cc).
#include <algorithm>
#include <cstring>
#include <random>

#include "base/text.h"
#include "kernels/gemm.h"
#include "plan/encode.h"
#include "runtime/mesh.h"
#include "runtime/parameter_access.h"
#include "runtime/rank_process.h"
#include "runtime/waiter.h"

namespace weft {

namespace {

// A run is named by chance, so that what is left of an old one is not taken for it.
Digest random_name() {
  std::random_device device;
  auto word = [&device] { return (uint64_t{device()} << 32) | device(); };
  return {word(), word()};
}

// It stands in every header, so it is no part of the name.
uint32_t random_incarnation() { return std::random_device()(); }

class MeshRun final : public LoopRun, private RankProcess::Owner {
 public:
  MeshRun(std::shared_ptr<const Plan> plan, Mesh& mesh, void (*drop)(void*))
      : LoopRun(std::move(plan), drop), mesh_(mesh) {}

  ~MeshRun() override {
    detach();  // a step that began later would have no process
    if (!process_) return;
    bool orderly = false;
    (void)on_loop(mesh_.loop(), [&] {
      orderly = process_->node().idle();
      if (orderly)
        process_->bye();
      else
        process_->fail(Code::canceled, "rank 0 ended the run");
      if (process_->is_alone()) alone_.set({});  // nobody came, or all have gone
      return Status();
    });
    (void)alone_.wait_for(orderly ? mesh_.options().peer_timeout_ms + kHangUpMs
                                  : kHangUpMs);  // a bye has the former to be answered
    (void)on_loop(mesh_.loop(), [this] {
      mesh_.on_stop(nullptr);
      mesh_.admission().end_run();
      process_.reset();
      return Status();
    });
    // What it retired goes in a turn of its own; until then it may read from the worker's memory.
    (void)on_loop(mesh_.loop(), [] { return Status(); });
  }

  Status open(int threads) {
    WEFT_TRY(mesh_.may(Mesh::Part::start));
    init_gemm();
    WEFT_TRY_ASSIGN(team_, Team::make(threads, {.rank = 0}));
    WEFT_TRY_ASSIGN(worker_, Worker::make(plan_, 0, *team_));
    Waiter gathered;
    const Status waits = on_loop(mesh_.loop(), [&] {
      mesh_.admission().expect(*plan_, mesh_.options().join_timeout_ms,
                               [&](const Status& status) { gathered.set(status); });
      return Status();
    });
    if (!waits.ok()) {
      (void)on_loop(mesh_.loop(), [&] {
        mesh_.admission().stop(waits);
        return Status();
      });
      return waits;
    }
    WEFT_TRY(gathered.wait());
    mesh_.run_begun();
    if (const Status status = on_loop(mesh_.loop(), [this] { return start_process(); });
        !status.ok()) {
      // Those that have come wait for a word.
      (void)on_loop(mesh_.loop(), [&] {
        mesh_.admission().dismiss(
            {.rank = 0, .code = status.code(), .text = cat("rank 0 failed: ", status.text())});
        return Status();
      });
      return status;
    }
    WEFT_TRY(joined_.wait());
    return attach(mesh_.loop());
  }

  Status read(ParamId param, Part part, std::span<float> out) override {
    const int32_t owner = plan_->owner_of_param[static_cast<size_t>(param)];
    for (size_t at = 0; at < out.size(); at += rpc::kPieceFloats) {
      const size_t n = std::min<size_t>(rpc::kPieceFloats, out.size() - at);
      WEFT_TRY(ask(owner, rpc::kRead,
                   {.param = param, .part = part, .offset = at, .count = n, .bytes = {}}));
      if (answer_.size() != n * sizeof(float))
        return Status(Code::protocol, cat("rank ", owner, " answered ", answer_.size(),
                                          " bytes for ", n, " floats"));
      std::copy(answer_.begin(), answer_.end(), std::as_writable_bytes(out.subspan(at, n)).begin());
    }
    return {};
  }

  Status write(ParamId param, Part part, std::span<const float> in) override {
    const int32_t owner = plan_->owner_of_param[static_cast<size_t>(param)];
    for (int32_t r = 0; r < plan_->config.ranks; ++r)
      for (const ResidentParam& p : plan_->resident[static_cast<size_t>(r)])
        if (p.param == param && (r == owner || part == Part::value))
          WEFT_TRY(write_to(r, param, part, in));  // copies of a tied parameter too
    return {};
  }

  Result<Digest> hash(ParamId param, Part part) override {
    Digest digest;
    WEFT_TRY(ask_number(plan_->owner_of_param[static_cast<size_t>(param)], rpc::kHash,
                        {.param = param, .part = part, .bytes = {}}, digest));
    return digest;
  }

  Result<int64_t> resident_bytes(int32_t rank) override {
    int64_t bytes = 0;
    WEFT_TRY(ask_number(rank, rpc::kResident, {.bytes = {}}, bytes));
    return bytes;
  }

  Status trace(size_t jobs) override {
    for (int32_t r = 0; r < plan_->config.ranks; ++r)
      WEFT_TRY(ask(r, rpc::kTrace, {.count = jobs, .bytes = {}}));
    return {};
  }

  Status spans(int32_t rank, std::vector<TraceSpan>& out) override {
    out.clear();
    do {
      // In pieces, the last of which is empty.
      WEFT_TRY(ask(rank, rpc::kSpans, {.offset = out.size(), .count = UINT64_MAX, .bytes = {}}));
      const size_t n = answer_.size() / sizeof(TraceSpan), before = out.size();
      if (answer_.size() % sizeof(TraceSpan) != 0)
        return Status(Code::protocol,
                      cat("rank ", rank, " sent spans of ", answer_.size(), " bytes"));
      out.resize(before + n);
      std::memcpy(out.data() + before, answer_.data(), n * sizeof(TraceSpan));
    } while (!answer_.empty());
    const auto& jobs = plan_->modes;
    for (const TraceSpan& s : out)  // from another process: looked at before it is used as an index
      if (static_cast<size_t>(s.mode) >= jobs.size() || !plan_->mode(s.mode).present || s.job < 0 ||
          static_cast<size_t>(s.job) >=
              plan_->mode(s.mode).ranks[static_cast<size_t>(rank)].jobs.size())
        return Status(Code::protocol,
                      cat("rank ", rank, " sent a span of a job that it does not have"));
    return {};
  }

  View delivered(int32_t edge, int32_t micro_batch) override {
    return process_->delivered(edge, micro_batch);
  }

 private:
  Status start_process() {
    const Digest name = random_name();
    const uint32_t incarnation = random_incarnation();
    const LinkTimes times{.silence = mesh_.options().peer_timeout_ms,
                          .hello = mesh_.options().join_timeout_ms};
    const Identity identity = run_identity(*plan_, incarnation, name);
    process_ = std::make_unique<RankProcess>(mesh_.loop(), plan_, *worker_, identity, times,
                                             static_cast<Owner&>(*this));
    WEFT_TRY(process_->start());
    Welcome welcome{.rank = 0,
                    .incarnation = incarnation,
                    .peer_timeout_ms = static_cast<uint32_t>(times.silence),
                    .run = name,
                    .model = encode_model(*plan_->model),
                    .config = encode_config(plan_->config),
                    .endpoints = {},
                    .keys = {}};
    for (const JoinRequest& request : mesh_.admission().joined()) {
      welcome.endpoints.push_back(request.endpoint);
      welcome.keys.push_back(request.key);
    }
    welcome.keys[0] = mesh_.own().public_key;
    mesh_.remember(welcome.endpoints);
    mesh_.admission().admit_ranks(welcome.keys);
    mesh_.admission().take_members(0, identity,
                                   [this](int32_t rank, std::unique_ptr<PeerConnection>& wire,
                                          int lane, std::span<const std::byte> first) {
                                     return process_->accept(rank, wire, lane, first);
                                   });
    mesh_.admission().welcome(welcome, [this](const Origin& origin) { process_->fail(origin); });
    mesh_.on_stop([this](const Status& why) { process_->stop(why); });
    return {};
  }

  Status write_to(int32_t rank, ParamId param, Part part, std::span<const float> in) {
    for (size_t at = 0; at < in.size(); at += rpc::kPieceFloats) {
      const std::span<const float> piece =
          in.subspan(at, std::min<size_t>(rpc::kPieceFloats, in.size() - at));
      WEFT_TRY(ask(rank, rpc::kWrite,
                   {.param = param,
                    .part = part,
                    .offset = at,
                    .count = piece.size(),
                    .bytes = std::as_bytes(piece)}));
    }
    return {};
  }

  template <typename T>
  Status ask_number(int32_t rank, uint32_t type, const rpc::Request& request, T& out) {
    WEFT_TRY(ask(rank, type, request));
    if (answer_.size() != sizeof out)
      return Status(Code::protocol, cat("rank ", rank, " answered ", answer_.size(),
                                        " bytes, expected ", sizeof out));
    std::memcpy(&out, answer_.data(), sizeof out);
    return {};
  }

  // Asks a rank, this one too; what it answers is in answer_. Owner's thread.
  Status ask(int32_t rank, uint32_t type, const rpc::Request& request) {
    const std::vector<std::byte> bytes = rpc::encode(request);
    if (rank == 0) return rpc::read_answer(rpc::answer(*plan_, *worker_, type, bytes), answer_);
    answered_.reset();
    mesh_.loop().post([&] {
      if (failed_) return answered_.set(failure_);
      asked_ = rank;
      asked_type_ = type;
      process_->send_message(rank, type, bytes);
    });
    const int64_t limit = mesh_.options().answer_timeout_ms;
    if (!answered_.wait_for(limit))
      (void)on_loop(mesh_.loop(), [&] {
        const double seconds = static_cast<double>(limit) / 1000;
        if (asked_ == rank)  // the answer may have come just now
          process_->fail({.rank = rank,
                          .code = Code::timed_out,
                          .text = cat("rank ", rank, " did not answer a request of type ", type,
                                      " within ", seconds, " s")});
        return Status();
      });
    return answered_.wait();
  }

  // --- loop thread
  void begin_step(Step& step) override {
    // Of a failure of the run failed() has heard, with the rank that it is of.
    if (Status status = process_->begin(step.descriptor, step.batch); !status.ok() && !failed_)
      run_failed(status);
  }
  void joined() override {
    // Not from inside a callback of the listener.
    mesh_.loop().post([this] {
      mesh_.close_door();
      joined_.set({});
    });
  }
  void message(int32_t peer, uint32_t type, std::span<const std::byte> bytes) override {
    if (peer != asked_) return;
    asked_ = -1;
    if (type == asked_type_)
      answered_.set(rpc::read_answer(bytes, answer_));
    else
      answered_.set(Status(Code::protocol, cat("rank ", peer, " answered a request of type ",
                                               asked_type_, " with type ", type)));
  }
  void micro_batch(int32_t mb) override {
    const int32_t edge = loss_edge(*plan_, current()->mode);
    micro_batch_over(mb, edge < 0 ? 0 : *process_->delivered(edge, mb).as<double>());
  }
  void step_done(const StepResult& result) override {
    step_over(result);
    begin_soon();
  }
  void failed(const Origin& origin) override {
    failed_ = true;
    failure_ = attempt([&] { return Status(origin.code, origin.text); });
    joined_.set(failure_);
    answered_.set(failure_);
    run_failed(failure_, origin.rank);
    begin_soon();
    mesh_.admission().dismiss(origin);
  }
  void closed() override {}
  void alone() override { alone_.set({}); }

  Mesh& mesh_;
  std::unique_ptr<Team> team_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<RankProcess> process_;
  Waiter joined_, answered_, alone_;
  std::vector<std::byte>
      answer_;  // of the rank asked last; the loop thread's until answered_ is set
  int32_t asked_ = -1;
  uint32_t asked_type_ = 0;
  bool failed_ = false;
  Status failure_;
};

}  // namespace

Result<std::unique_ptr<Run>> start_mesh(std::shared_ptr<const Plan> plan, Mesh& mesh, int threads,
                                        void (*drop)(void*)) {
  auto run = std::make_unique<MeshRun>(std::move(plan), mesh, drop);
  WEFT_TRY(run->open(threads));
  return std::unique_ptr<Run>(std::move(run));
}

}  // namespace weft
