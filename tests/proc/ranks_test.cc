// Runs over real processes and sockets: same bits, refusals by name, and what survivors say when a
// rank dies.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <regex>

#include "proc/rank_program.h"
#include "support/cases.h"

namespace weft::test {
namespace {

using Clock = std::chrono::steady_clock;

std::string log_path(const std::string& name) {
  return "/tmp/weft_proc_" + std::to_string(getpid()) + "_" + name;
}

struct Mesh {
  weft_mesh* mesh = nullptr;
  Mesh(const char* endpoint, int64_t timeout_ms = 20000, int64_t peer_timeout_ms = 5000) {
    weft_error err = sized<weft_error>();
    weft_mesh_config config = defaults(weft_mesh_config_init);
    config.endpoint = endpoint;
    config.join_timeout_ns = timeout_ms * 1000000;
    config.peer_timeout_ns = peer_timeout_ms * 1000000;
    EXPECT_EQ(weft_mesh_listen(&config, &mesh, &err), WEFT_OK) << err.text;
  }
  ~Mesh() { weft_mesh_free(mesh); }
  std::string endpoint() const { return weft_mesh_join_endpoint(mesh); }
};

struct Started {
  weft_run* run = nullptr;
  weft_error err = sized<weft_error>();
  weft_status status;
  Started(const Program& program, weft_mesh* mesh)
      : status(weft_run_start(program.plan, mesh, nullptr, &run, &err)) {}
  ~Started() { weft_run_free(run); }
};

// Rank 0 in this process, the others in children.
struct World {
  Mesh mesh;
  Program program;
  std::vector<std::unique_ptr<Child>> children;  // of rank index + 1
  std::unique_ptr<Started> run;
  World(const Options& options, uint32_t ranks, const char* endpoint = nullptr,
        int64_t peer_timeout_ms = 5000)
      : mesh(endpoint, 20000, peer_timeout_ms) {
    make_program(options, program);
    for (uint32_t r = 1; r < ranks; ++r)
      children.push_back(
          std::make_unique<Child>(Options{{"join", mesh.endpoint()}, {"rank", std::to_string(r)}},
                                  log_path(std::to_string(r))));
    run = std::make_unique<Started>(program, mesh.mesh);
    EXPECT_EQ(run->status, WEFT_OK) << run->err.text;
  }
  // Ends the run in order; every child leaves with 0.
  void end() {
    run.reset();
    for (auto& child : children) EXPECT_EQ(child->wait(10000), 0) << child->last_line();
  }
};

Outcome in_process(const Options& options, int steps) {
  Program program;
  make_program(options, program);
  Started run(program, nullptr);
  EXPECT_EQ(run.status, WEFT_OK) << run.err.text;
  return train(run.run, steps);
}

TEST(Ranks, ProcessesGiveTheBitsOfOneProcess) {
  const Outcome expected = in_process({{"ranks", "1"}}, 5);
  ASSERT_EQ(expected.losses.size(), 5u);
  for (const char* endpoint : {"ipc://", "tcp://127.0.0.1:0"})
    for (uint32_t ranks : {1u, 2u, 3u, 4u})
      for (const char* schedule : {"gpipe", "1f1b"}) {
        World world({{"ranks", std::to_string(ranks)}, {"schedule", schedule}}, ranks, endpoint);
        const Outcome outcome = train(world.run->run, 5);
        EXPECT_EQ(outcome.status, WEFT_OK) << outcome.text;
        EXPECT_EQ(outcome.losses, expected.losses)
            << ranks << " ranks, " << schedule << ", " << endpoint;
        EXPECT_EQ(outcome.digest, expected.digest)
            << ranks << " ranks, " << schedule << ", " << endpoint;
        world.end();
      }
}

// All sockets lie in a directory of the test's own; nothing may be left in it.
std::filesystem::path sockets() { return getenv("TMPDIR"); }
int left_over() {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator(sockets()), {}));
}

// With the stages and the process of the rank in parentheses, as far as they are known.
bool says_lost(const std::string& text, uint32_t rank) {
  const std::regex lost("rank " + std::to_string(rank) + R"(( \([^)]*\))? lost)");
  return std::regex_search(text, lost);
}

// Every survivor names the rank that was hit, at once if its connections closed, else after the
// peer timeout; each has the time of a verdict.
struct Meeting {
  Options options;
  uint32_t ranks;
  uint32_t (*stage_of)(uint32_t rank);
  std::vector<uint32_t> victims;
};

