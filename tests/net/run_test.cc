// A run at whose address unknown clients connect, and a rank that does not answer: rank 0 over real
// sockets; the test writes the frames of the other end.
#include <netdb.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "graph/presets.h"
#include "peers.h"
#include "runtime/mesh.h"
#include "runtime/rank_process.h"
#include "tune/make_plan.h"

namespace {
std::atomic<bool> threads_are_out = false;
std::atomic<int> names_asked_for = 0, asked_for_on_a_loop = 0;
constexpr const char* kName = "rank0.example";  // is 127.0.0.1
}  // namespace

// Calls of the engine, not of the libraries below it: see the linker's --wrap.
extern "C" {
int __real_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                          void* argument);
int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                          void* argument);
int __real_getaddrinfo(const char* host, const char* service, const addrinfo* hints,
                       addrinfo** list);
int __wrap_getaddrinfo(const char* host, const char* service, const addrinfo* hints,
                       addrinfo** list);

int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                          void* argument) {
  return threads_are_out ? EAGAIN : __real_pthread_create(thread, attributes, body, argument);
}

int __wrap_getaddrinfo(const char* host, const char* service, const addrinfo* hints,
                       addrinfo** list) {
  if (!host || std::strcmp(host, kName) != 0) return __real_getaddrinfo(host, service, hints, list);
  char thread[16] = "";
  pthread_getname_np(pthread_self(), thread, sizeof thread);
  ++names_asked_for;
  if (std::strcmp(thread, "weft-loop") == 0) ++asked_for_on_a_loop;
  return __real_getaddrinfo("127.0.0.1", service, hints, list);
}
}

namespace weft::test {
namespace {

std::shared_ptr<const Plan> small_plan() {
  PlanConfig config;
  config.ranks = 2;
  return make_plan(make_preset("mlp:layers=2,width=4", {}).take().model, config).take();
}

void say(End& end, FrameHeader header, uint16_t rank, std::span<const std::byte> payload) {
  header.source = rank;
  header.length = static_cast<uint32_t>(payload.size());
  header.total = payload.size();
  std::array<std::byte, kHeaderBytes> bytes;
  encode_header(header, payload, bytes);
  end.connection->send(0, bytes, payload, header.kind == FrameKind::hello ? 1 : 0);
}

Result<std::unique_ptr<Run>> start(const std::shared_ptr<const Plan>& plan, Mesh& mesh) {
  return start_mesh(plan, mesh, 1, [](void*) {});
}

// Polls to the start, and tells of refused connections.
struct Watched {
  Watched(const std::shared_ptr<const Plan>& plan, Mesh& mesh)
      : run(start_mesh(plan, mesh, 1, [](void*) {}, {.wait = false}).take()) {
    RunEvent event;
    do EXPECT_TRUE(poll(event, -1));
    while (event.kind != RunEvent::Kind::started && event.kind != RunEvent::Kind::failed);
    EXPECT_TRUE(event.status.ok()) << event.status.text();
  }
  bool poll(RunEvent& event, int64_t timeout_ns) {
    const bool there = run->poll(event, timeout_ns);
    if (there && event.kind == RunEvent::Kind::refused) refused = event.mesh;
    return there;
  }
  // The text of the last one, of which there was no other.
  std::string only_refusal() {
    for (RunEvent event; poll(event, 0);) continue;
    EXPECT_EQ(refused.count, 1u);
    return refused.text;
  }

