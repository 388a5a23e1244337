// Whatever happens to a run of several ranks, it either makes the same kernel calls on the same
// values as the sequential step, or every surviving rank has an error that names its origin within
// the promised time. Engines, controller and links are those that users run; network and clock are
// made up. A failure is reproduced by its seed.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/presets.h"
#include "support/cases.h"
#include "support/random_plan.h"
#include "support/sequential_reference.h"
#include "support/sim_mesh.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

// The peer timeout and the time that rank 0 takes for its verdict.
constexpr LinkTime kVerdict = 1500, kPromise = LinkTimes().silence + kVerdict;
// The same if a data frame may have been lost while other frames of the peer arrive.
constexpr LinkTime kDataPromise = kDataSilence * LinkTimes().silence + kVerdict;

test::SimMeshSettings settings_of(uint64_t seed) {
  std::mt19937_64 rng(seed);
  test::SimMeshSettings settings;
  settings.seed = seed;
  settings.faults.latency = static_cast<LinkTime>(rng() % 8);
  settings.faults.jitter = static_cast<LinkTime>(rng() % 30);
  settings.longest_job = static_cast<LinkTime>(rng() % 12);
  return settings;
}

// A run of some steps, compared with the reference after each.
class Scene {
 public:
  explicit Scene(uint32_t seed, uint32_t least_ranks = 1, LinkTimes times = {})
      : seed_(seed), rng_(seed) {
    // The generator's own seeds, until there are enough ranks.
    for (uint32_t i = 0;
         !case_.plan || case_.plan->config.ranks < static_cast<int32_t>(least_ranks); ++i)
      case_ = seed % 4 ? test::random_plan(seed + i * 1000003)
                       : test::random_sharded_plan(seed + i * 1000003);
    test::SimMeshSettings settings = settings_of(seed);
    settings.times = times;
    mesh = std::make_unique<test::SimMesh>(case_.plan, settings);
    reference_ = std::make_unique<test::SequentialReference>(*case_.model, case_.plan->config);
  }

  void join() {
    mesh->start();
    mesh->run(mesh->now() + 2000, [&] { return mesh->joined() || mesh->node(0).has_failed(); });
  }

  // `between`: asked after each event. False: the step did not end.
  bool step(const std::function<bool()>& between = {}) {
    const StepDescriptor step = test::random_step(*case_.plan, n_++, trained_, rng_);
    if (!mesh->begin(step).ok()) return false;
    mesh->run(mesh->now() + 600000, [&] {
      return mesh->step_is_over() || mesh->node(0).has_failed() || (between && between());
    });
    if (!mesh->step_is_over()) return false;
    trained_ += step.mode == Mode::train && step.update;
    compare(step);
    return true;
  }

  // Every survivor has an error by then, which names `rank` if it is set.
  void expect_failed(LinkTime by, int32_t rank) {
    mesh->run(by);
    for (int32_t r = 0; r < mesh->ranks(); ++r) {
      if (!mesh->alive(r)) continue;
      ASSERT_TRUE(mesh->node(r).has_failed())
          << text() << ": rank " << r << " hangs: " << mesh->node(r).describe(mesh->now());
      ASSERT_LE(mesh->failed_at(r), by);
      ASSERT_FALSE(origin_text(mesh->node(r).origin()).empty());
      if (rank >= 0) {
        ASSERT_EQ(mesh->node(r).origin().rank, rank)
            << text() << ": rank " << r << " says: " << origin_text(mesh->node(r).origin());
      }
    }
  }

  bool shares_stages() const { return case_.plan->config.shard_ranks > 1; }
  std::string text() const { return "seed " + std::to_string(seed_) + ", " + case_.text; }
  int32_t any_rank() { return static_cast<int32_t>(rng_() % static_cast<uint32_t>(mesh->ranks())); }
  std::mt19937& rng() { return rng_; }

  std::unique_ptr<test::SimMesh> mesh;