void hit_ranks(int signal_number, const Meeting& of) {
  constexpr std::chrono::milliseconds kPeerTimeout(2000);
  const std::chrono::milliseconds limit =
      (signal_number == SIGKILL ? std::chrono::milliseconds(0) : kPeerTimeout) +
      std::chrono::milliseconds(1500);
  for (const uint32_t victim : of.victims) {
    EXPECT_EQ(left_over(), 0) << "before rank " << victim;
    World world(of.options, of.ranks, nullptr, kPeerTimeout.count());
    Clock::time_point hit;
    const Outcome outcome = train(world.run->run, 1000000, [&](int step) {
      if (step != 3) return;
      hit = Clock::now();
      world.children[victim - 1]->signal(signal_number);
    });
    const std::string name = "rank " + std::to_string(victim);
    EXPECT_EQ(outcome.status, WEFT_EPEER) << outcome.text;
    EXPECT_TRUE(says_lost(outcome.text, victim)) << outcome.text;
    EXPECT_EQ(outcome.failure.rank, static_cast<int32_t>(victim));
    EXPECT_EQ(outcome.failure.cause,
              signal_number == SIGKILL ? WEFT_CAUSE_CLOSED : WEFT_CAUSE_SILENT);
    EXPECT_EQ(outcome.failure.other, -1);
    EXPECT_EQ(outcome.failure.pid, static_cast<uint32_t>(world.children[victim - 1]->pid()));
    EXPECT_EQ(outcome.stages, std::vector<uint32_t>{of.stage_of(victim)});
    EXPECT_LT(Clock::now() - hit, limit) << name;
    for (uint32_t r = 1; r < of.ranks; ++r) {
      if (r == victim) continue;
      EXPECT_EQ(world.children[r - 1]->wait(5000), 4) << "survivor " << r << " of " << name;
      EXPECT_TRUE(says_lost(world.children[r - 1]->last_line(), victim))
          << "survivor " << r << " says: " << world.children[r - 1]->last_line();
    }
    EXPECT_LT(Clock::now() - hit, limit + std::chrono::seconds(1)) << name;
  }
  EXPECT_EQ(left_over(), 0);
}

Meeting pipeline() {
  return {{{"ranks", "4"}}, 4, [](uint32_t rank) { return rank; }, {1, 2, 3}};
}

// A rank of each kind: of the stage of rank 0, of the other stage, and of the other replica.
Meeting mesh() {
  return {{{"mesh", "2x2x2"}}, 8, [](uint32_t rank) { return rank / 2 % 2; }, {1, 2, 7}};
}

TEST(Ranks, SurvivorsNameTheRankThatWasKilled) { hit_ranks(SIGKILL, pipeline()); }
TEST(Ranks, SurvivorsNameTheRankThatWasStopped) { hit_ranks(SIGSTOP, pipeline()); }
TEST(Ranks, SurvivorsInAMeshNameTheRankThatWasKilled) { hit_ranks(SIGKILL, mesh()); }
TEST(Ranks, SurvivorsInAMeshNameTheRankThatWasStopped) { hit_ranks(SIGSTOP, mesh()); }

TEST(Ranks, SurvivorsNameRank0) {
  for (int signal_number : {SIGKILL, SIGSTOP}) {
    // The controller is a child too; its ranks are ours, so that they can be waited for.
    const std::string path = log_path("endpoint");
    unlink(path.c_str());
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    Child controller({{"control", path}, {"ranks", "3"}}, log_path("0"));
    char buffer[256] = {};
    FILE* fifo = fopen(path.c_str(), "r");
    ASSERT_NE(fifo, nullptr);
    ASSERT_NE(fgets(buffer, sizeof buffer, fifo), nullptr);  // its endpoint
    std::string endpoint(buffer);
    endpoint.pop_back();
    Child one({{"join", endpoint}, {"rank", "1"}}, log_path("1")),
        two({{"join", endpoint}, {"rank", "2"}}, log_path("2"));
    ASSERT_NE(fgets(buffer, sizeof buffer, fifo), nullptr);  // its third step
    fclose(fifo);
    controller.signal(signal_number);
    for (Child* survivor : {&one, &two}) {
      EXPECT_EQ(survivor->wait(8000), 4);
      EXPECT_TRUE(says_lost(survivor->last_line(), 0)) << survivor->last_line();
    }
    unlink(path.c_str());
    EXPECT_EQ(left_over(), signal_number == SIGKILL ? 0 : 1);  // a stopped one still holds its own
  }
}

// A process that is killed while the ranks meet: each survivor names it within 5 s, and no other.
// The times are drawn, to hit every part.
void expect_named(const std::string& text, const std::string& victim, int32_t ranks) {
  EXPECT_NE(text.find(victim), std::string::npos) << text;
  for (int32_t r = 0; r < ranks; ++r)
    if (const std::string other = "rank " + std::to_string(r); other != victim) {
      EXPECT_FALSE(says_lost(text, static_cast<uint32_t>(r)))
          << text << ", but " << victim << " was killed";
    }
}