  std::unique_ptr<Run> run;
  MeshEvent refused;
};

TEST(RunAtADoor, AStrangerThatSaysItIsARankDisturbsNobodyWithoutEncryption) {
  const auto plan = small_plan();
  const auto mesh =
      Mesh::listen({.endpoint = "tcp://127.0.0.1:0", .listen = {}, .insecure = true}).take();
  Net net("tcp://", true);
  const auto stranger = net.dial(mesh->endpoint());
  ASSERT_TRUE(net.until([&] { return stranger->times_connected == 1; }));
  Identity identity = admission_identity();
  identity.profile = "x";
  const std::vector<std::byte> hello = encode_hello(identity);
  say(*stranger, {.kind = FrameKind::hello}, 1, hello);
  ASSERT_TRUE(net.until([&] { return !stranger->tokens.empty(); }));

  std::thread rank([plan, endpoint = mesh->endpoint()] {
    const auto joined = Mesh::join({.endpoint = endpoint, .listen = {}, .insecure = true}).take();
    const Status status = serve(*joined, plan, 1, {});
    EXPECT_TRUE(status.ok()) << status.text();
  });
  std::string why;
  {
    Watched watched(plan, *mesh);
    EXPECT_TRUE(net.until([&] { return stranger->times_disconnected == 1; }));
    why = watched.only_refusal();
  }
  rank.join();
  EXPECT_NE(why.find("rank 1 refused: its numeric profile 'x' differs"), std::string::npos) << why;
}

// It may request to join, but send nothing else.
TEST(RunAtADoor, WhoHasThePermissionToJoinCannotSpeakForARank) {
  const auto plan = small_plan();
  const auto mesh = Mesh::listen({.endpoint = "tcp://127.0.0.1:0", .listen = {}}).take();
  const JoinAddress zero = parse_join(mesh->join_text()).take();
  Net net("tcp://");
  const auto intruder = net.dial(mesh->endpoint(), *zero.server, *zero.candidate);
  ASSERT_TRUE(net.until([&] { return intruder->times_connected == 1; }));
  const std::vector<std::byte> hello = encode_hello(admission_identity());
  say(*intruder, {.kind = FrameKind::hello}, 1, hello);
  ASSERT_TRUE(net.until([&] { return !intruder->tokens.empty(); }));
  std::thread rank([plan, text = mesh->join_text()] {
    const auto joined = Mesh::join({.endpoint = text, .listen = {}}).take();
    const Status status = serve(*joined, plan, 1, {});
    EXPECT_TRUE(status.ok()) << status.text();
  });
  std::string why;
  {
    Watched watched(plan, *mesh);
    EXPECT_TRUE(net.until([&] { return intruder->times_disconnected == 1; }));
    const auto late = net.dial(mesh->endpoint(), *zero.server, *zero.candidate);
    EXPECT_TRUE(net.until([&] {
      return late->connection->trouble() == "no process listens there";
    })) << "the address answers";
    why = watched.only_refusal();
  }
  rank.join();
  EXPECT_NE(why.find("it claims to be rank 1, which has another key"), std::string::npos) << why;
}

TEST(RunAtADoor, WhatDoesNotFitIsSaidBeforeAnybodyIsDialed) {
  const auto refusal = [](MeshOptions options, bool listens) {
    const auto mesh = listens ? Mesh::listen(options) : Mesh::join(options);
    return mesh.ok() ? "fits" : mesh.status().text();
  };
  const KeyPair key = KeyPair::make().take();
  const std::string with_key = "tcp://127.0.0.1:1?key=" + key_text(key.public_key);
  MeshOptions options{.endpoint = "tcp://127.0.0.1:1", .listen = {}};
  EXPECT_NE(refusal(options, false).find("expected the key that rank 0 gives out"),
            std::string::npos);
  options.endpoint = with_key;
  EXPECT_NE(refusal(options, false).find("does not permit to join"), std::string::npos);
  options.key = key.secret;
  EXPECT_EQ(refusal(options, false), "fits");
  options.insecure = true;
  for (const bool listens : {false, true})
    EXPECT_NE(refusal(options, listens).find("keys cannot be checked without encryption"),
              std::string::npos);
  options.key.reset();
  EXPECT_NE(refusal(options, false).find("rank 0 encrypts"), std::string::npos);
}

TEST(RunAtADoor, AnAllowedKeyMayJoinWithoutTheSecretOfTheRun) {
  const auto plan = small_plan();
  const KeyPair zero = KeyPair::make().take(), machine = KeyPair::make().take();
  const auto mesh = Mesh::listen({.endpoint = "tcp://127.0.0.1:0",
                                  .listen = {},
                                  .key = zero.secret,
                                  .allowed = {machine.public_key}})
                        .take();
  const std::string text = mesh->endpoint() + "?key=" + key_text(zero.public_key);
  std::thread rank([&] {
    const auto stranger =
        Mesh::join({.endpoint = text, .listen = {}, .key = KeyPair::make().take().secret}).take();
    const Status refused = serve(*stranger, plan, 1, {});
    EXPECT_NE(refused.text().find("the listener does not admit this key"), std::string::npos)
        << refused.text();
  });
  std::thread allowed([&] {
    rank.join();
    const auto joined = Mesh::join({.endpoint = text, .listen = {}, .key = machine.secret}).take();
    const Status status = serve(*joined, plan, 1, {});
    EXPECT_TRUE(status.ok()) << status.text();
  });
  {
    const auto run = start(plan, *mesh);
    EXPECT_TRUE(run.ok()) << run.status().text();
  }
  allowed.join();
}

// A loop that resolves a host name sends nothing meanwhile, and a silent rank is lost.
TEST(RunAtADoor, NamesOfHostsAreNotAskedForOnTheLoop) {
  const auto plan = small_plan();
  const auto mesh = Mesh::listen({.endpoint = "tcp://127.0.0.1:0", .listen = {}}).take();
  const std::string port = mesh->join_text().substr(mesh->endpoint().rfind(':'));
  const auto joined =
      Mesh::join({.endpoint = std::string("tcp://") + kName + port, .listen = {}}).take();
  asked_for_on_a_loop = names_asked_for = 0;  // no other process uses this mesh yet
  std::thread rank([&] {
    const Status status = serve(*joined, plan, 1, {});
    EXPECT_TRUE(status.ok()) << status.text();
  });
  {
    const auto run = start(plan, *mesh);
    EXPECT_TRUE(run.ok()) << run.status().text();
  }
  rank.join();
  EXPECT_GT(names_asked_for, 0);
  EXPECT_EQ(asked_for_on_a_loop, 0);
}

TEST(RunWhoseThreadCannotStart, FailsAndTellsThoseThatHaveJoined) {
  const auto plan = small_plan();
  const auto mesh = Mesh::listen({.endpoint = {}, .listen = {}}).take();
  const auto joined = Mesh::join({.endpoint = mesh->endpoint(), .listen = {}}).take();
  threads_are_out = true;
  Status told;
  std::thread rank([&] { told = serve(*joined, plan, 1, {}); });
  const auto run = start(plan, *mesh);
  rank.join();
  threads_are_out = false;
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.status().code(), Code::no_memory);
  EXPECT_EQ(told.code(), Code::no_memory);
  ASSERT_NE(told.origin(), nullptr) << told.text();
  EXPECT_EQ(told.origin()->rank, 0);
  EXPECT_EQ(told.origin()->cause, Cause::failed);
  EXPECT_EQ(told.origin()->detail, run.status().text());
  EXPECT_EQ(told.text(), "joining " + mesh->endpoint() + ": " + origin_text(*told.origin()));
}

// The actions of a process until its welcome.
Result<Welcome> ask_to_join(Net& net, End& candidate) {
  Result<Welcome> welcome = Status(Code::peer, "none came");
  if (!net.until([&] { return candidate.times_connected == 1; })) return welcome;
  const std::vector<std::byte> hello = encode_hello(admission_identity());
  say(candidate, {.kind = FrameKind::hello}, kNobody, hello);
  say(candidate, {.kind = FrameKind::message, .edge = kJoinType, .sequence = 1}, kNobody,
      encode_join({.endpoint = "ipc:///nowhere", .ops = {}, .plan = {}, .key = {}}));
  net.until([&] {
    for (size_t i = 0; i < candidate.frames.size() && !welcome.ok(); ++i)
      welcome = decode_welcome(candidate.frames[i].payload);
    return welcome.ok();
  });
  return welcome;
}

// The process uses the first one on another thread when the second one arrives.
TEST(RunWithoutARank, EndsIfRank0SendsASecondWelcome) {
  const auto plan = small_plan();
  Net net("ipc://");
  ASSERT_TRUE(net.listen("ipc://").ok());
  const auto mesh = Mesh::join({.endpoint = net.listener->endpoint(), .listen = {}}).take();
  Status status;
  std::thread rank([&] { status = serve(*mesh, plan, 1, {}); });
  EXPECT_TRUE(net.until([&] { return !net.accepted.empty(); }));
  End& zero = *net.accepted.front();
  const std::vector<std::byte> hello = encode_hello(admission_identity()),
                               welcome = encode_welcome({.rank = 1,
                                                         .incarnation = 1,
                                                         .peer_timeout_ms = 5000,
                                                         .run = {},
                                                         .model = {},
                                                         .config = {},
                                                         .endpoints = {"ipc:///0", "ipc:///1"},
                                                         .keys = std::vector<PublicKey>(2)});
  say(zero, {.kind = FrameKind::hello, .destination = kNobody}, 0, hello);
  for (const uint64_t sequence : {1, 2})
    say(zero,
        {.kind = FrameKind::message,
         .destination = kNobody,
         .edge = kWelcomeType,
         .sequence = sequence},
        0, welcome);
  EXPECT_TRUE(net.until([&] { return zero.times_disconnected == 1; }));
  rank.join();
  ASSERT_NE(status.origin(), nullptr) << status.text();
  EXPECT_EQ(status.origin()->rank, 0);
  EXPECT_EQ(status.origin()->cause, Cause::protocol);
  EXPECT_EQ(status.origin()->detail, "it sent a second welcome");
}

// Between its welcome and its hello a process has only its first connection: if it closes, the
// process is lost, with or without a bye.
TEST(RunWithARank, ThatEndsBetweenItsWelcomeAndItsHelloIsNamedAtOnce) {
  for (const bool says_bye : {false, true}) {
    const auto plan = small_plan();
    const auto mesh = Mesh::listen({.endpoint = {}, .listen = {}}).take();
    std::thread rank([&] {
      Net net(mesh->endpoint());
      const auto candidate = net.dial(mesh->endpoint());
      EXPECT_TRUE(ask_to_join(net, *candidate).ok());
      // The connections of the run are being made, as those of a rank that ends now.
      const auto member = net.dial(mesh->endpoint());
      EXPECT_TRUE(net.until([&] { return member->times_connected == 1; }));
      if (!says_bye) return;
      say(*candidate, {.kind = FrameKind::bye, .sequence = 2}, kNobody, {});
      EXPECT_TRUE(net.until([&] { return candidate->times_disconnected == 1; }));
    });
    const auto run = start(
        plan, *mesh);  // not after the join timeout of a minute: the test's own time ends before
    rank.join();
    ASSERT_FALSE(run.ok());
    ASSERT_NE(run.status().origin(), nullptr) << run.status().text();
    const Origin& origin = *run.status().origin();
    EXPECT_EQ(origin.rank, 1);
    EXPECT_EQ(origin.cause, Cause::closed);
    EXPECT_TRUE(origin.joining);
    EXPECT_EQ(origin.process, own_process());
    EXPECT_EQ(origin.stages, plan->stages_on(1));
    EXPECT_TRUE(run.status().text().ends_with(says_bye
                                                  ? ") lost before it joined: it left"
                                                  : ") lost before it joined: connection closed"))
        << run.status().text();
  }
}

// Rank 1 without good answers to requests.
class Mute final : private RankProcess::Owner {
 public:
  enum class Answer { none, failure, of_another_type };
  Mute(std::shared_ptr<const Plan> plan, const std::string& endpoint, Answer answer)
      : plan_(std::move(plan)), answer_(answer) {
    thread_ = std::thread([this, endpoint] { live(endpoint); });
  }
  ~Mute() override { thread_.join(); }

