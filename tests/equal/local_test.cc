// The ranks of one process with their tasks run by hand: in any order that keeps that of each rank,
// the same bits; and who copies a tensor, and when.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>

#include "base/hash.h"
#include "graph/presets.h"
#include "runtime/local.h"
#include "tune/make_plan.h"

namespace weft {
namespace {

constexpr int32_t kRanks = 4, kMicroBatches = 8, kWidth = 8;

std::shared_ptr<const Plan> plan_of(const char* schedule) {
  PlanConfig config;
  config.ranks = kRanks;
  config.micro_batches = kMicroBatches;
  config.schedule = schedule;
  auto plan = make_plan(make_preset("mlp:layers=4,width=8", {}).take().model, config);
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  return plan.take();
}

class Hand final : public LocalRanks::Driver {
 public:
  explicit Hand(const std::shared_ptr<const Plan>& of) : plan(of), tasks(kRanks) {
    const std::vector<Tiles*> tiles(kRanks, &serial_);
    ranks = LocalRanks::make(plan, tiles, *this).take();
    std::vector<float>& inputs = samples_;
    for (int i = 0; i < kMicroBatches * kWidth; ++i)
      inputs.push_back(static_cast<float>(i % 7 + 1));
    batch = {.samples = kMicroBatches, .inputs = {inputs.data(), inputs.data()}};
    ranks->begin(describe_step(*plan, Mode::train, true, batch).take(), batch);
  }
  // The oldest task of that rank.
  void do_next(int32_t rank) {
    auto& queue = tasks[static_cast<size_t>(rank)];
    const WorkerTask task = queue.front();
    queue.pop_front();
    Worker& worker = ranks->worker(rank);
    const Status status = worker.run(task);
    ASSERT_TRUE(status.ok()) << status.text();
    if (task.deliver) expect_delivered(rank, task);
    ranks->ran(rank, task, status, worker.last_time());
  }

  const std::shared_ptr<const Plan> plan;
  std::unique_ptr<LocalRanks> ranks;
  std::vector<std::deque<WorkerTask>> tasks;
  Batch batch;
  StepResult result;
  Status failure;
  bool ended = false;
  int by_senders = 0, by_receivers = 0, delivered = 0;

 private:
  void run(int32_t rank, const WorkerTask& task) override {
    if (task.job < 0) expect_soon(rank, task);
    tasks[static_cast<size_t>(rank)].push_back(task);
  }
  // No copy waits while one of the two ranks has nothing to do, nor for a job of the sender.
  void expect_soon(int32_t rank, const WorkerTask& task) {
    const Edge& edge = plan->mode(Mode::train).edges[static_cast<size_t>(task.edge)];
    const auto is_idle = [this](int32_t r) { return tasks[static_cast<size_t>(r)].empty(); };
    const bool by_sender = !is_idle(edge.to_rank) && is_idle(edge.from_rank);
    EXPECT_EQ(rank, by_sender ? edge.from_rank : edge.to_rank);
    (by_sender ? by_senders : by_receivers)++;
  }
  void micro_batch(int32_t) override {}
  void over(const StepResult& of) override {
    ended = true;
    result = of;
  }
  void failed(const Status& status) override { failure = status; }

  // Before anybody hears that the task ran, what it posts has landed.
  void expect_delivered(int32_t rank, const WorkerTask& task) {
    const ModePlan& mode = plan->mode(Mode::train);
    const RankProgram& program = mode.ranks[static_cast<size_t>(rank)];
    const Job& job = program.jobs[static_cast<size_t>(task.job)];
    if (job.kind != JobKind::action) return;
    for (int32_t e : program.programs[static_cast<size_t>(job.program)].posts) {
      const auto from = ranks->worker(rank).outgoing(Mode::train, e, job.micro_batch, 0);
      const int32_t to = mode.edges[static_cast<size_t>(e)].to_rank;
      const auto at = ranks->worker(to).landing(Mode::train, e, job.micro_batch, 0, 0);
      EXPECT_TRUE(std::equal(from.begin(), from.end(), at.begin(), at.end()));
      ++delivered;
    }
  }

  SerialTiles serial_;
  std::vector<float> samples_;
};

Digest weights_of(Hand& hand) {
  Hasher all;
  for (const Param& param : hand.plan->model->params()) {
    const ParamId id = hand.plan->model->find_param(param.name);
    const int32_t owner = hand.plan->owner_of_param[static_cast<size_t>(id)];
    const float* weight = hand.ranks->worker(owner).param(id).value.floats();
    all.bytes(weight, static_cast<size_t>(param.shape.elements()) * sizeof(float));
  }
  return all.finish();
}

TEST(RanksOfAProcess, HaveTheSameBitsInWhateverOrderTheirTasksRun) {
  int by_senders = 0, by_receivers = 0, delivered = 0;
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    const auto plan = plan_of(schedule);
    Digest expected;
    for (uint32_t seed = 0; seed < 30; ++seed) {
      Hand hand(plan);
      std::mt19937 random(seed);
      while (!hand.ended) {
        std::vector<int32_t> busy;
        for (int32_t r = 0; r < kRanks; ++r)
          if (!hand.tasks[static_cast<size_t>(r)].empty()) busy.push_back(r);
        ASSERT_FALSE(busy.empty()) << hand.failure.text();
        // Half of the runs prefer one end of the pipeline.
        const size_t any = random() % busy.size();
        hand.do_next(busy[seed % 4 == 0 ? 0 : seed % 4 == 1 ? busy.size() - 1 : any]);
      }
      const Digest found = weights_of(hand);
      if (seed == 0) expected = found;
      EXPECT_EQ(found, expected) << schedule << ", seed " << seed;
      by_senders += hand.by_senders;
      by_receivers += hand.by_receivers;
      delivered += hand.delivered;
    }
  }
  // All ways of copying must have been taken.
  EXPECT_GT(by_senders, 20);
  EXPECT_GT(by_receivers, 20);
  EXPECT_GT(delivered, 1000);
}

TEST(RanksOfAProcess, DoNotReadTheBatchOfAStepThatHasFailed) {
  Hand hand(plan_of("1f1b"));
  const auto& mode = hand.plan->mode(Mode::train);
  const auto feed = std::find_if(mode.edges.begin(), mode.edges.end(), [](const Edge& e) {
    return e.kind == EdgeKind::feed && e.to_rank == 0;
  });
  ASSERT_NE(feed, mode.edges.end());
  const auto place = hand.ranks->worker(0).landing(
      Mode::train, static_cast<int32_t>(feed - mode.edges.begin()), 0, 0, 0);
  const auto is_untouched = [&] {
    return std::all_of(place.begin(), place.end(), [](std::byte b) { return b == std::byte{0}; });
  };
  auto tasks = hand.tasks[0];
  hand.ranks->fail(Status(Code::user, "an op returned an error"));
  EXPECT_EQ(hand.failure.code(), Code::user);
  for (const WorkerTask& task : tasks) (void)hand.ranks->worker(0).run(task);
  EXPECT_TRUE(is_untouched());

  Hand sound(hand.plan);
  const auto found = sound.ranks->worker(0).landing(
      Mode::train, static_cast<int32_t>(feed - mode.edges.begin()), 0, 0, 0);
  for (const WorkerTask& task : tasks) (void)sound.ranks->worker(0).run(task);
  EXPECT_FALSE(std::all_of(found.begin(), found.end(), [](std::byte b) {
    return b == std::byte{0};
  })) << "the tasks were to copy it";
}

}  // namespace
}  // namespace weft
