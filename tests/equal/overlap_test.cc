// Forward steps that overlap: on random plans, with random delays, and whenever the program reads
// their deliveries, each has the values of the sequential step; and a rank that is lost is named.
#include <gtest/gtest.h>

#include "graph/presets.h"
#include "support/cases.h"
#include "support/random_plan.h"
#include "support/sequential_reference.h"
#include "support/sim_mesh.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

// The time within which each rank has an error after another one was lost.
constexpr LinkTime kPromise = LinkTimes().silence + 1500;

// Stages have replicas, so that a rank has the messages of several ranks in the same slots.
test::PlanCase plan_with_stage_replicas(uint32_t seed) {
  std::mt19937 rng(seed);
  PlanConfig config;
  config.schedule = "pipedream";
  config.micro_batches = 1;
  const int32_t first = 1 + static_cast<int32_t>(rng() % 3),
                second = 1 + static_cast<int32_t>(rng() % 3);
  config.ranks = first + second;
  config.stage_replicas = cat(first, ",", second);
  config.segment = 12;
  test::PlanCase c{.model = test::random_model(rng, 6), .plan = nullptr, .text = {}};
  c.text = cat("seed ", seed, ", replicas ", config.stage_replicas);
  auto plan = make_plan(c.model, config);
  if (!plan.ok()) return c;  // a parameter is tied across stages
  c.plan = plan.take();
  c.model = c.plan->model;
  return c;
}

class Scene {
 public:
  explicit Scene(uint32_t seed) : rng_(seed) {
    const auto draw = seed % 4 == 1   ? plan_with_stage_replicas
                      : seed % 4 == 0 ? test::random_sharded_plan
                                      : test::random_plan;
    for (uint32_t i = 0; !case_.plan || case_.plan->config.ranks < 2; ++i)
      case_ = draw(seed + i * 1000003);
    test::SimMeshSettings settings;
    settings.seed = seed;
    settings.faults.latency = static_cast<LinkTime>(rng_() % 8);
    settings.faults.jitter = static_cast<LinkTime>(rng_() % 30);
    settings.longest_job = static_cast<LinkTime>(rng_() % 12);
    mesh = std::make_unique<test::SimMesh>(case_.plan, settings);
    reference_ = std::make_unique<test::SequentialReference>(*case_.model, case_.plan->config);
    mesh->start();
    mesh->run(2000, [&] { return mesh->joined(); });
  }

  // So many steps of one mode, which begin while others run; `between` is asked after each event,
  // and true stops them. False: stopped, or they did not end.
  bool steps(size_t count, const std::function<bool()>& between = {}) {
    Mode mode = rng_() % 2 ? Mode::eval : Mode::infer;
    if (!case_.plan->mode(mode).present || !case_.plan->config.can_overlap(mode))
      mode = case_.plan->stage_replicas.empty() ? Mode::train : Mode::eval;
    const size_t before = made_.size(), end = before + count;
    size_t compared = before;
    bool read = true;
    bool good = true;
    const auto act = [&] {
      // The program has polled the last event of a step.
      if (!read && rng_() % 4 == 0) read = true;
      if (read && mesh->steps_over() < made_.size()) mesh->open_sinks();
      const size_t running = made_.size() - mesh->steps_over();
      if (made_.size() < end && (running == 0 || (mode != Mode::train && running < kStepsAtOnce)) &&
          (running == 0 || rng_() % 3 == 0))
        good = begin(mode, running > 0 || !read) && good;
    };
    const auto compare = [&] {
      for (; compared < mesh->steps_over(); ++compared) {
        read = rng_() % 2 == 0;
        check(made_[compared], mesh->outcome(compared));
      }
      return compared == end;
    };
    const auto stops = [&] {
      if (compare() || !good || testing::Test::HasFailure()) return true;
      act();
      return mesh->node(0).has_failed() || (between && between());
    };
    mesh->run(mesh->now() + 600000, stops);
    return compared == end && good;
  }

  std::string text() const { return case_.text; }
  int most_at_once() const { return most_at_once_; }
  std::mt19937& rng() { return rng_; }

  std::unique_ptr<test::SimMesh> mesh;

 private:
  bool begin(Mode mode, bool overlaps) {
    StepDescriptor step;
    do step = test::random_step(*case_.plan, made_.size(), trained_, rng_);
    while (step.mode != mode && made_.size() > 0);
    step.mode = mode;
    if (!case_.plan->stage_replicas.empty())
      step.micro_batches =
          1 + static_cast<int32_t>(rng_() % static_cast<uint32_t>(case_.plan->micro_batches(mode)));
    step.overlaps = overlaps && mode != Mode::train;
    trained_ += mode == Mode::train && step.update;
    made_.push_back(step);
    most_at_once_ = std::max(most_at_once_, static_cast<int>(made_.size() - mesh->steps_over()));
    const Status status = mesh->begin(step);
    EXPECT_TRUE(status.ok() || mesh->node(0).has_failed()) << status.text();
    return status.ok();
  }