 private:
  void live(const std::string& endpoint) {
    Net net(endpoint);
    net_ = &net;
    candidate_ = net.dial(endpoint);
    const Result<Welcome> welcome = ask_to_join(net, *candidate_);
    ASSERT_TRUE(welcome.ok()) << welcome.status().text();
    const auto team = Team::make(1).take();
    const auto worker = Worker::make(plan_, 1, *team).take();
    process_ = std::make_unique<RankProcess>(
        *net.loop, plan_, *worker,
        run_identity(*plan_, welcome.value().incarnation, welcome.value().run), LinkTimes(),
        static_cast<Owner&>(*this), log_);
    EXPECT_TRUE(process_->start().ok());
    EXPECT_TRUE(
        process_->dial(*net.transport, 0, endpoint, {test_keys().public_key, test_keys()}).ok());
    EXPECT_TRUE(net.until([&] { return ended_; }));
    process_.reset();
    candidate_.reset();
    uv_run(net.loop->uv(), UV_RUN_NOWAIT);  // what it retired
  }
  void message(int32_t, uint32_t type, std::span<const std::byte> bytes) override {
    if (answer_ == Answer::none) return;
    const bool fails = answer_ == Answer::failure;
    const auto answer = rpc::answer(*plan_, process_->worker(), fails ? 77 : type, bytes);
    net_->loop->post([this, type = fails ? type : type + 1, answer] {
      process_->send_message(0, type, answer);
    });
  }
  void joined() override { say(*candidate_, {.kind = FrameKind::bye, .sequence = 2}, kNobody, {}); }
  void micro_batch(int32_t) override {}
  void step_done(const StepResult&) override {}
  void failed(const Origin&) override {}
  void closed() override {}
  void all_closed() override { ended_ = true; }

