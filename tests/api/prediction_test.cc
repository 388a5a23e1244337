// Predictions and comparisons through the C API: an absent item and an impossible one have
// different errors.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "api/api.h"

namespace {

struct FreePrediction {
  void operator()(weft_prediction* prediction) const { weft_prediction_free(prediction); }
};
using PredictionPtr = std::unique_ptr<weft_prediction, FreePrediction>;

TEST(Prediction, NullIsAnErrorAndNoRowThatIsNot) {
  weft_prediction_info info = sized<weft_prediction_info>();
  weft_rank_prediction rank = sized<weft_rank_prediction>();
  weft_link_prediction link = sized<weft_link_prediction>();
  weft_candidate row = sized<weft_candidate>();
  EXPECT_EQ(weft_prediction_describe(nullptr, &info), WEFT_EINVAL);
  EXPECT_EQ(weft_prediction_rank(nullptr, 0, &rank), WEFT_EINVAL);
  EXPECT_EQ(weft_prediction_link(nullptr, 0, &link), WEFT_EINVAL);
  EXPECT_EQ(weft_comparison_row(nullptr, 0, &row), WEFT_EINVAL);
  const PlanPtr plan = new_plan(small_model(), plan_config());
  weft_prediction* prediction = nullptr;
  Error err;
  ASSERT_EQ(weft_plan_simulate(plan.get(), 0, &prediction, &err), WEFT_OK) << err.text;
  const PredictionPtr owner(prediction);
  EXPECT_EQ(weft_prediction_rank(prediction, 0, &rank), WEFT_OK);
  EXPECT_EQ(weft_prediction_rank(prediction, 1, &rank), WEFT_ENOENT);
  EXPECT_EQ(weft_prediction_link(prediction, 0, &link), WEFT_ENOENT)
      << "a single rank has no links";
}

// As the man pages say; a file system that fails otherwise gives WEFT_EIO.
TEST(Prediction, WhereNoFileCanBeIsToldFromWhereNoneIs) {
  Error err;
  weft_cluster* cluster = nullptr;
  expect_error(weft_cluster_load("/tmp/no-such-directory/cluster.json", &cluster, &err), err,
               WEFT_ENOENT, {"cluster.json"});
  expect_error(weft_cluster_load("/tmp", &cluster, &err), err, WEFT_EINVAL,
               {"/tmp: expected a regular file, found a directory"});
  const ModelPtr model = small_model();
  const PlanPtr plan = new_plan(model, plan_config());
  expect_error(weft_plan_save(plan.get(), "/tmp/no-such-directory/plan.json", &err), err,
               WEFT_ENOENT, {"plan.json"});
  expect_error(weft_plan_save(plan.get(), "", &err), err, WEFT_EINVAL, {"path", "is empty"});
  expect_error(weft_plan_save(plan.get(), "/tmp", &err), err, WEFT_EINVAL,
               {"/tmp: expected a regular file"});
  weft_plan* loaded = nullptr;
  expect_error(weft_plan_load(model.get(), "/tmp/no-such-directory/plan.json", &loaded, &err), err,
               WEFT_ENOENT, {"plan.json"});
  expect_error(weft_plan_load(model.get(), "/tmp", &loaded, &err), err, WEFT_EINVAL,
               {"/tmp: expected a regular file"});
  weft_prediction* prediction = nullptr;
  ASSERT_EQ(weft_plan_simulate(plan.get(), WEFT_PREDICT_TIMELINE, &prediction, &err), WEFT_OK)
      << err.text;
  const PredictionPtr owner(prediction);
  expect_error(weft_prediction_save_trace(prediction, "/tmp/no-such-directory/trace.json", &err),
               err, WEFT_ENOENT, {"trace.json"});
  expect_error(weft_prediction_save_trace(prediction, "/tmp", &err), err, WEFT_EINVAL,
               {"/tmp: expected a regular file"});
}

TEST(Prediction, GoesByLinksThatASavedPlanHasNot) {
  char path[] = "/tmp/weft-plan-XXXXXX";
  const int file = mkstemp(path);
  ASSERT_GE(file, 0);
  close(file);
  const ModelPtr model = small_model();
  weft_plan_config config = plan_config(2);
  config.link_latency_ns = 500000000;
  const PlanPtr plan = new_plan(model, config);
  Error err;
  ASSERT_EQ(weft_plan_save(plan.get(), path, &err), WEFT_OK) << err.text;
  weft_plan* loaded = nullptr;
  ASSERT_EQ(weft_plan_load(model.get(), path, &loaded, &err), WEFT_OK) << err.text;
  std::remove(path);
  const PlanPtr again(loaded);
  const auto seconds = [&err](const PlanPtr& of) {
    weft_prediction* prediction = nullptr;
    EXPECT_EQ(weft_plan_simulate(of.get(), 0, &prediction, &err), WEFT_OK) << err.text;
    const PredictionPtr owner(prediction);
    weft_prediction_info info = sized<weft_prediction_info>();
    EXPECT_EQ(weft_prediction_describe(prediction, &info), WEFT_OK);
    return static_cast<double>(info.step_ns) * 1e-9;
  };
  EXPECT_GT(seconds(plan), 1) << "a message there and one back";
  EXPECT_LT(seconds(again), 0.5);
  EXPECT_EQ(weft_plan_bytes(again.get(), 1), weft_plan_bytes(plan.get(), 1))
      << "what it runs is the same";
}

TEST(Comparison, HasTwoGroupsOfDelayedWeightGradientsIfTheScheduleIsNotGiven) {
  const ModelPtr model = small_model();
  weft_plan_config config = plan_config(2, 8);
  const auto groups = [&] {
    Error err;
    weft_comparison* out = nullptr;
    EXPECT_EQ(weft_plan_compare(model.get(), &config, &out, &err), WEFT_OK) << err.text;
    std::vector<uint32_t> found;
    weft_candidate row = sized<weft_candidate>();
    for (uint32_t i = 0; weft_comparison_row(out, i, &row) == WEFT_OK; ++i)
      if (row.group > 0) found.push_back(row.group);
    weft_comparison_free(out);
    return found;
  };
  config.schedule = "auto";
  EXPECT_EQ(groups(), (std::vector<uint32_t>{4, 8}));
  config.micro_batches = 4;
  EXPECT_EQ(groups(), std::vector<uint32_t>{4});
  config.micro_batches = 8;
  config.schedule = "1f1b-delayed-w";
  EXPECT_EQ(groups(), std::vector<uint32_t>{4});
  weft_plan_info info = sized<weft_plan_info>();
  ASSERT_EQ(weft_plan_describe(new_plan(model, config).get(), &info), WEFT_OK);
  EXPECT_EQ(info.group, 4u) << "a plan has what the comparison shows";
  config.schedule = "1f1b";
  EXPECT_EQ(groups(), std::vector<uint32_t>{});
}

TEST(Comparison, OfAnAxisAutoHasARowForEachMesh) {
  const ModelPtr model = small_model();
  weft_plan_config config = plan_config(1, 4);
  const weft_axis any[] = {{"auto", 2, 0}, {"data", 2, 0}};
  config.axes = any;
  config.n_axes = 1;
  Error err;
  weft_comparison* out = nullptr;
  ASSERT_EQ(weft_plan_compare(model.get(), &config, &out, &err), WEFT_OK) << err.text;
  const std::unique_ptr<weft_comparison, void (*)(weft_comparison*)> owner(out,
                                                                           weft_comparison_free);
  std::vector<weft_candidate> rows;
  weft_candidate row = sized<weft_candidate>();
  for (uint32_t i = 0; weft_comparison_row(out, i, &row) == WEFT_OK; ++i) rows.push_back(row);
  ASSERT_EQ(rows.size(), 3u);
  for (const weft_candidate& r : rows) EXPECT_EQ(r.data * r.stage * r.tensor, 2u);
  const auto best =
      std::find_if(rows.begin(), rows.end(), [](const weft_candidate& r) { return r.best != 0; });
  ASSERT_NE(best, rows.end());
  EXPECT_NEAR(static_cast<double>(best->work_ns + best->waiting_ns),
              static_cast<double>(best->step_ns), 2);
  const PlanPtr plan = new_plan(model, config);  // takes the best one
  EXPECT_EQ(weft_plan_replicas(plan.get(), 0), best->data);
  EXPECT_EQ(weft_plan_stages(plan.get()), best->stage * best->chunks);
  config.n_axes = 2;
  expect_error(weft_plan_compare(model.get(), &config, &out, &err), err, WEFT_EINVAL,
               {"axis 'auto' stands for all axes"});
}

}  // namespace
