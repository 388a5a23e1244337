// A run may be freed at any moment, also while steps are in progress or wait in its queue.
#include <thread>

#include "api/api.h"
#include "support/cases.h"

namespace {

// How the ranks of a run are driven.
struct Driver {
  const char* name;
  uint32_t threads;
  bool mesh;
  int cycles;
};
constexpr Driver kDrivers[] = {{"inline", 0, false, 3000 / weft::test::kEvery},
                               {"threads", 1, false, 3000 / weft::test::kEvery},
                               {"helpers", 2, false, 3000 / weft::test::kEvery},
                               {"mesh", 1, true, 1000 / weft::test::kEvery}};

// The processes of a mesh, as threads of this one.
class Ranks {
 public:
  Ranks() {
    Error err;
    EXPECT_EQ(weft_mesh_listen(nullptr, &mesh_, &err), WEFT_OK) << err.text;
    other_ = std::thread([endpoint = std::string(weft_mesh_endpoint(mesh_))] { serve(endpoint); });
  }
  ~Ranks() {
    other_.join();
    weft_mesh_free(mesh_);
  }
  weft_mesh* mesh() const { return mesh_; }

 private:
  // The run ends in an orderly way, or in the middle of a step.
  static void serve(const std::string& endpoint) {
    Error err;
    weft_mesh_config config = defaults(weft_mesh_config_init);
    config.endpoint = endpoint.c_str();
    weft_mesh* mesh = nullptr;
    ASSERT_EQ(weft_mesh_join(&config, &mesh, &err), WEFT_OK) << err.text;
    const weft_status status = weft_run_serve(mesh, nullptr, nullptr, nullptr, &err);
    EXPECT_TRUE(status == WEFT_OK || status == WEFT_ECANCELED) << status << " " << err.text;
    weft_mesh_free(mesh);
  }

