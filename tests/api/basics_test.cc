// Statuses, errors and tensors.
#include <cstddef>
#include <cstring>

#include "api/drivers.h"

namespace {

TEST(Status, EachHasAText) {
  const char* texts[] = {"ok",
                         "invalid argument",
                         "out of memory",
                         "wrong state",
                         "try again",
                         "canceled",
                         "timed out",
                         "peer lost",
                         "protocol violated",
                         "not supported",
                         "not found",
                         "callback failed",
                         "internal error",
                         "input or output failed",
                         "bad data"};
  for (int i = 0; i < 15; ++i) EXPECT_STREQ(weft_status_text(-i), texts[i]);
  EXPECT_EQ(WEFT_EDATA, -14);
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
  const weft_desc bad = desc({1}, weft_dtype{77});
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

// Every field after it has its default, and what the caller's struct does not have is not touched.
template <typename T>
void expect_smaller_is_filled(void (*init)(T*, size_t), size_t size) {
  T whole = defaults(init), part;
  std::memset(static_cast<void*>(&part), '#', sizeof part);
  init(&part, size);
  EXPECT_EQ(part.size, size);
  const auto* bytes = reinterpret_cast<const char*>(&part);
  EXPECT_EQ(std::memcmp(bytes + sizeof part.size,
                        reinterpret_cast<const char*>(&whole) + sizeof part.size,
                        size - sizeof part.size),
            0);
  for (size_t i = size; i < sizeof part; ++i) ASSERT_EQ(bytes[i], '#') << i;
}

TEST(Init, FillsWhatTheStructOfTheCallerHas) {
  expect_smaller_is_filled(weft_node_config_init, offsetof(weft_node_config, dims));
  expect_smaller_is_filled(weft_op_init, offsetof(weft_op, destroy));
  expect_smaller_is_filled(weft_profile_config_init, offsetof(weft_profile_config, threads));
  expect_smaller_is_filled(weft_optimizer_init, offsetof(weft_optimizer, min_rate));
  expect_smaller_is_filled(weft_parameter_group_init, offsetof(weft_parameter_group, rate_factor));
  expect_smaller_is_filled(weft_plan_config_init, offsetof(weft_plan_config, step_kinds));
  expect_smaller_is_filled(weft_mesh_config_init, offsetof(weft_mesh_config, key));
  expect_smaller_is_filled(weft_data_config_init, offsetof(weft_data_config, width));
  expect_smaller_is_filled(weft_run_config_init, sizeof(weft_run_config));
  expect_smaller_is_filled(weft_save_config_init, offsetof(weft_save_config, tag));
}

TEST(Init, FillsALargerStructOfALaterVersionWithZeros) {
  struct Later {
    weft_optimizer known;
    uint64_t more;
  } later;
  std::memset(static_cast<void*>(&later), '#', sizeof later);
  weft_optimizer_init(&later.known, sizeof later);
  EXPECT_EQ(later.known.size, sizeof later);
  EXPECT_EQ(later.known.beta1, 0.9);
  EXPECT_EQ(later.more, 0u);
}

TEST(Init, DefaultsAreValues) {
  const weft_plan_config plan = defaults(weft_plan_config_init);
  EXPECT_EQ(plan.ranks, 1u);
  EXPECT_STREQ(plan.schedule, "1f1b");
  EXPECT_EQ(plan.step_kinds, uint32_t{WEFT_STEPS_ALL});
  const weft_mesh_config mesh = defaults(weft_mesh_config_init);
  EXPECT_EQ(mesh.join_timeout_ns, int64_t{60} * 1000000000);
  EXPECT_EQ(mesh.rank, WEFT_ANY_RANK);
}

// A config without the fields behind `step_kinds` has their defaults.
TEST(Init, AFieldThatTheStructLacksHasItsDefault) {
  const ModelPtr model = small_model();
  weft_plan_config part = plan_config(2), whole = part;
  part.size = offsetof(weft_plan_config, seed);
  part.seed = 7;
  part.shard = "none";
  weft_plan_info small = sized<weft_plan_info>(), full = small;
  const PlanPtr a = new_plan(model, part), b = new_plan(model, whole);
  EXPECT_EQ(weft_plan_describe(a.get(), &small), WEFT_OK);
  EXPECT_EQ(weft_plan_describe(b.get(), &full), WEFT_OK);
  EXPECT_EQ(small.warm_up, full.warm_up);
  EXPECT_EQ(weft_plan_bytes(a.get(), 0), weft_plan_bytes(b.get(), 0));
}

// A program for a later version, with more fields.
TEST(Init, AFieldThatTheLibraryLacksIsZero) {
  struct Later {
    weft_plan_config config;
    unsigned char more[64];
  } later;
  std::memset(&later, 0xaa, sizeof later);
  later.config.size = sizeof later;
  const ModelPtr model = small_model();
  const PlanPtr plan = new_plan(model, plan_config(2));
  ASSERT_EQ(weft_plan_settings(plan.get(), &later.config), WEFT_OK);
  Error err;
  weft_plan* again = nullptr;
  ASSERT_EQ(weft_plan_new(model.get(), &later.config, &again, &err), WEFT_OK) << err.text;
  weft_plan_free(again);
}

TEST(Init, AZeroFilledStructIsRefusedByName) {
  const ModelPtr model = small_model();
  weft_plan* plan = nullptr;
  weft_plan_config zeros = {};
  Error err;
  expect_error(weft_plan_new(model.get(), &zeros, &plan, &err), err, WEFT_EINVAL,
               {"weft_plan_config.size is 0", "weft_plan_config_init"});
  zeros.size = sizeof &zeros;
  expect_error(weft_plan_new(model.get(), &zeros, &plan, &err), err, WEFT_EINVAL,
               {"weft_plan_config.size is 8", "weft_plan_config_init"});
  zeros.size = 20;  // ends within a field
  expect_error(weft_plan_new(model.get(), &zeros, &plan, &err), err, WEFT_EINVAL,
               {"weft_plan_config.size is 20", "weft_plan_config_init"});
  zeros.size = sizeof zeros;
  expect_error(weft_plan_new(model.get(), &zeros, &plan, &err), err, WEFT_EINVAL,
               {"weft_plan_config.step_kinds is 0", "WEFT_STEPS_TRAIN"});
  weft_plan_config config = plan_config();
  weft_optimizer no_rule = {};
  no_rule.size = sizeof no_rule;
  config.optimizer = &no_rule;
  expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EINVAL,
               {"weft_optimizer.rule is 0", "WEFT_ADAMW"});
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
  expect_first(sized<weft_schedule_info>(), 32,
               [](auto* out) { return weft_schedule_describe(0, out); });
  expect_first(sized<weft_plan_info>(), 32,
               [&](auto* out) { return weft_plan_describe(plan.get(), out); });
  weft_prediction* prediction = nullptr;
  ASSERT_EQ(weft_plan_simulate(plan.get(), 0, &prediction, nullptr), WEFT_OK);
  expect_first(sized<weft_prediction_info>(), 72,
               [&](auto* out) { return weft_prediction_describe(prediction, out); });
  expect_first(sized<weft_rank_prediction>(), 56,
               [&](auto* out) { return weft_prediction_rank(prediction, 0, out); });
  expect_first(sized<weft_link_prediction>(), 32,
               [&](auto* out) { return weft_prediction_link(prediction, 0, out); });
  weft_prediction_free(prediction);
  const weft_plan_config config = plan_config(2);
  weft_comparison* comparison = nullptr;
  ASSERT_EQ(weft_plan_compare(model.get(), &config, &comparison, nullptr), WEFT_OK);
  expect_first(sized<weft_candidate>(), 80,
               [&](auto* out) { return weft_comparison_row(comparison, 0, out); });
  weft_comparison_free(comparison);
  expect_first(sized<weft_preset_info>(), 48, [](auto* out) {
    weft_model* made = nullptr;
    const weft_status status = weft_model_preset("mlp", 0, 1, &made, out, nullptr);
    weft_model_free(made);
    return status;
  });
  weft_profile_config once = defaults(weft_profile_config_init);
  once.repeats = 1;
  weft_profile* profile = nullptr;
  ASSERT_EQ(weft_profile_new(model.get(), &once, &profile, nullptr), WEFT_OK);
  expect_first(sized<weft_node_times>(), 56,
               [&](auto* out) { return weft_profile_node(profile, 0, out); });
  weft_profile_free(profile);
  EXPECT_EQ(offsetof(weft_event, idle), 72u) << "run_test polls such an event";
  const Directory directory;
  const std::string file = directory.path() + "/weights.safetensors";
  const RunPtr run = start(model, plan_config(2));
  ASSERT_EQ(weft_run_export(run.get(), file.c_str(), nullptr), WEFT_OK);
  const CheckpointPtr checkpoint = open_checkpoint(file);
  expect_first(sized<weft_checkpoint_info>(), 72,
               [&](auto* out) { return weft_checkpoint_describe(checkpoint.get(), out); });
}

TEST(Reserved, FieldsAreZero) {
  Error err;
  weft_mesh_config mesh = defaults(weft_mesh_config_init);
  mesh.reserved = 8;
  weft_mesh* listening = nullptr;
  expect_error(weft_mesh_listen(&mesh, &listening, &err), err, WEFT_EINVAL,
               {"weft_mesh_config.reserved is 8"});
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
  for (weft_dtype dtype : {WEFT_F32, WEFT_I32, WEFT_F64}) {
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
  d.n_dims = WEFT_MAX_DIMS + 1;
  expect_error(weft_tensor_new(&d, &out, &err), err, WEFT_EINVAL, {"n_dims is 9", "at most 8"});
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
  EXPECT_EQ(weft_tensor_desc(nullptr).n_dims, 0u);
}

}  // namespace