 private:
  void compare(const StepDescriptor& step) {
    const auto expected = reference_->step(step);
    const test::DigestStep& run = mesh->outcome();
    ASSERT_EQ(run.result.loss, expected.loss) << text();
    ASSERT_EQ(run.deliveries, expected.deliveries) << text();
    if (step.mode != Mode::train) return;
    ASSERT_EQ(run.result.grad_norm, expected.grad_norm) << text();
    for (ParamId p = 0; p < static_cast<ParamId>(case_.model->params().size()); ++p)
      for (int32_t r = 0; r < mesh->ranks(); ++r)
        if (auto weight = mesh->worker(r).weight(p); weight.status().code() != Code::not_found) {
          ASSERT_TRUE(weight.ok()) << text() << ": " << weight.status().text();
          ASSERT_EQ(weight.value(), reference_->weight(p)) << text() << ", copy of rank " << r;
        }
  }

  const uint32_t seed_;
  std::mt19937 rng_;
  test::PlanCase case_;
  std::unique_ptr<test::SequentialReference> reference_;
  uint64_t n_ = 0, trained_ = 0;
};

TEST(Faults, WithoutAnyAMeshEqualsTheSequentialStepAndEndsOrderly) {
  int shared = 0;
  for (uint32_t seed = 0; seed < 500 && !HasFailure(); seed += test::kEvery) {
    Scene run(seed);
    shared += run.shares_stages();
    run.join();
    ASSERT_TRUE(run.mesh->joined()) << run.text() << ": " << run.mesh->node(0).describe(0);
    for (int n = 0; n < 4; ++n)
      ASSERT_TRUE(run.step()) << run.text() << ": " << run.mesh->node(0).describe(run.mesh->now());
    run.mesh->bye();
    run.mesh->run(run.mesh->now() + 1000);
    for (int32_t r = 0; r < run.mesh->ranks(); ++r) {
      EXPECT_TRUE(run.mesh->closed(r)) << run.text() << ", rank " << r;
      EXPECT_FALSE(run.mesh->node(r).has_failed())
          << run.text() << ": " << origin_text(run.mesh->node(r).origin());
    }
  }
  EXPECT_GT(shared, 50 / test::kEvery);
}

// Kills or stops a rank at any event of the run; every survivor names that rank.
void lose_a_rank(uint32_t seed, bool killed, int* in_a_step) {
  Scene run(seed, 2);
  const int32_t victim = run.any_rank();
  int64_t events = static_cast<int64_t>(run.rng()() % 400);
  auto gone = [&] {
    if (events-- > 0) return false;
    if (run.mesh->alive(victim)) killed ? run.mesh->kill(victim) : run.mesh->stall(victim);
    return true;
  };
  run.join();
  ASSERT_TRUE(run.mesh->joined()) << run.text();
  for (int n = 0; n < 50 && run.mesh->alive(victim); ++n) {
    const bool over = run.step(gone);
    if (!over) {
      ASSERT_FALSE(run.mesh->alive(victim))
          << run.text() << ": " << run.mesh->node(0).describe(run.mesh->now());
      ++*in_a_step;
    }
    if (over && run.rng()() % 8 == 0) run.mesh->run(run.mesh->now() + 1000);
  }
  if (run.mesh->alive(victim)) killed ? run.mesh->kill(victim) : run.mesh->stall(victim);
  run.expect_failed(run.mesh->now() + kPromise, victim);
}

TEST(Faults, EverySurvivorNamesTheRankThatWasKilled) {
  int in_a_step = 0;
  for (uint32_t seed = 0; seed < 1000 && !HasFailure(); seed += test::kEvery)
    lose_a_rank(seed, true, &in_a_step);
  EXPECT_GT(in_a_step, 500 / test::kEvery);
}

TEST(Faults, EverySurvivorNamesTheRankThatHangs) {
  int in_a_step = 0;
  for (uint32_t seed = 0; seed < 500 && !HasFailure(); seed += test::kEvery)
    lose_a_rank(seed, false, &in_a_step);
  EXPECT_GT(in_a_step, 250 / test::kEvery);
}

// Any two neighbours without rank 0; or none.
bool pick_neighbours(Scene& run, int32_t* low, int32_t* high) {
  for (int32_t r = 1; r < run.mesh->ranks(); ++r)
    for (const int32_t peer : run.mesh->node(r).peers())
      if (peer > r && (*high == 0 || run.rng()() % 2)) *low = r, *high = peer;
  return *high > 0;
}

