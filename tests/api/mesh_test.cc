// Ranks that fail while they join a run: rank 0 reports it at once, with the rank. And processes
// without descriptors for a mesh.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include "api/api.h"

namespace {

MeshPtr listen() {
  weft_mesh* out = nullptr;
  Error err;
  EXPECT_EQ(weft_mesh_listen(nullptr, &out, &err), WEFT_OK) << err.text;
  return MeshPtr(out);
}

// Joins and serves; `ops` may be null.
weft_status serve(const std::string& endpoint, const weft_model* ops, Error& err) {
  weft_mesh_config config = defaults(weft_mesh_config_init);
  config.endpoint = endpoint.c_str();
  weft_mesh* mesh = nullptr;
  weft_status status = weft_mesh_join(&config, &mesh, &err);
  if (status >= 0) status = weft_run_serve(mesh, nullptr, ops, nullptr, &err);
  weft_mesh_free(mesh);
  return status;
}

// A process that has only so many descriptors left.
void listen_with(int left, const char* endpoint) {
  const rlimit most{96, 96};
  setrlimit(RLIMIT_NOFILE, &most);
  std::vector<int> open;
  for (int at = 0; (at = eventfd(0, EFD_CLOEXEC)) >= 0;) open.push_back(at);
  for (int i = 0; i < left; ++i) close(open[static_cast<size_t>(i)]);
  weft_mesh_config config = defaults(weft_mesh_config_init);
  config.endpoint = endpoint;
  weft_mesh* mesh = nullptr;
  const weft_status status = weft_mesh_listen(&config, &mesh, nullptr);
  weft_mesh_free(mesh);
  std::_Exit(status == WEFT_OK ? 1 : status == WEFT_ENOMEM ? 2 : 3);
}

// A process of a user who may have only so many threads; there is no such limit for root.
void listen_with_threads(rlim_t most) {
  constexpr uid_t kOther = 61234;
  if (getuid() == 0 && setuid(kOther) != 0) std::_Exit(4);
  const rlimit limit{most, most};
  setrlimit(RLIMIT_NPROC, &limit);
  weft_mesh_config config = defaults(weft_mesh_config_init);
  config.endpoint = "tcp://127.0.0.1:0";
  weft_mesh* mesh = nullptr;
  weft_error err = {};
  err.size = sizeof err;
  const weft_status status = weft_mesh_listen(&config, &mesh, &err);
  weft_mesh_free(mesh);
  std::fputs(err.text, stderr);
  std::_Exit(status == WEFT_OK ? 1 : status == WEFT_ENOMEM ? 2 : 3);
}

// GoogleTest runs suites of this name first, so each child is a copy of a process without threads.
TEST(MeshDeathTest, WithoutDescriptorsIsAFailureOfItsOwn) {
#ifdef WEFT_SANITIZED
  GTEST_SKIP() << "sanitizers end the process instead";
#endif
  for (const char* const endpoint : {"ipc://", "tcp://127.0.0.1:0"}) {
    const auto fails_or_listens = [](int status) {
      return WIFEXITED(status) && (WEXITSTATUS(status) == 1 || WEXITSTATUS(status) == 2);
    };
    EXPECT_EXIT(listen_with(0, endpoint), testing::ExitedWithCode(2), "") << endpoint;
    for (int left = 1; left < 48; ++left)
      EXPECT_EXIT(listen_with(left, endpoint), fails_or_listens, "") << endpoint << ", " << left;
    EXPECT_EXIT(listen_with(48, endpoint), testing::ExitedWithCode(1), "") << endpoint;
  }
}

TEST(MeshDeathTest, WithoutThreadsIsAFailureOfItsOwn) {
#ifdef WEFT_SANITIZED
  GTEST_SKIP() << "sanitizers start threads of their own";
#endif
  if (getuid() != 0) GTEST_SKIP() << "other processes of this user have threads, too";
  for (rlim_t most = 1; most <= 3; ++most)
    EXPECT_EXIT(listen_with_threads(most), testing::ExitedWithCode(2), "cannot be started: ")
        << most;
  EXPECT_EXIT(listen_with_threads(8), testing::ExitedWithCode(1), "");
}

int32_t same_shape(weft_op_call* call) {
  call->output.desc = call->inputs[0].desc;
  return 0;
}
int32_t copy(const weft_op_call* call) {
  std::memcpy(call->output.data, call->inputs[0].data,
              static_cast<size_t>(elements(call->output.desc)) * sizeof(float));
  return 0;
}

void add_own_op(const ModelPtr& model, int32_t (*shape)(weft_op_call*), uint32_t version = 1) {
  weft_op op = defaults(weft_op_init);
  op.version = version;
  op.name = "own";
  op.shape = shape;
  op.forward = copy;
  Error err;
  EXPECT_EQ(weft_model_add_op(model.get(), &op, nullptr, &err), WEFT_OK) << err.text;
}

// A user op, and a layer for each of two ranks.
ModelPtr own_model() {
  ModelPtr model = new_model();
  add_own_op(model, same_shape);
  weft_value x = add_input(model, "x", {1, 6});
  const weft_value y = add_input(model, "y", {1, 3});
  x = add_linear(model, "a", add_node(model, "own", {x}), 6);
  add_node(model, "mse", {add_linear(model, "b", x, 3), y});
  return model;
}

int32_t no_shape(weft_op_call*) { return -1; }

// Only they fail, and rank 0 waits for a process that has it.
TEST(JoiningRanks, OneWithoutTheOpOrWithAnotherVersionOfItIsRefused) {
  const PlanPtr plan = new_plan(own_model(), plan_config(2));
  const MeshPtr mesh = listen();
  const ModelPtr other = new_model(), right = new_model();
  add_own_op(other, same_shape, 2);
  add_own_op(right, same_shape);
  Error lacking, differing, theirs, err;
  std::thread ranks([&, endpoint = std::string(weft_mesh_endpoint(mesh.get()))] {
    expect_error(serve(endpoint, nullptr, lacking), lacking, WEFT_EPEER,
                 {"refused by rank 0: node 'own_2' needs the op 'own', which it does not have"});
    expect_error(serve(endpoint, other.get(), differing), differing, WEFT_EPEER,
                 {"refused by rank 0: node 'own_2' needs version 1 of the op 'own', it has 2"});
    EXPECT_EQ(serve(endpoint, right.get(), theirs), WEFT_OK) << theirs.text;
  });
  weft_run_config config = defaults(weft_run_config_init);
  config.flags = WEFT_RUN_NOWAIT;
  weft_run* run = nullptr;
  EXPECT_EQ(weft_run_start(plan.get(), mesh.get(), &config, &run, &err), WEFT_OK) << err.text;
  uint64_t refused = 0;
  weft_event event = sized<weft_event>();
  while (weft_run_poll(run, &event, -1, &err) == 1 && event.kind != WEFT_EVENT_STARTED)
    if (event.kind == WEFT_EVENT_REFUSED) refused = event.count;
  EXPECT_EQ(event.kind, WEFT_EVENT_STARTED);
  EXPECT_EQ(refused, 2u);
  weft_run_free(run);
  ranks.join();
}

TEST(JoiningRanks, ARankThatCannotMakeItsPlanIsNamedWithTheReason) {
  const PlanPtr plan = new_plan(own_model(), plan_config(2));
  const MeshPtr mesh = listen();
  const ModelPtr ops = new_model();
  add_own_op(ops, no_shape);
  Error theirs, err;
  std::thread other([&, endpoint = std::string(weft_mesh_endpoint(mesh.get()))] {
    EXPECT_LT(serve(endpoint, ops.get(), theirs), 0);
  });
  weft_run* run = nullptr;
  // The join timeout is a minute, which is longer than the test may take.
  const weft_status status = weft_run_start(plan.get(), mesh.get(), nullptr, &run, &err);
  other.join();
  expect_error(status, err, theirs.status, {"rank 1 (stage 1, pid ", ") failed: ", theirs.text});
  EXPECT_NE(std::strstr(theirs.text, "own"), nullptr) << theirs.text;
}

TEST(JoiningRanks, OneThatFailsIsNamedOnTheOthersToo) {
  const ModelPtr ops = new_model(), bad = new_model();
  add_own_op(ops, same_shape);
  add_own_op(bad, no_shape);
  const PlanPtr plan = new_plan(own_model(), plan_config(3));
  const MeshPtr mesh = listen();
  Error theirs[2], err;
  const std::string endpoint = weft_mesh_endpoint(mesh.get());
  std::thread sound([&] { EXPECT_LT(serve(endpoint, ops.get(), theirs[0]), 0); });
  std::thread other([&] { EXPECT_LT(serve(endpoint, bad.get(), theirs[1]), 0); });
  weft_run* run = nullptr;
  const weft_status status = weft_run_start(plan.get(), mesh.get(), nullptr, &run, &err);
  sound.join();
  other.join();
  expect_error(status, err, theirs[1].status, {" failed: ", theirs[1].text});
  // A rank without a plan does not know the stages of the rank that failed.
  EXPECT_NE(std::strstr(theirs[0].text, " failed: "), nullptr) << theirs[0].text;
  EXPECT_NE(std::strstr(theirs[0].text, theirs[1].text), nullptr) << theirs[0].text;
}

TEST(JoiningRanks, ARankThatDiesBeforeItHasJoinedIsNamed) {
  int way[2];
  ASSERT_EQ(pipe(way), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // if the test ends before this process joins
    close(way[1]);
    char endpoint[200] = "";
    if (read(way[0], endpoint, sizeof endpoint - 1) <= 0) _exit(1);
    const ModelPtr ops = new_model();
    add_own_op(
        ops, [](weft_op_call*) -> int32_t { return raise(SIGKILL); });  // when it gets its welcome
    Error err;
    serve(endpoint, ops.get(), err);
    _exit(2);
  }
  const PlanPtr plan = new_plan(own_model(), plan_config(2));
  const MeshPtr mesh = listen();
  const std::string endpoint = weft_mesh_endpoint(mesh.get());
  ASSERT_EQ(write(way[1], endpoint.data(), endpoint.size()), static_cast<ssize_t>(endpoint.size()));
  weft_run* run = nullptr;
  Error err;
  expect_error(weft_run_start(plan.get(), mesh.get(), nullptr, &run, &err), err, WEFT_EPEER,
               {"rank 1 (stage 1, pid ", ") lost before it joined: connection closed"});
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  close(way[0]);
  close(way[1]);
}

// Plans for these numbers of ranks, as processes that join have them.
PlanPtr plan_of(uint32_t ranks) {
  ModelPtr model = new_model();
  weft_value x = add_input(model, "x", {1, 6});
  const weft_value y = add_input(model, "y", {1, 6});
  for (uint32_t i = 0; i < ranks; ++i)
    x = add_linear(model, ("l" + std::to_string(i)).c_str(), x, 6);
  add_node(model, "mse", {x, y});
  return new_plan(model, plan_config(ranks));
}

TEST(Mesh, WhereNobodyCanListenIsNamed) {
  const struct {
    const char* endpoint;
    weft_status status;
  } cases[] = {{"foo", WEFT_EINVAL},
               {"inproc://x", WEFT_EINVAL},
               {"ipc://x", WEFT_EINVAL},
               {"ipc:///no-such-directory/x", WEFT_ENOENT}};
  for (const auto& c : cases) {
    weft_mesh_config config = defaults(weft_mesh_config_init);
    config.endpoint = c.endpoint;
    weft_mesh* mesh = nullptr;
    Error err;
    expect_error(weft_mesh_listen(&config, &mesh, &err), err, c.status, {c.endpoint});
    EXPECT_EQ(mesh, nullptr);
  }
}

TEST(Mesh, AnEndpointThatNobodyCanJoinIsRefusedByTheCall) {
  const struct {
    const char *endpoint, *listen, *text;
  } cases[] = {{"ipc://", nullptr, "'ipc://': expected an absolute path, ipc:///PATH"},
               {"ipc://x", nullptr, "'ipc://x': expected an absolute path, ipc:///PATH"},
               {"tcp://127.0.0.1", "tcp://127.0.0.1:0", "'tcp://127.0.0.1': expected tcp://"},
               {"ipc:///x", "tcp://127.0.0.1:0", "'ipc:///x': expected one that begins with tcp"}};
  for (const auto& c : cases) {
    weft_mesh_config config = defaults(weft_mesh_config_init);
    config.endpoint = c.endpoint;
    config.listen = c.listen;
    config.flags = WEFT_MESH_INSECURE;
    weft_mesh* mesh = nullptr;
    Error err;
    expect_error(weft_mesh_join(&config, &mesh, &err), err, WEFT_EINVAL, {c.text});
    weft_mesh_free(mesh);
  }
}

// Also without its scheme.
TEST(Mesh, NoErrorShowsTheKeyOfAJoinText) {
  weft_mesh_config config = defaults(weft_mesh_config_init);
  config.endpoint = "tcp://127.0.0.1:0";
  weft_mesh *listening = nullptr, *mesh = nullptr;
  Error err;
  ASSERT_EQ(weft_mesh_listen(&config, &listening, &err), WEFT_OK) << err.text;
  const std::string join = weft_mesh_join_endpoint(listening),
                    key = join.substr(join.find('=') + 1);
  const auto refused = [&](weft_status status, const char* text) {
    expect_error(status, err, WEFT_EINVAL, {text});
    EXPECT_EQ(std::strstr(err.text, key.substr(0, 8).c_str()), nullptr) << err.text;
    EXPECT_EQ(std::strstr(err.text, key.substr(key.size() - 8).c_str()), nullptr) << err.text;
  };
  for (const std::string& text : {join, join.substr(6), "udp" + join.substr(3)}) {
    config.endpoint = text.c_str();
    refused(weft_mesh_listen(&config, &mesh, &err), "a text with a key is for weft_mesh_join");
    config.listen = text.c_str();
    config.endpoint = join.c_str();
    refused(weft_mesh_join(&config, &mesh, &err), "a text with a key is for weft_mesh_join");
    config.listen = nullptr;
  }
  for (const std::string& text : {join.substr(6), "udp" + join.substr(3), join + "0",
                                  join.substr(0, join.size() - 1) + "G", join + ":5"}) {
    config.endpoint = text.c_str();
    refused(weft_mesh_join(&config, &mesh, &err), "expected");
  }
  weft_mesh_free(listening);
}

// Also if the call returns before the run has started.
TEST(Mesh, TooManyThreadsAreRefusedByTheCall) {
  const PlanPtr plan = plan_of(2);
  const MeshPtr mesh = listen();
  weft_mesh_config place = defaults(weft_mesh_config_init);
  place.endpoint = weft_mesh_endpoint(mesh.get());
  weft_mesh* out = nullptr;
  Error err;
  ASSERT_EQ(weft_mesh_join(&place, &out, &err), WEFT_OK) << err.text;
  const MeshPtr joined(out);
  weft_run_config config = defaults(weft_run_config_init);
  config.flags = WEFT_RUN_NOWAIT;
  config.threads = 1025;
  const char* const text = "weft_run_config.threads is 1025, expected 0 to 1024";
  weft_run* run = nullptr;
  expect_error(weft_run_start(plan.get(), nullptr, &config, &run, &err), err, WEFT_EINVAL, {text});
  expect_error(weft_run_start(plan.get(), mesh.get(), &config, &run, &err), err, WEFT_EINVAL,
               {text});
  expect_error(weft_run_join(joined.get(), nullptr, nullptr, &config, &run, &err), err, WEFT_EINVAL,
               {text});
  weft_run_free(run);
}

TEST(Mesh, ATimeoutThatIsOutOfRangeIsRefused) {
  constexpr int64_t kMost = 4294967295000000;
  const struct {
    int64_t join, peer;
    const char* text;
  } cases[] = {
      {999999, 1000000000, "join_timeout_ns is 999999, expected 1000000 to"},
      {kMost + 1, 1000000000, "join_timeout_ns is 4294967295000001, expected 1000000 to"},
      {1000000, 999000000, "peer_timeout_ns is 999000000, expected 1000000000 to 4294967295000000"},
      {1000000, kMost + 1, "peer_timeout_ns is 4294967295000001, expected 1000000000 to"}};
  weft_mesh_config config = defaults(weft_mesh_config_init);
  weft_mesh* mesh = nullptr;
  Error err;
  for (const auto& c : cases) {
    config.join_timeout_ns = c.join;
    config.peer_timeout_ns = c.peer;
    expect_error(weft_mesh_listen(&config, &mesh, &err), err, WEFT_EINVAL, {c.text});
    EXPECT_EQ(mesh, nullptr);
  }
  config.join_timeout_ns = config.peer_timeout_ns = kMost;
  EXPECT_EQ(weft_mesh_listen(&config, &mesh, &err), WEFT_OK) << err.text;
  weft_mesh_free(mesh);
}

#ifndef WEFT_SANITIZED
// Whether the heap of the process contains the text of which `masked` has each byte plus 1. Stacks
// can contain it for a while, because the dynamic linker saves vector registers there.
bool is_in_heap(const std::string& masked) {
  const auto same = [](char found, char expected) { return found + 1 == expected; };
  constexpr size_t kStack = size_t{2} << 20;  // no stack is smaller, and no heap larger
  const int memory = open("/proc/self/mem", O_RDONLY);
  std::ifstream maps("/proc/self/maps");
  bool found = false;
  for (std::string line; !found && std::getline(maps, line);) {
    if (line.find(" rw") == std::string::npos || line.ends_with("[stack]")) continue;
    size_t used = 0;
    const size_t begin = std::stoull(line, &used, 16),
                 end = std::stoull(line.substr(used + 1), nullptr, 16);
    if (end - begin >= kStack) continue;
    std::vector<char> bytes(end - begin);
    pread(memory, bytes.data(), bytes.size(), static_cast<off_t>(begin));
    found =
        std::search(bytes.begin(), bytes.end(), masked.begin(), masked.end(), same) != bytes.end();
    explicit_bzero(bytes.data(), bytes.size());
  }
  close(memory);
  return found;
}

TEST(Mesh, LeavesNoSecretInFreedMemory) {
  mallopt(M_PERTURB, 0);  // Meson sets it, which overwrites freed memory
  weft_mesh_config config = defaults(weft_mesh_config_init);
  config.endpoint = "tcp://127.0.0.1:0";
  weft_mesh *listening = nullptr, *joining = nullptr;
  Error err;
  ASSERT_EQ(weft_mesh_listen(&config, &listening, &err), WEFT_OK) << err.text;
  char line[256] = "";
  std::strcpy(line, weft_mesh_join_endpoint(listening));
  std::string masked;
  for (const char* at = line + std::strlen(line) - 48; *at; ++at)
    masked += static_cast<char>(*at + 1);
  config.endpoint = line;
  ASSERT_EQ(weft_mesh_join(&config, &joining, &err), WEFT_OK) << err.text;
  EXPECT_TRUE(is_in_heap(masked));
  config.rank = -5;
  weft_mesh* none = nullptr;
  EXPECT_EQ(weft_mesh_join(&config, &none, &err), WEFT_EINVAL);
  weft_mesh_free(joining);
  weft_mesh_free(listening);
  explicit_bzero(line, sizeof line);
  EXPECT_FALSE(is_in_heap(masked));
}
#endif

TEST(Mesh, AStartThatFailedMayBeTriedAgainWithAnotherPlan) {
  weft_mesh_config config = defaults(weft_mesh_config_init);
  config.join_timeout_ns = 300000000;
  weft_mesh* out = nullptr;
  Error theirs, err;
  ASSERT_EQ(weft_mesh_listen(&config, &out, &err), WEFT_OK) << err.text;
  const MeshPtr mesh(out);
  const std::string endpoint = weft_mesh_endpoint(mesh.get());
  const PlanPtr large = plan_of(8), small = plan_of(2);
  weft_run* run = nullptr;
  // It may connect after one wait; then the next wait has it as a candidate, and refuses it.
  std::atomic<bool> heard = false;
  std::thread other([&] {
    EXPECT_LT(serve(endpoint, nullptr, theirs), 0);
    heard = true;
  });
  weft_status status = WEFT_OK;
  do
    EXPECT_EQ(status = weft_run_start(large.get(), mesh.get(), nullptr, &run, &err), WEFT_ETIMEDOUT)
        << err.text;
  while (status == WEFT_ETIMEDOUT && !heard);
  other.join();
  EXPECT_NE(std::strstr(theirs.text, "rank 0 began no run: "), nullptr) << theirs.text;
  std::thread again([&] { EXPECT_EQ(serve(endpoint, nullptr, theirs), WEFT_OK) << theirs.text; });
  do status = weft_run_start(small.get(), mesh.get(), nullptr, &run, &err);
  while (status == WEFT_ETIMEDOUT);
  EXPECT_EQ(status, WEFT_OK) << err.text;
  weft_run_free(run);
  again.join();
}

TEST(Mesh, ServesOneRunInThePartThatItWasMadeFor) {
  const PlanPtr plan = plan_of(2);
  const MeshPtr mesh = listen();
  Error err, theirs;
  expect_error(weft_run_serve(mesh.get(), nullptr, nullptr, nullptr, &err), err, WEFT_ESTATE,
               {"made to listen", "cannot serve a run"});
  weft_mesh_config config = defaults(weft_mesh_config_init);
  config.endpoint = weft_mesh_endpoint(mesh.get());
  weft_mesh* out = nullptr;
  ASSERT_EQ(weft_mesh_join(&config, &out, &err), WEFT_OK) << err.text;
  const MeshPtr joined(out);
  weft_run* run = nullptr;
  expect_error(weft_run_start(plan.get(), joined.get(), nullptr, &run, &err), err, WEFT_ESTATE,
               {"made to join", "cannot start a run"});

  std::thread other([&] {
    EXPECT_EQ(weft_run_serve(joined.get(), nullptr, nullptr, nullptr, &theirs), WEFT_OK)
        << theirs.text;
  });
  ASSERT_EQ(weft_run_start(plan.get(), mesh.get(), nullptr, &run, &err), WEFT_OK) << err.text;
  weft_run* second = nullptr;
  expect_error(weft_run_start(plan.get(), mesh.get(), nullptr, &second, &err), err, WEFT_ESTATE,
               {"was used for a run already"});
  weft_run_free(run);
  other.join();
  expect_error(weft_run_start(plan.get(), mesh.get(), nullptr, &run, &err), err, WEFT_ESTATE,
               {"was used for a run already"});
  expect_error(weft_run_serve(joined.get(), nullptr, nullptr, nullptr, &err), err, WEFT_ESTATE,
               {"was used for a run already"});
}

}  // namespace