  weft_mesh* mesh_ = nullptr;
  std::thread other_;
};

// The mesh of a run may be freed first. Only weft_run_free then succeeds.
void expect_ended(weft_run* run) {
  Error err;
  const auto ended = [&](weft_status status) {
    expect_error(status, err, WEFT_ESTATE, {"the mesh of the run was freed"});
  };
  weft_event event = sized<weft_event>();
  ended(weft_run_poll(run, &event, -1, &err));
  ended(weft_run_submit(run, nullptr, 0, WEFT_TRAIN, 0, &err));
  ended(weft_run_step(run, nullptr, 0, WEFT_TRAIN, nullptr, 0, nullptr, &err));
  char digest[33];
  ended(weft_run_digest(run, digest, &err));
  weft_generator* generator = nullptr;
  ended(weft_generator_new(run, &generator, &err));
  EXPECT_EQ(weft_run_fd(run), -1);
  weft_failure failure = sized<weft_failure>();
  EXPECT_EQ(weft_run_failure(run, &failure), 0);
  weft_run_free(run);
}

weft_mesh* join(const char* endpoint) {
  weft_mesh_config config = defaults(weft_mesh_config_init);
  config.endpoint = endpoint;
  weft_mesh* out = nullptr;
  Error err;
  EXPECT_EQ(weft_mesh_join(&config, &out, &err), WEFT_OK) << err.text;
  return out;
}

// Of both ranks, in an idle run and in a step.
TEST(MeshFreedFirst, EndsItsRun) {
  const PlanPtr plan = new_plan(small_model(), plan_config(2));
  const TensorPtr x = noise({6, 6}), y = noise({6, 3}, 2);
  weft_tensor* const inputs[] = {x.get(), y.get()};
  for (const bool in_step : {false, true}) {
    Error err;
    weft_mesh* zero = nullptr;
    ASSERT_EQ(weft_mesh_listen(nullptr, &zero, &err), WEFT_OK) << err.text;
    weft_mesh* const one = join(weft_mesh_endpoint(zero));
    weft_run *run = nullptr, *joined = nullptr;
    ASSERT_EQ(weft_run_join(one, nullptr, nullptr, nullptr, &joined, &err), WEFT_OK) << err.text;
    ASSERT_EQ(weft_run_start(plan.get(), zero, nullptr, &run, &err), WEFT_OK) << err.text;
    if (in_step) {
      EXPECT_EQ(weft_run_submit(run, inputs, 2, WEFT_TRAIN, 0, &err), WEFT_OK) << err.text;
    }
    weft_mesh_free(zero);
    weft_event event = sized<weft_event>();
    do {
      ASSERT_EQ(weft_run_poll(joined, &event, -1, &err), 1) << err.text;
    } while (event.kind != WEFT_EVENT_ENDED && event.kind != WEFT_EVENT_FAILED);
    EXPECT_TRUE(in_step || event.kind == WEFT_EVENT_ENDED) << event.text;
    expect_ended(run);
    weft_mesh_free(one);
    Error unused;
    expect_error(weft_run_poll(joined, &event, -1, &unused), unused, WEFT_ESTATE, {"was freed"});
    weft_run_free(joined);
  }
}

TEST(MeshFreedFirst, EndsARunThatStarts) {
  const PlanPtr plan = new_plan(small_model(), plan_config(2));
  Error err;
  weft_mesh* zero = nullptr;
  ASSERT_EQ(weft_mesh_listen(nullptr, &zero, &err), WEFT_OK) << err.text;
  weft_run_config config = defaults(weft_run_config_init);
  config.flags = WEFT_RUN_NOWAIT;
  weft_run* run = nullptr;
  ASSERT_EQ(weft_run_start(plan.get(), zero, &config, &run, &err), WEFT_OK) << err.text;
  weft_mesh_free(zero);
  expect_ended(run);
}

// One of a rank that finds no rank 0.
TEST(MeshFreedFirst, EndsARunThatJoins) {
  Error err;
  weft_mesh* zero = nullptr;
  ASSERT_EQ(weft_mesh_listen(nullptr, &zero, &err), WEFT_OK) << err.text;
  weft_mesh* const one = join(weft_mesh_endpoint(zero));
  weft_mesh_free(zero);
  weft_run* joined = nullptr;
  ASSERT_EQ(weft_run_join(one, nullptr, nullptr, nullptr, &joined, &err), WEFT_OK) << err.text;
  weft_mesh_free(one);
  weft_event event = sized<weft_event>();
  expect_error(weft_run_poll(joined, &event, -1, &err), err, WEFT_ESTATE, {"was freed"});
  weft_run_free(joined);
}

class AnyDriver : public testing::TestWithParam<Driver> {};

TEST_P(AnyDriver, ARunIsFreedRightAfterSubmit) {
  const PlanPtr plan = new_plan(small_model(), plan_config(2));
  const TensorPtr x = noise({6, 6}), y = noise({6, 3}, 2);
  weft_tensor* const inputs[] = {x.get(), y.get()};
  for (int cycle = 0; cycle < GetParam().cycles && !HasFailure(); ++cycle) {
    Error err;
    std::unique_ptr<Ranks> ranks;
    if (GetParam().mesh) ranks = std::make_unique<Ranks>();
    weft_run_config config = defaults(weft_run_config_init);
    config.threads = GetParam().threads;
    weft_run* run = nullptr;
    ASSERT_EQ(weft_run_start(plan.get(), ranks ? ranks->mesh() : nullptr, &config, &run, &err),
              WEFT_OK)
        << err.text;
    const int steps = 1 + cycle % 3;
    for (int step = 0; step < steps; ++step)
      EXPECT_EQ(weft_run_submit(run, inputs, 2, cycle % 2 ? WEFT_TRAIN : WEFT_EVAL, 0, &err),
                WEFT_OK)
          << err.text;
    // Frees it at another moment of the step each time.
    weft_event event = sized<weft_event>();
    for (int polled = 0; polled < cycle % 5; ++polled) (void)weft_run_poll(run, &event, 0, nullptr);
    weft_run_free(run);
  }
}

INSTANTIATE_TEST_SUITE_P(Run, AnyDriver, testing::ValuesIn(kDrivers),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