  void check(const StepDescriptor& step, const test::DigestStep& found) {
    const auto expected = reference_->step(step);
    ASSERT_EQ(found.result.step.sequence, step.sequence);
    ASSERT_EQ(found.result.loss, expected.loss) << text();
    ASSERT_EQ(found.deliveries, expected.deliveries) << text();
  }

  std::mt19937 rng_;
  test::PlanCase case_;
  std::unique_ptr<test::SequentialReference> reference_;
  std::vector<StepDescriptor> made_;
  uint64_t trained_ = 0;
  int most_at_once_ = 0;
};

TEST(Overlap, StepsEqualTheSequentialSteps) {
  int most = 0;
  for (uint32_t seed = 0; seed < 400 && !HasFailure(); seed += test::kEvery) {
    Scene run(seed);
    ASSERT_TRUE(run.mesh->joined()) << run.text();
    for (int n = 0; n < 4; ++n)
      ASSERT_TRUE(run.steps(1 + run.rng()() % 20)) << "seed " << seed << ", " << run.text() << ": "
                                                   << run.mesh->node(0).describe(run.mesh->now());
    run.mesh->bye();
    run.mesh->run(run.mesh->now() + 1000);
    for (int32_t r = 0; r < run.mesh->ranks(); ++r) {
      EXPECT_TRUE(run.mesh->closed(r)) << "seed " << seed << ", rank " << r;
      EXPECT_FALSE(run.mesh->node(r).has_failed())
          << "seed " << seed << ": " << origin_text(run.mesh->node(r).origin());
    }
    most = std::max(most, run.most_at_once());
  }
  EXPECT_EQ(most, static_cast<int>(kStepsAtOnce));
}

// The program has not read the deliveries of the first step, so those of the second one wait.
TEST(Overlap, ARankSaysThatItsDeliveryWaitsForRank0) {
  PlanConfig config;
  config.ranks = 2;
  config.micro_batches = 1;
  const auto plan = make_plan(make_preset("mlp:layers=4,width=8", {}).take().model, config).take();
  test::SimMesh mesh(plan, {});
  mesh.start();
  mesh.run(2000, [&] { return mesh.joined(); });
  StepDescriptor step;
  step.mode = Mode::eval;
  step.micro_batches = 1;
  ASSERT_TRUE(mesh.begin(step).ok());
  step.overlaps = true;
  ASSERT_TRUE(mesh.begin(step).ok());
  mesh.run(mesh.now() + 1000);
  ASSERT_EQ(mesh.steps_over(), 1u);
  const Activity activity = mesh.node(1).engine().activity();
  EXPECT_EQ(activity.state, Activity::State::waits);
  EXPECT_EQ(activity.awaited, Activity::Awaited::message);
  EXPECT_EQ(activity.from, 0);
  EXPECT_TRUE(mesh.node(0).awaits_owner());
  EXPECT_FALSE(mesh.node(0).must_progress());
  mesh.open_sinks();
  mesh.run(mesh.now() + 1000);
  EXPECT_EQ(mesh.steps_over(), 2u);
  EXPECT_TRUE(mesh.node(0).idle());
}

TEST(Overlap, EverySurvivorNamesARankThatIsLost) {
  int lost = 0;
  for (uint32_t seed = 0; seed < 200 && !HasFailure(); seed += test::kEvery) {
    Scene run(seed);
    const int32_t victim =
        static_cast<int32_t>(run.rng()() % static_cast<uint32_t>(run.mesh->ranks()));
    int64_t events = static_cast<int64_t>(run.rng()() % 300);
    const auto gone = [&] {
      if (events-- > 0) return false;
      if (run.mesh->alive(victim)) run.mesh->kill(victim);
      return true;
    };
    if (run.steps(40, gone)) continue;
    ++lost;
    ASSERT_FALSE(run.mesh->alive(victim)) << "seed " << seed << ", " << run.text();
    run.mesh->run(run.mesh->now() + kPromise);
    for (int32_t r = 0; r < run.mesh->ranks(); ++r) {
      if (r == victim) continue;
      ASSERT_TRUE(run.mesh->node(r).has_failed()) << "seed " << seed << ", rank " << r;
      ASSERT_EQ(run.mesh->node(r).origin().rank, victim) << "seed " << seed;
    }
  }
  EXPECT_GT(lost, 100 / test::kEvery);
}

}  // namespace
}  // namespace weft