// Neither is blamed, and every rank reports the same failure.
void expect_the_connection_blamed(Scene& run, int32_t low, int32_t high) {
  run.expect_failed(run.mesh->now() + kPromise, high);
  const std::string story = origin_text(run.mesh->node(0).origin());
  EXPECT_EQ(story.rfind("the connection between rank " + std::to_string(low) + " and rank " +
                            std::to_string(high) + " was lost: ",
                        0),
            0u)
      << run.text() << ": " << story;
  for (int32_t r = 1; r < run.mesh->ranks(); ++r)
    EXPECT_EQ(origin_text(run.mesh->node(r).origin()), story) << run.text() << ", rank " << r;
}

// The connection of two ranks breaks while rank 0 receives frames from both.
TEST(Faults, TwoRanksThatLoseEachOtherAloneBlameTheConnection) {
  int cuts = 0;
  for (uint32_t seed = 0; seed < 300 && !HasFailure(); seed += test::kEvery) {
    Scene run(seed, 3);
    int32_t low = 0, high = 0;
    if (!pick_neighbours(run, &low, &high)) continue;
    ++cuts;
    int64_t events = static_cast<int64_t>(run.rng()() % 400);
    bool cut = false;
    auto break_it = [&] {
      if (events-- > 0 || cut) return false;
      run.mesh->cut(low, high);
      return cut = true;
    };
    run.join();
    ASSERT_TRUE(run.mesh->joined()) << run.text();
    while (!cut && !HasFailure()) run.step(break_it);
    expect_the_connection_blamed(run, low, high);
  }
  EXPECT_GT(cuts, 100 / test::kEvery);
}

// Rank 0 learns of it long after the last event, and gives the suspect the usual time.
TEST(Faults, AConnectionLostInAnIdleMeshIsBlamedAsWell) {
  int cuts = 0;
  for (uint32_t seed = 0; seed < 100 && !HasFailure(); seed += test::kEvery) {
    Scene run(seed, 3, {.heartbeat = 2000, .silence = 10000});
    int32_t low = 0, high = 0;
    if (!pick_neighbours(run, &low, &high)) continue;
    ++cuts;
    run.join();
    ASSERT_TRUE(run.mesh->joined()) << run.text();
    run.mesh->run(run.mesh->now() + 3500);  // the loss is reported after a delay,
                                            // and heartbeats are sent every 2 s
    run.mesh->cut(low, high);
    expect_the_connection_blamed(run, low, high);
  }
  EXPECT_GT(cuts, 30 / test::kEvery);
}

TEST(Faults, EveryRankNamesTheOneWhoseJobFailed) {
  for (uint32_t seed = 0; seed < 300 && !HasFailure(); seed += test::kEvery) {
    Scene run(seed, 2);
    run.join();
    ASSERT_TRUE(run.mesh->joined());
    const int32_t victim = run.any_rank();
    run.mesh->break_worker(victim);
    while (run.step()) {  // a mode may have no job on that rank
    }
    run.expect_failed(run.mesh->now() + 1000, victim);
    // The data is that of the victim, and every rank has all of it.
    const Origin& origin = run.mesh->node(victim).origin();
    EXPECT_EQ(origin.cause, Cause::failed) << run.text();
    EXPECT_EQ(origin.code, Code::user);
    EXPECT_EQ(origin.detail, "a job returned an error");
    EXPECT_EQ(origin.activity.state, Activity::State::runs);
    const auto& stages = origin.stages;
    EXPECT_FALSE(stages.empty());
    if (is_action(origin.activity.job)) {
      EXPECT_EQ(
          std::count(stages.begin(), stages.end(), static_cast<uint32_t>(origin.activity.stage)), 1)
          << run.text();
    }
    for (int32_t r = 0; r < run.mesh->ranks(); ++r)
      EXPECT_EQ(run.mesh->node(r).origin(), origin) << run.text() << ", rank " << r;
  }
}

