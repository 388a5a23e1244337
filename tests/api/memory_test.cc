// Behaviour without memory: whichever allocation of weft fails, from the start of a run to its end,
// a call fails with WEFT_ENOMEM or nothing fails; the process continues, no call waits forever, and
// all memory is freed. And steps do not leak memory.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "api/api.h"
#include "support/directory.h"
#include "support/weft_memory.h"

namespace {

namespace memory = test::memory;
using weft::test::Directory;

struct Driver {
  const char* name;
  uint32_t threads;
  bool mesh;
};
constexpr Driver kDrivers[] = {{"Inline", 0, false}, {"Threads", 2, false}, {"Mesh", 1, true}};

// A layer for each of two ranks.
ModelPtr tiny_model() {
  ModelPtr model = new_model();
  const weft_value x = add_input(model, "x", {1, 6}), y = add_input(model, "y", {1, 3});
  const weft_value hidden = add_linear(model, "a", x, 4);
  Error err;
  EXPECT_EQ(weft_model_add_output(model.get(), hidden, &err), WEFT_OK) << err.text;
  add_node(model, "mse", {add_linear(model, "b", hidden, 3), y});
  return model;
}

// The two processes of a mesh: this one, and a thread that serves. If one cannot take part, it ends
// the other one, as a launcher would.
class Pair {
 public:
  ~Pair() { end(); }
  weft_status listen() {
    weft_mesh* mesh = nullptr;
    const weft_status status = weft_mesh_listen(nullptr, &mesh, nullptr);
    zero_.reset(mesh);
    if (status != WEFT_OK) return status;
    endpoint_ = weft_mesh_endpoint(mesh);
    other_ = std::thread([this] {
      status_ = serve();
      if (status_ != WEFT_OK && !started) weft_mesh_cancel(zero_.get());
    });
    return status;
  }
  weft_mesh* zero() const { return zero_.get(); }
  // The result of the other rank.
  weft_status end() {
    if (!other_.joinable()) return status_;
    if (!started) {
      std::unique_lock lock(mutex_);
      opened_.wait(lock, [this] { return has_opened_; });
      weft_mesh_cancel(one_.get());
    }
    other_.join();
    return status_;
  }

  std::atomic<bool> started = false;  // rank 0 has a run

 private:
  weft_status serve() {
    weft_mesh_config config = defaults(weft_mesh_config_init);
    config.endpoint = endpoint_.c_str();
    weft_mesh* mesh = nullptr;
    const weft_status status = weft_mesh_join(&config, &mesh, nullptr);
    {
      const std::lock_guard lock(mutex_);
      one_.reset(mesh);
      has_opened_ = true;
      opened_.notify_one();
    }
    return status == WEFT_OK ? weft_run_serve(mesh, nullptr, nullptr, nullptr, nullptr) : status;
  }

  std::string endpoint_;
  MeshPtr zero_, one_;
  std::mutex mutex_;
  std::condition_variable opened_;
  bool has_opened_ = false;
  weft_status status_ = WEFT_OK;
  std::thread other_;
};

class AnyDriver : public testing::TestWithParam<Driver> {
 protected:
  // The whole life of a run, as far as it gets. Collects the statuses of the failed calls of every
  // rank.
  std::vector<weft_status> live() {
    failed_.clear();
    Pair pair;
    if (GetParam().mesh && !fine(pair.listen())) return failed_;
    weft_run* run = nullptr;
    weft_run_config config = defaults(weft_run_config_init);
    config.threads = GetParam().threads;
    if (fine(weft_run_start(plan_.get(), pair.zero(), &config, &run, nullptr))) {
      pair.started = true;
      use(run);
      weft_run_free(run);
    }
    (void)fine(pair.end());
    return failed_;
  }

  void use(weft_run* run) {
    Error err;
    weft_tensor* const inputs[] = {x_.get(), y_.get()};
    char digest[33];
    weft_save_config save = defaults(weft_save_config_init);
    save.directory = directory_.path().c_str();
    if (!steps(run, inputs)) return;
    if (!fine(weft_run_save(run, &save, &err))) return;
    weft_checkpoint* checkpoint = nullptr;
    if (fine(weft_checkpoint_open(directory_.path().c_str(), &checkpoint, &err)))
      (void)fine(weft_run_load(run, checkpoint, WEFT_LOAD_ALL, &err));
    weft_checkpoint_free(checkpoint);
    (void)fine(weft_run_digest(run, digest, &err));
  }

  // Two submitted steps, and the events of both.
  bool steps(weft_run* run, weft_tensor* const* inputs) {
    Error err;
    int submitted = 0;
    for (const weft_step_mode mode : {WEFT_TRAIN, WEFT_FORWARD})
      submitted += fine(weft_run_submit(run, inputs, 2, mode, 0, &err));
    bool all = submitted == 2;
    weft_event event = sized<weft_event>();
    while (submitted > 0) {
      const weft_status polled = weft_run_poll(run, &event, -1, nullptr);
      if (polled == 0) ADD_FAILURE() << "a step has no final event";
      if (polled == 0) return false;
      if (polled < 0) {
        (void)fine(polled);
        continue;  // the event is still in the queue
      }
      if (event.kind == WEFT_EVENT_MICRO_BATCH) continue;
      --submitted;
      all = fine(event.kind == WEFT_EVENT_DONE ? WEFT_OK : event.status) && all;
    }
    return all;
  }

