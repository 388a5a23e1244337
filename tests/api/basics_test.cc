// Statuses, errors and tensors.
#include <cstddef>

#include "api/api.h"

namespace {

TEST(Status, EachHasTheTextOfTheHeader) {
#define EXPECT_TEXT(name, value, text)             \
  EXPECT_EQ(static_cast<int>(WEFT_##name), value); \
  EXPECT_STREQ(weft_status_text(WEFT_##name), text);
  WEFT_STATUS_MAP(EXPECT_TEXT)
#undef EXPECT_TEXT
}

TEST(Status, OthersAreUnknown) {
  for (weft_status status : {1, 7, -15, -1000, INT32_MAX, INT32_MIN})
    EXPECT_STREQ(weft_status_text(status), "unknown status");
}

TEST(Version, IsThatOfTheHeader) {
  const std::string expected = std::to_string(WEFT_VERSION_MAJOR) + "." +
                               std::to_string(WEFT_VERSION_MINOR) + "." +
                               std::to_string(WEFT_VERSION_PATCH);
  EXPECT_EQ(weft_version(), expected);
}

// A failure whose text is long.
weft_status fail(weft_error* err) {
  const weft_desc bad = desc({1}, 77);
  weft_tensor* out = nullptr;
  return weft_tensor_new(&bad, &out, err);
}

TEST(ErrorText, IsOptional) { EXPECT_EQ(fail(nullptr), WEFT_EINVAL); }

TEST(ErrorText, NamesTheThing) {
  Error err;
  expect_error(fail(&err), err, WEFT_EINVAL, {"dtype", "77", "WEFT_F32"});
}

TEST(ErrorText, IsCutToTheSizeTheCallerHas) {
  Error err;
  std::memset(err.text, '#', sizeof err.text);
  err.size = offsetof(weft_error, text) + 8;
  EXPECT_EQ(fail(&err), WEFT_EINVAL);
  EXPECT_EQ(std::strlen(err.text), 7u);
  EXPECT_EQ(err.text[8], '#');
}

TEST(ErrorText, IsLeftAloneWithoutASize) {
  Error err;
  err.size = 0;
  err.text[0] = '#';
  EXPECT_EQ(fail(&err), WEFT_EINVAL);
  EXPECT_EQ(err.text[0], '#');
  EXPECT_EQ(err.status, 0);
}

TEST(ErrorText, IsLeftAloneOnSuccess) {
  Error err;
  const weft_desc good = desc({1});
  weft_tensor* out = nullptr;
  err.text[0] = '#';
  err.status = 42;
  ASSERT_EQ(weft_tensor_new(&good, &out, &err), WEFT_OK);
  EXPECT_EQ(err.text[0], '#');
  EXPECT_EQ(err.status, 42);
  weft_tensor_unref(out);
}

TEST(InitMacros, SetTheSizeAndNothingElse) {
  // Every byte after `size` is a default, so a caller may as well zero the memory and set the size.
  auto rest_is_zero = [](const auto& config) {
    EXPECT_EQ(config.size, sizeof config);
    const auto* bytes = reinterpret_cast<const unsigned char*>(&config);
    for (size_t i = sizeof config.size; i < sizeof config; ++i)
      EXPECT_EQ(bytes[i], 0) << "byte " << i;
  };
  rest_is_zero(weft_error WEFT_ERROR_INIT);
  rest_is_zero(weft_node_config WEFT_NODE_INIT);
  rest_is_zero(weft_optimizer WEFT_OPTIMIZER_INIT);
  rest_is_zero(weft_plan_config WEFT_PLAN_INIT);
  rest_is_zero(weft_run_config WEFT_RUN_INIT);
  rest_is_zero(weft_event WEFT_EVENT_INIT);
  const weft_op op = WEFT_OP_INIT;  // its version starts at 1
  EXPECT_EQ(op.size, sizeof op);
  EXPECT_EQ(op.version, 1u);
}

// Exactly `first` bytes are enough for a struct that the library fills, whatever has been added
// behind them.
template <typename T, typename F>
void expect_first(T filled, uint32_t first, F&& call) {
  filled.size = first;
  EXPECT_EQ(call(&filled), WEFT_OK) << first;
  EXPECT_EQ(filled.size, first);
  filled.size = first - 1;
  EXPECT_EQ(call(&filled), WEFT_EINVAL) << first;
}

// The numbers never change: programs that were built against the first version have them.
TEST(FirstVersion, OfEachFilledStructIsEnough) {
  if (sizeof(void*) != 8) GTEST_SKIP() << "the numbers are those of 64-bit machines";
  const ModelPtr model = small_model();
  const PlanPtr plan = new_plan(model, plan_config(2));
  expect_first(weft_schedule_info WEFT_SCHEDULE_INFO_INIT, 32,
               [](auto* out) { return weft_schedule_describe(0, out); });
  expect_first(weft_plan_info WEFT_PLAN_INFO_INIT, 32,
               [&](auto* out) { return weft_plan_describe(plan.get(), out); });
  weft_prediction* prediction = nullptr;
  ASSERT_EQ(weft_plan_simulate(plan.get(), 0, &prediction, nullptr), WEFT_OK);
  expect_first(weft_prediction_info WEFT_PREDICTION_INFO_INIT, 72,
               [&](auto* out) { return weft_prediction_describe(prediction, out); });
  expect_first(weft_rank_prediction WEFT_RANK_PREDICTION_INIT, 56,
               [&](auto* out) { return weft_prediction_rank(prediction, 0, out); });
  expect_first(weft_link_prediction WEFT_LINK_PREDICTION_INIT, 32,
               [&](auto* out) { return weft_prediction_link(prediction, 0, out); });
  weft_prediction_free(prediction);
  const weft_plan_config config = plan_config(2);
  weft_comparison* comparison = nullptr;
  ASSERT_EQ(weft_plan_compare(model.get(), &config, &comparison, nullptr), WEFT_OK);
  expect_first(weft_candidate WEFT_CANDIDATE_INIT, 80,
               [&](auto* out) { return weft_comparison_row(comparison, 0, out); });
  weft_comparison_free(comparison);
  expect_first(weft_preset_info WEFT_PRESET_INFO_INIT, 48, [](auto* out) {
    weft_model* made = nullptr;
    const weft_status status = weft_model_preset("mlp", 0, 1, &made, out, nullptr);
    weft_model_free(made);
    return status;
  });
  weft_profile_config once = WEFT_PROFILE_INIT;
  once.repeats = 1;
  weft_profile* profile = nullptr;
  ASSERT_EQ(weft_profile_new(model.get(), &once, &profile, nullptr), WEFT_OK);
  expect_first(weft_node_times WEFT_NODE_TIMES_INIT, 56,
               [&](auto* out) { return weft_profile_node(profile, 0, out); });
  weft_profile_free(profile);
  EXPECT_EQ(offsetof(weft_event, idle), 72u) << "run_test polls such an event";
  EXPECT_EQ(sizeof(weft_checkpoint_info), 72u) << "then describe one of 72 bytes here";
}

TEST(Reserved, FieldsAreZero) {
  const ModelPtr model = small_model();
  Error err;
  weft_plan* plan = nullptr;
  weft_plan_config config = plan_config();
  config.reserved = 7;
  expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EINVAL,
               {"weft_plan_config.reserved is 7", "expected 0"});
  weft_data_config data = WEFT_DATA_INIT;
  data.width = 3;
  data.reserved = 9;
  weft_data* opened = nullptr;
  expect_error(weft_data_open(&data, &opened, &err), err, WEFT_EINVAL,
               {"weft_data_config.reserved is 9"});
  const ModelPtr other = new_model();
  const weft_value x = add_input(other, "x", {1, 4});
  weft_node_config node = WEFT_NODE_INIT;
  node.op = "relu";
  node.inputs = &x;
  node.n_inputs = 1;
  node.reserved = 10;
  weft_value out = {};
  expect_error(weft_model_add_node(other.get(), &node, &out, &err), err, WEFT_EINVAL,
               {"weft_node_config.reserved is 10"});
}

// ---- tensors ----

struct Released {
  int calls = 0;
  void* data = nullptr;
  static void call(void* data, void* payload) {
    auto* self = static_cast<Released*>(payload);
    ++self->calls;
    self->data = data;
  }
};

TEST(TensorTest, WrapsWithoutACopy) {
  float data[6] = {1, 2, 3, 4, 5, 6};
  const weft_desc d = desc({2, 3});
  weft_tensor* tensor = nullptr;
  ASSERT_EQ(weft_tensor_wrap(&d, data, nullptr, nullptr, &tensor, nullptr), WEFT_OK);
  EXPECT_EQ(weft_tensor_data(tensor), data);
  const weft_desc found = weft_tensor_desc(tensor);
  EXPECT_EQ(std::memcmp(&found, &d, sizeof d), 0);
  weft_tensor_unref(tensor);
}

TEST(TensorTest, ReleasesOnceAfterTheLastOwner) {
  float data[2] = {};
  Released released;
  const weft_desc d = desc({2});
  weft_tensor* tensor = nullptr;
  ASSERT_EQ(weft_tensor_wrap(&d, data, Released::call, &released, &tensor, nullptr), WEFT_OK);
  EXPECT_EQ(weft_tensor_ref(tensor), tensor);
  EXPECT_EQ(weft_tensor_ref(tensor), tensor);
  weft_tensor_unref(tensor);
  weft_tensor_unref(tensor);
  EXPECT_EQ(released.calls, 0);
  weft_tensor_unref(tensor);
  EXPECT_EQ(released.calls, 1);
  EXPECT_EQ(released.data, data);
}

TEST(TensorTest, DoesNotReleaseOnFailure) {
  alignas(float) char bytes[12] = {};
  Released released;
  const weft_desc d = desc({2});
  weft_tensor* tensor = nullptr;
  Error err;
  expect_error(weft_tensor_wrap(&d, bytes + 1, Released::call, &released, &tensor, &err), err,
               WEFT_EINVAL, {"aligned", "4-byte"});
  EXPECT_EQ(released.calls, 0);
  EXPECT_EQ(tensor, nullptr);
}

TEST(TensorTest, StartsWithZeros) {
  for (uint32_t dtype : {WEFT_F32, WEFT_I32, WEFT_F64}) {
    const TensorPtr tensor = zeros({3, 5}, dtype);
    const auto* bytes = static_cast<const unsigned char*>(weft_tensor_data(tensor.get()));
    for (size_t i = 0; i < 15 * (dtype == WEFT_F64 ? 8u : 4u); ++i) ASSERT_EQ(bytes[i], 0);
  }
}

TEST(TensorTest, RefusesShapesThatCannotBe) {
  weft_tensor* out = nullptr;
  weft_desc d = desc({2, -3});
  Error err;
  expect_error(weft_tensor_new(&d, &out, &err), err, WEFT_EINVAL, {"dimension 1", "-3"});
  d = desc({INT64_MAX, 2});
  expect_error(weft_tensor_new(&d, &out, &err), err, WEFT_EINVAL, {"more bytes"});
  d = desc({});
  d.rank = WEFT_MAX_RANK + 1;
  expect_error(weft_tensor_new(&d, &out, &err), err, WEFT_EINVAL, {"rank is 9", "at most 8"});
  EXPECT_EQ(out, nullptr);
}

TEST(TensorTest, MoreMemoryThanThereIsIsAnError) {
#ifdef WEFT_SANITIZED
  GTEST_SKIP() << "sanitizers end the process instead";
#endif
  const weft_desc d = desc({int64_t{1} << 46});
  weft_tensor* out = nullptr;
  Error err;
  expect_error(weft_tensor_new(&d, &out, &err), err, WEFT_ENOMEM, {"memory"});
  EXPECT_EQ(out, nullptr);
}

TEST(TensorTest, NullIsHarmless) {
  const weft_desc d = desc({1});
  float data = 0;
  weft_tensor* out = nullptr;
  Error err;
  expect_error(weft_tensor_wrap(nullptr, &data, nullptr, nullptr, &out, &err), err, WEFT_EINVAL,
               {"desc is NULL"});
  expect_error(weft_tensor_wrap(&d, nullptr, nullptr, nullptr, &out, &err), err, WEFT_EINVAL,
               {"data is NULL"});
  expect_error(weft_tensor_wrap(&d, &data, nullptr, nullptr, nullptr, &err), err, WEFT_EINVAL,
               {"out is NULL"});
  expect_error(weft_tensor_new(nullptr, &out, &err), err, WEFT_EINVAL, {"desc is NULL"});
  expect_error(weft_tensor_new(&d, nullptr, &err), err, WEFT_EINVAL, {"out is NULL"});
  weft_tensor_unref(nullptr);
  EXPECT_EQ(weft_tensor_ref(nullptr), nullptr);
  EXPECT_EQ(weft_tensor_data(nullptr), nullptr);
  EXPECT_EQ(weft_tensor_desc(nullptr).rank, 0u);
}

}  // namespace