TEST(Faults, ARankThatWaitsForOneThatComputesHasNotStalled) {
  PlanConfig config;
  config.ranks = 2;
  config.micro_batches = 1;
  const auto plan = make_plan(make_preset("mlp:layers=4,width=8", {}).take().model, config).take();
  test::SimMeshSettings settings;
  settings.longest_job = 1'000'000;
  test::SimMesh mesh(plan, settings);
  mesh.start();
  mesh.run(2000, [&] { return mesh.joined(); });
  StepDescriptor step;
  step.micro_batches = 1;
  ASSERT_TRUE(mesh.begin(step).ok());
  const auto state = [&](int32_t rank) { return mesh.node(rank).engine().activity().state; };
  mesh.run(kNever,
           [&] { return state(0) == Activity::State::waits && state(1) == Activity::State::runs; });
  mesh.run(mesh.now() + 1000);  // until a heartbeat says so
  ASSERT_EQ(state(1), Activity::State::runs);
  EXPECT_FALSE(mesh.node(0).must_progress());
  EXPECT_TRUE(mesh.node(1).must_progress());
  EXPECT_TRUE(mesh.node(0).describe(mesh.now()).starts_with("step 1 waits for rank 0, 1; rank 0: "))
      << mesh.node(0).describe(mesh.now());
}

// Frames that are lost, repeated, reordered or flipped, connections that break: the same values, or
// an error everywhere in time.
TEST(Faults, AFaultyNetworkNeverChangesAValueNorHangsARank) {
  int complete = 0, failed = 0;
  for (uint32_t seed = 0; seed < 1500 && !HasFailure(); seed += test::kEvery) {
    Scene run(seed, 2);
    run.join();
    ASSERT_TRUE(run.mesh->joined());
    test::SimFaults faults = settings_of(seed).faults;
    for (uint32_t* chance :
         {&faults.lose, &faults.duplicate, &faults.reorder, &faults.corrupt, &faults.disconnect})
      if (run.rng()() % 3 == 0) *chance = static_cast<uint32_t>(run.rng()() % 4000);
    run.mesh->network().set_faults(faults);
    int64_t made = 0;
    LinkTime first_fault = kNever;
    auto watch = [&] {
      if (const int64_t now_made = run.mesh->network().faults_made();
          first_fault == kNever && now_made != made)
        first_fault = run.mesh->now();
      for (int32_t r = 0; r < run.mesh->ranks(); ++r)
        if (run.mesh->node(r).has_failed()) return true;
      return false;
    };
    bool whole = true;
    for (int n = 0; n < 4 && whole; ++n) whole = run.step(watch) && !HasFailure();
    if (whole) {
      ++complete;
      continue;
    }
    ++failed;
    ASSERT_NE(first_fault, kNever)
        << run.text()
        << ": failed without a fault: " << run.mesh->node(0).describe(run.mesh->now());
    run.expect_failed(run.mesh->now() + kDataPromise, -1);
  }
  EXPECT_GT(complete, 300 / test::kEvery);
  EXPECT_GT(failed, 300 / test::kEvery);
}

TEST(Faults, ARankThatDiffersIsRefusedByNameOnEveryRank) {
  for (uint32_t seed = 0; seed < 100 && !HasFailure(); seed += test::kEvery) {
    auto c = test::random_plan(seed);
    if (!c.plan || c.plan->config.ranks < 2) continue;
    const int32_t odd = 1 + static_cast<int32_t>(seed) % (c.plan->config.ranks - 1);
    test::SimMeshSettings settings = settings_of(seed);
    settings.identity = [&](int32_t rank) {
      Identity identity;
      identity.version = "0.1.0";
      identity.partition.low = rank == odd ? 2 : 1;
      return identity;
    };
    test::SimMesh mesh(c.plan, settings);
    mesh.start();
    mesh.run(kPromise);
    for (int32_t r = 0; r < mesh.ranks(); ++r) {
      ASSERT_TRUE(mesh.node(r).has_failed()) << "seed " << seed << ", rank " << r;
      EXPECT_NE(origin_text(mesh.node(r).origin()).find(") refused: its partition differs"),
                std::string::npos)
          << origin_text(mesh.node(r).origin());
    }
  }
}

}  // namespace
}  // namespace weft