  bool fine(weft_status status) {
    if (status != WEFT_OK) failed_.push_back(status);
    return status == WEFT_OK;
  }

  PlanPtr plan_ = new_plan(tiny_model(), plan_config(2));
  TensorPtr x_ = noise({6, 6}), y_ = noise({6, 3}, 2);
  const Directory directory_;
  std::vector<weft_status> failed_;
};

TEST_P(AnyDriver, AnyAllocationMayFail) {
  EXPECT_EQ(live(), std::vector<weft_status>());  // what a process allocates once is allocated
  const int64_t before = memory::live();
  for (int64_t n = 0; !HasFailure(); ++n) {
    memory::fail(n, 1);
    const std::vector<weft_status> failed = live();
    if (!memory::stop_failing()) {
      EXPECT_GT(n, 1000);
      break;
    }
    EXPECT_TRUE(failed.empty() || std::count(failed.begin(), failed.end(), WEFT_ENOMEM) > 0)
        << "allocation " << n << ": " << failed[0];
    EXPECT_EQ(memory::live(), before) << "after allocation " << n << " had failed";
  }
}

// Calls `begin`, which begins a run with the mesh and does not wait for other ranks, until none of
// its allocations fails. A mesh whose call has failed can be used again.
template <typename F>
void begin_without_memory(weft_mesh* mesh, F&& begin) {
  weft_status status = WEFT_ENOMEM;
  int64_t n = 0;
  for (; status == WEFT_ENOMEM; ++n) {
    Error err;
    weft_run* run = nullptr;
    memory::fail(n, 1);
    status = begin(mesh, &run, &err);
    memory::stop_failing();
    EXPECT_EQ(status, run ? WEFT_OK : WEFT_ENOMEM) << "allocation " << n << ": " << err.text;
    weft_run_free(run);
  }
  EXPECT_GT(n, 5);
}

TEST(Beginning, AMeshIsFreeAfterAnAllocationHasFailed) {
  const PlanPtr plan = new_plan(tiny_model(), plan_config(2));
  weft_mesh *zero = nullptr, *one = nullptr;
  ASSERT_EQ(weft_mesh_listen(nullptr, &zero, nullptr), WEFT_OK);
  weft_mesh_config config = defaults(weft_mesh_config_init);
  config.endpoint = weft_mesh_endpoint(zero);
  ASSERT_EQ(weft_mesh_join(&config, &one, nullptr), WEFT_OK);
  begin_without_memory(one, [](weft_mesh* mesh, weft_run** run, weft_error* err) {
    return weft_run_join(mesh, nullptr, nullptr, nullptr, run, err);
  });
  begin_without_memory(zero, [&plan](weft_mesh* mesh, weft_run** run, weft_error* err) {
    weft_run_config with = defaults(weft_run_config_init);
    with.flags = WEFT_RUN_NOWAIT;
    return weft_run_start(plan.get(), mesh, &with, run, err);
  });
  weft_mesh_free(one);
  weft_mesh_free(zero);
}

// Whichever allocation of a generator fails, its sequences get the tokens that they get otherwise.
class Generating : public testing::Test {
 protected:
  using Tokens = std::map<uint64_t, std::vector<int32_t>>;

  // Allocation `n` fails, from the first sequence on. Sets whether there was one.
  Tokens generate(int64_t n, bool& failed) {
    Tokens out;
    Error err;
    weft_run* run = nullptr;
    weft_generator* generator = nullptr;
    EXPECT_EQ(weft_run_start(plan_.get(), nullptr, nullptr, &run, &err), WEFT_OK) << err.text;
    EXPECT_EQ(weft_generator_new(run, &generator, &err), WEFT_OK) << err.text;
    memory::fail(n, 1);
    const int32_t text[] = {1, 2, 3, 4, 5, 6, 7};
    for (uint64_t i = 0; i < kSequences; ++i) {
      weft_sequence_config config = defaults(weft_sequence_config_init);
      config.number = i;
      config.limit = 4 + i;
      uint64_t id = 0;
      // A long beginning is apart from other tokens. Another sequence copies it.
      const size_t length = i < 2 ? 7 : 1;
      weft_status added;
      do added = weft_generator_add(generator, text, length, &config, &id, nullptr);
      while (added == WEFT_ENOMEM);
      EXPECT_EQ(added, WEFT_OK) << "sequence " << i;
    }
    weft_token token = sized<weft_token>();
    for (int calls = 0; calls < 100; ++calls) {
      const weft_status polled = weft_generator_poll(generator, &token, 1000000000, nullptr);
      if (polled == 0) break;
      if (polled == 1) out[token.sequence].push_back(token.token);
      EXPECT_TRUE(polled == 1 || polled == WEFT_ENOMEM) << polled;
    }
    failed = memory::stop_failing();
    weft_generator_free(generator);
    weft_run_free(run);
    return out;
  }