  const std::shared_ptr<const Plan> plan_;
  const Answer answer_;
  Net* net_ = nullptr;
  std::unique_ptr<End> candidate_;
  Log log_{{}};
  std::unique_ptr<RankProcess> process_;
  bool ended_ = false;
  std::thread thread_;
};

ParamId param_of_rank_1(const Plan& plan) {
  const auto at = std::find(plan.owner_of_param.begin(), plan.owner_of_param.end(), 1);
  return static_cast<ParamId>(at - plan.owner_of_param.begin());
}

Status read_of_rank_1(const Plan& plan, Run& run) {
  const ParamId param = param_of_rank_1(plan);
  std::vector<float> values(static_cast<size_t>(plan.model->param(param).shape.elements()));
  return run.read(param, Part::value, values);
}

TEST(RunWithARank, ThatNeverAnswersFailsByItsName) {
  const auto plan = small_plan();
  const auto mesh = Mesh::listen({.endpoint = {}, .listen = {}, .answer_timeout_ms = 200}).take();
  Mute rank(plan, mesh->endpoint(), Mute::Answer::none);
  const auto run = start(plan, *mesh);
  ASSERT_TRUE(run.ok()) << run.status().text();
  const Status first = read_of_rank_1(*plan, *run.value());
  EXPECT_EQ(first.code(), Code::timed_out);
  ASSERT_NE(first.origin(), nullptr) << first.text();
  EXPECT_EQ(first.origin()->rank, 1);
  EXPECT_EQ(first.origin()->cause, Cause::late);
  EXPECT_EQ(first.origin()->process, own_process());
  const std::string late = origin_text(*first.origin());
  EXPECT_TRUE(late.ends_with(") did not answer a request within 0.2 s")) << late;
  EXPECT_EQ(first.text(), late + "; it was asked for a piece of parameter '" +
                              plan->model->param(param_of_rank_1(*plan)).name + "'");
  EXPECT_EQ(read_of_rank_1(*plan, *run.value()).text(), first.text());  // the run has failed
}

TEST(RunWithARank, ThatCannotDoWhatItIsAskedForIsNamed) {
  const auto plan = small_plan();
  const auto mesh = Mesh::listen({.endpoint = {}, .listen = {}}).take();
  Mute rank(plan, mesh->endpoint(), Mute::Answer::failure);
  const auto run = start(plan, *mesh);
  ASSERT_TRUE(run.ok()) << run.status().text();
  EXPECT_EQ(read_of_rank_1(*plan, *run.value()).text(),
            "rank 1: a request of type 77, which is unknown");
}

TEST(RunWithARank, ThatAnswersSomethingElseIsNamed) {
  const auto plan = small_plan();
  const auto mesh = Mesh::listen({.endpoint = {}, .listen = {}}).take();
  Mute rank(plan, mesh->endpoint(), Mute::Answer::of_another_type);
  const auto run = start(plan, *mesh);
  ASSERT_TRUE(run.ok()) << run.status().text();
  const Status status = read_of_rank_1(*plan, *run.value());
  EXPECT_EQ(status.code(), Code::protocol);
  EXPECT_EQ(status.text(), "rank 1 answered a request of type 16 with type 17");
}

}  // namespace
}  // namespace weft::test