TEST(Ranks, SurvivorsNameTheRankThatWasKilledDuringTheStart) {
  std::mt19937 random(1);
  for (int i = 0; i < 15; i += test::kEvery) {
    const uint32_t victim = 1 + static_cast<uint32_t>(i) % 3;
    Mesh mesh("ipc://", 2500);
    Program program;
    make_program({{"ranks", "4"}}, program);
    const Clock::time_point begin = Clock::now();
    std::vector<std::unique_ptr<Child>> children;
    for (uint32_t r = 1; r < 4; ++r) {
      Options options = {{"join", mesh.endpoint()}, {"rank", std::to_string(r)}};
      if (r == victim) options["dies_after_us"] = std::to_string(5000 + random() % 40000);
      children.push_back(std::make_unique<Child>(options, log_path(std::to_string(r))));
    }
    Started run(program, mesh.mesh);
    const std::string told = run.status < 0 ? run.err.text : train(run.run, 1000000).text;
    expect_named(told, "rank " + std::to_string(victim), 4);
    for (uint32_t r = 1; r < 4; ++r) {
      const int status = children[r - 1]->wait(5000);
      EXPECT_EQ(status, r == victim ? 128 + SIGALRM : 4) << "rank " << r << " of victim " << victim;
      if (r != victim)
        expect_named(children[r - 1]->last_line(), "rank " + std::to_string(victim), 4);
    }
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  }
}

TEST(Ranks, SurvivorsNameRank0ThatWasKilledDuringTheStart) {
  std::mt19937 random(1);
  for (int i = 0; i < 10; i += test::kEvery) {
    const std::string path = log_path("endpoint");
    unlink(path.c_str());
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    Child controller({{"control", path},
                      {"ranks", "4"},
                      {"dies_after_us", std::to_string(15000 + random() % 60000)}},
                     log_path("0"));
    char buffer[256] = {};
    FILE* fifo = fopen(path.c_str(), "r");
    ASSERT_NE(fifo, nullptr);
    ASSERT_NE(fgets(buffer, sizeof buffer, fifo), nullptr);
    std::string endpoint(buffer);
    endpoint.pop_back();
    std::vector<std::unique_ptr<Child>> children;
    for (uint32_t r = 1; r < 4; ++r)
      children.push_back(std::make_unique<Child>(
          Options{{"join", endpoint}, {"rank", std::to_string(r)}, {"timeout", "2500"}},
          log_path(std::to_string(r))));
    for (auto& child : children) {
      EXPECT_EQ(child->wait(5000), 4);
      expect_named(child->last_line(), "rank 0", 4);
    }
    fclose(fifo);
    unlink(path.c_str());
  }
}

TEST(Ranks, WhoDiffersIsRefusedByName) {
  const struct {
    Options options;
    const char* part;
  } cases[] = {{{{"seed", "2"}}, "setting 'seed'"},
               {{{"cut", "l3"}}, "partition"},
               {{{"schedule", "gpipe"}}, "schedule"}};
  for (const auto& c : cases) {
    Mesh mesh("ipc://", 1500);
    Program program;
    make_program({{"ranks", "3"}}, program);
    Options options = c.options;
    options.insert({{"join", mesh.endpoint()}, {"own", "yes"}, {"ranks", "3"}});
    Child other(options, log_path("other"));
    Started run(program, mesh.mesh);
    EXPECT_EQ(run.status, WEFT_ETIMEDOUT);
    EXPECT_NE(std::string(run.err.text).find("ranks 1, 2 have not joined"), std::string::npos)
        << run.err.text;
    EXPECT_EQ(other.wait(5000), 4);
    EXPECT_NE(other.last_line().find(std::string("its plan differs from that of rank 0 in the ") +
                                     c.part),
              std::string::npos)
        << other.last_line();
  }
}

TEST(Ranks, ARankThatMadeThePlanItselfMayJoin) {
  Mesh mesh("ipc://");
  Program program;
  make_program({{"ranks", "2"}}, program);
  Child other({{"join", mesh.endpoint()}, {"own", "yes"}, {"ranks", "2"}}, log_path("own"));
  {
    Started run(program, mesh.mesh);
    ASSERT_EQ(run.status, WEFT_OK) << run.err.text;
    EXPECT_EQ(train(run.run, 2).digest, in_process({}, 2).digest);
  }
  EXPECT_EQ(other.wait(5000), 0) << other.last_line();
}