  static constexpr uint64_t kSequences = 3;
  PlanPtr plan_ = [] {
    weft_decoder_config config = defaults(weft_decoder_config_init);
    config.sequences = kSequences;  // a place that is lost is missed
    weft_model* model = nullptr;
    EXPECT_EQ(weft_model_decoder("gpt-nano:blocks=1,width=16,heads=1,vocabulary=32,context=16",
                                 &config, &model, nullptr, nullptr),
              WEFT_OK);
    weft_plan_config plan = plan_config(1, 4, 4);
    plan.short_size = 2;
    return new_plan(ModelPtr(model), plan);
  }();
};

TEST_F(Generating, AnyAllocationMayFail) {
  bool failed = false;
  const Tokens tokens = generate(INT64_MAX, failed);
  for (uint64_t i = 0; i < kSequences; ++i) EXPECT_EQ(tokens.at(i + 1).size(), 4 + i);
  int64_t n = 0;
  for (failed = true; failed && !HasFailure(); ++n)
    EXPECT_EQ(generate(n, failed), tokens) << "allocation " << n;
  EXPECT_GT(n, 20);
}

// Rank 0 of a mesh, and two ranks that serve.
class Trio {
 public:
  explicit Trio(const PlanPtr& plan) {
    weft_mesh* mesh = nullptr;
    EXPECT_EQ(weft_mesh_listen(nullptr, &mesh, nullptr), WEFT_OK);
    mesh_.reset(mesh);
    for (std::thread& other : others_) other = std::thread([this] { serve(); });
    weft_run* run = nullptr;
    EXPECT_EQ(weft_run_start(plan.get(), mesh, nullptr, &run, nullptr), WEFT_OK);
    run_.reset(run);
  }
  ~Trio() {
    run_.reset();
    for (std::thread& other : others_) other.join();
  }
  weft_run* run() const { return run_.get(); }

 private:
  void serve() {
    weft_mesh_config config = defaults(weft_mesh_config_init);
    config.endpoint = weft_mesh_endpoint(mesh_.get());
    weft_mesh* mesh = nullptr;
    EXPECT_EQ(weft_mesh_join(&config, &mesh, nullptr), WEFT_OK);
    (void)weft_run_serve(mesh, nullptr, nullptr, nullptr, nullptr);
    weft_mesh_free(mesh);
  }

  MeshPtr mesh_;
  RunPtr run_;
  std::array<std::thread, 2> others_;
};

// Requests that ranks have not answered when an allocation fails are not mistaken for later ones.
TEST(Loading, AnyAllocationMayFail) {
  const PlanPtr plan = new_plan(small_model(), plan_config(3));
  const Directory directory;
  auto trio = std::make_unique<Trio>(plan);
  weft_save_config save = defaults(weft_save_config_init);
  save.directory = directory.path().c_str();
  Error err;
  ASSERT_EQ(weft_run_save(trio->run(), &save, &err), WEFT_OK) << err.text;
  int64_t n = 0;
  for (bool failed = true; failed && !HasFailure(); n += 2) {
    const CheckpointPtr checkpoint = open_checkpoint(directory.path());
    memory::fail(n, 1);
    const weft_status loaded = weft_run_load(trio->run(), checkpoint.get(), WEFT_LOAD_ALL, &err);
    failed = memory::stop_failing();
    EXPECT_TRUE(loaded == WEFT_OK || loaded == WEFT_ENOMEM)
        << "allocation " << n << ": " << err.text;
    weft_failure failure = sized<weft_failure>();
    if (weft_run_failure(trio->run(), &failure) == 1) trio = std::make_unique<Trio>(plan);
  }
  EXPECT_GT(n, 100);
  trio.reset();
}

TEST_P(AnyDriver, StepsLeaveNoMemoryBehind) {
  Pair pair;
  ASSERT_EQ(GetParam().mesh ? pair.listen() : WEFT_OK, WEFT_OK);
  weft_run_config config = defaults(weft_run_config_init);
  config.threads = GetParam().threads;
  weft_run* started = nullptr;
  ASSERT_EQ(weft_run_start(plan_.get(), pair.zero(), &config, &started, nullptr), WEFT_OK);
  pair.started = true;
  RunPtr run(started);
  int64_t before = 0;
  for (int n = 0; n < 40; ++n) {
    if (n == 5) before = memory::live();
    for (const weft_step_mode mode : {WEFT_TRAIN, WEFT_NO_UPDATE, WEFT_EVAL, WEFT_FORWARD})
      ASSERT_EQ(step(run, {x_.get(), y_.get()}, mode).kind, static_cast<uint32_t>(WEFT_EVENT_DONE));
  }
  EXPECT_EQ(memory::live(), before);
  run.reset();
  EXPECT_EQ(pair.end(), WEFT_OK);
}

INSTANTIATE_TEST_SUITE_P(Memory, AnyDriver, testing::ValuesIn(kDrivers),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