TEST(Ranks, TheSameRankTwiceIsRefused) {
  Mesh mesh("ipc://", 3000);
  Program program;
  make_program({{"ranks", "3"}}, program);
  const Options options = {{"join", mesh.endpoint()}, {"rank", "1"}};
  Child first(options, log_path("a")), second(options, log_path("b"));
  Started run(program, mesh.mesh);
  EXPECT_EQ(run.status, WEFT_ETIMEDOUT);
  EXPECT_NE(std::string(run.err.text).find("rank 2 has not joined"), std::string::npos)
      << run.err.text;
  EXPECT_NE(std::string(run.err.text).find("rank 1, which has joined already"), std::string::npos)
      << run.err.text;
  EXPECT_EQ(first.wait(5000), 4);
  EXPECT_EQ(second.wait(5000), 4);
  std::string said = first.last_line(), other = second.last_line();
  if (other.find("began no run") == std::string::npos) std::swap(said, other);
  EXPECT_NE(other.find("rank 0 began no run: rank 2 has not joined"), std::string::npos) << other;
  EXPECT_NE(said.find("rank 1, which has joined already"), std::string::npos) << said;
}

TEST(Ranks, NobodyAtTheAddress) {
  Child lonely({{"join", "tcp://127.0.0.1:9?key=" + std::string(128, '7')}, {"timeout", "1500"}},
               log_path("lonely"));
  EXPECT_EQ(lonely.wait(10000), 4) << lonely.last_line();
  EXPECT_NE(lonely.last_line().find("tcp://127.0.0.1:9"), std::string::npos) << lonely.last_line();
  EXPECT_EQ(lonely.last_line().find("777"), std::string::npos) << lonely.last_line();
}

// A rank that was given its place and does not come is missed by name, and the start fails; it does
// not bring rank 0 down.
TEST(Ranks, ARankThatTurnsBackAfterTheWelcomeFailsTheStart) {
  const int before = left_over();
  for (const char* endpoint : {"ipc://", "tcp://127.0.0.1:0"}) {
    Mesh mesh(endpoint, 1500);
    Program program;
    make_program({{"ranks", "3"}, {"user_op", "yes"}}, program);
    Child one({{"join", mesh.endpoint()}, {"rank", "1"}, {"broken_op", "yes"}}, log_path("1"));
    Child two({{"join", mesh.endpoint()}, {"rank", "2"}, {"broken_op", "yes"}}, log_path("2"));
    Started run(program, mesh.mesh);
    EXPECT_LT(run.status, 0);
    EXPECT_NE(std::string(run.err.text).find("rank "), std::string::npos) << run.err.text;
    for (Child* child : {&one, &two}) {
      EXPECT_EQ(child->wait(5000), 3) << child->last_line();
      EXPECT_NE(child->last_line().find("'own'"), std::string::npos) << child->last_line();
    }
  }
  EXPECT_EQ(left_over(), before);
}

TEST(Ranks, ACanceledMeshWaitsForNobody) {
  Mesh mesh("ipc://");
  Program program;
  make_program({{"ranks", "2"}}, program);
  weft_mesh_cancel(mesh.mesh);
  Started run(program, mesh.mesh);
  EXPECT_EQ(run.status, WEFT_ECANCELED);
  EXPECT_NE(std::string(run.err.text).find(weft_mesh_endpoint(mesh.mesh)), std::string::npos)
      << run.err.text;
  weft_mesh_cancel(nullptr);
}

TEST(Ranks, ACanceledMeshEndsTheRunEverywhere) {
  World world({{"ranks", "3"}}, 3);
  const Outcome outcome = train(world.run->run, 1000000, [&](int step) {
    if (step == 1) weft_mesh_cancel(world.mesh.mesh);
  });
  EXPECT_EQ(outcome.status, WEFT_ECANCELED) << outcome.text;
  for (auto& child : world.children) {
    EXPECT_EQ(child->wait(5000), 4);
    EXPECT_NE(child->last_line().find(") failed: its own process canceled"), std::string::npos)
        << child->last_line();
  }
}

// As rank 0 that does not leave on its own: writes its endpoint and a line after its third step,
// and trains on.
int control(const Options& options) {
  Mesh mesh("ipc://");
  FILE* fifo = fopen(options.at("control").c_str(), "w");
  fprintf(fifo, "%s\n", mesh.endpoint().c_str());
  fflush(fifo);
  Program program;
  make_program(options, program);
  die_soon(options);
  Started run(program, mesh.mesh);
  if (run.status != WEFT_OK) return 1;
  train(run.run, 1000000, [fifo](int step) {
    if (step == 2) {
      fprintf(fifo, "three\n");
      fflush(fifo);
    }
  });
  return 0;
}

}  // namespace
}  // namespace weft::test

int main(int argc, char** argv) {
  weft::test::Options options;
  for (int i = 1; i < argc; ++i)
    if (const std::string word = argv[i]; word.find('=') != std::string::npos && word[0] != '-')
      options[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  if (options.count("join")) return weft::test::serve(options);
  if (options.count("control")) return weft::test::control(options);
  char directory[] = "/tmp/weft-test-XXXXXX";
  if (!mkdtemp(directory)) return 1;
  setenv("TMPDIR", directory, 1);
  unsetenv("XDG_RUNTIME_DIR");
  testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  std::filesystem::remove_all(directory);
  return failed;
}
