// The decoder of a preset: the logits of the preset's model, on every mesh and however tokens are
// divided among steps; its planned bytes, and steps that it refuses.
#include "api/api.h"

namespace {

constexpr int64_t kContext = 24, kVocabulary = 41;
constexpr const char* kModel = "gpt-nano:blocks=3,width=32,heads=4,context=24,vocabulary=41";

ModelPtr decoder(int64_t sequences = 1, int64_t context = 0, uint32_t flags = 0) {
  weft_decoder_config config = defaults(weft_decoder_config_init);
  config.sequences = sequences;
  config.context = context;
  config.flags = flags;
  weft_model* out = nullptr;
  weft_preset_info info = sized<weft_preset_info>();
  Error err;
  EXPECT_EQ(weft_model_decoder(kModel, &config, &out, &info, &err), WEFT_OK) << err.text;
  EXPECT_EQ(info.seq_len, context ? context : kContext);
  EXPECT_EQ(info.vocabulary, kVocabulary);
  return ModelPtr(out);
}

struct Row {
  int32_t token, position, sequence;
};

int32_t token_at(int32_t sequence, int32_t position) {
  return (position * 7 + sequence * 13 + 5) % static_cast<int32_t>(kVocabulary);
}

// Rows `begin` to `end` - 1 of a text.
std::vector<Row> part(int32_t sequence, int32_t begin, int32_t end) {
  std::vector<Row> out;
  for (int32_t i = begin; i < end; ++i) out.push_back({token_at(sequence, i), i, sequence});
  return out;
}

weft_status step(const RunPtr& run, const std::vector<Row>& rows, weft_step_mode mode,
                 weft_tensor* const* outputs, Error& err) {
  TensorPtr inputs[3];
  weft_tensor* pointers[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    inputs[i] = zeros({static_cast<int64_t>(rows.size()), 1}, WEFT_I32);
    pointers[i] = inputs[i].get();
    auto* to = static_cast<int32_t*>(weft_tensor_data(pointers[i]));
    for (const Row& row : rows) *to++ = i == 0 ? row.token : i == 1 ? row.position : row.sequence;
  }
  return weft_run_step(run.get(), pointers, 3, mode, outputs, outputs ? 1 : 0, nullptr, &err);
}

std::vector<float> logits_of(const RunPtr& run, const std::vector<Row>& rows, Error& err) {
  const TensorPtr out = zeros({static_cast<int64_t>(rows.size()), 1, kVocabulary});
  weft_tensor* const outputs[] = {out.get()};
  if (step(run, rows, WEFT_FORWARD, outputs, err) != WEFT_OK) return {};
  return values(out);
}

std::vector<float> logits_of(const RunPtr& run, const std::vector<Row>& rows) {
  Error err;
  std::vector<float> out = logits_of(run, rows, err);
  EXPECT_FALSE(out.empty()) << err.text;
  return out;
}

weft_plan_config config_of(uint32_t micro_batches, uint32_t size, uint32_t short_size = 0,
                           std::vector<weft_axis>* axes = nullptr, uint32_t tensor = 1) {
  weft_plan_config config = plan_config(1, micro_batches, size);
  config.short_size = short_size;
  config.seed = 5;
  config.tensor = tensor;
  if (axes) {
    config.axes = axes->data();
    config.n_axes = static_cast<uint32_t>(axes->size());
  }
  return config;
}

// What the model that trains gives for the whole text.
std::vector<float> window(uint32_t tensor = 1) {
  weft_model* made = nullptr;
  Error err;
  EXPECT_EQ(weft_model_preset(kModel, 0, 1, &made, nullptr, &err), WEFT_OK) << err.text;
  const ModelPtr model(made);
  const RunPtr run = start(model, config_of(1, 1, 0, nullptr, tensor));
  const TensorPtr tokens = zeros({1, kContext}, WEFT_I32), out = zeros({1, kContext, kVocabulary});
  for (int32_t i = 0; i < kContext; ++i)
    static_cast<int32_t*>(weft_tensor_data(tokens.get()))[i] = token_at(0, i);
  weft_tensor *const inputs[] = {tokens.get(), nullptr}, *const outputs[] = {out.get()};
  EXPECT_EQ(weft_run_step(run.get(), inputs, 2, WEFT_FORWARD, outputs, 1, nullptr, &err), WEFT_OK)
      << err.text;
  return values(out);
}

void append(std::vector<float>& to, const std::vector<float>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

struct MeshCase {
  const char* axis;
  uint32_t threads, tensor;
};

class Decoder : public testing::TestWithParam<MeshCase> {
 protected:
  RunPtr begin(const ModelPtr& model, uint32_t micro_batches, uint32_t size,
               uint32_t short_size = 0) const {
    std::vector<weft_axis> axes;
    if (*GetParam().axis) axes.push_back({GetParam().axis, 2, 0});
    return start(model,
                 config_of(micro_batches, size, short_size, axes.empty() ? nullptr : &axes,
                           GetParam().tensor),
                 GetParam().threads);
  }
};

TEST_P(Decoder, HasTheLogitsOfTheWholeWindowInChunksAndTokenByToken) {
  const std::vector<float> expected = window(GetParam().tensor);
  const ModelPtr model = decoder(2);
  const RunPtr run = begin(model, 2, 8, 1);
  std::vector<float> made = logits_of(run, part(0, 0, 16));  // two micro-batches
  append(made, logits_of(run, part(0, 16, 17)));
  append(made, logits_of(run, part(0, 17, 19)));  // two short micro-batches
  for (int32_t i = 19; i < kContext; ++i) append(made, logits_of(run, part(0, i, i + 1)));
  ASSERT_EQ(made.size(), expected.size());
  for (size_t i = 0; i < made.size(); ++i) ASSERT_EQ(made[i], expected[i]) << "logit " << i;
}

TEST_P(Decoder, HasTheLogitsOfTheWholeWindowAfterItsCacheIsFilled) {
  const std::vector<float> expected = window(GetParam().tensor);
  const ModelPtr model = decoder(2);
  const RunPtr run = begin(model, 2, 8, 1);
  Error err;
  ASSERT_EQ(step(run, part(0, 0, 9), WEFT_FILL, nullptr, err), WEFT_OK) << err.text;
  ASSERT_EQ(step(run, part(0, 9, 11), WEFT_FILL, nullptr, err), WEFT_OK) << err.text;
  std::vector<float> made;
  for (int32_t i = 11; i < kContext; ++i) append(made, logits_of(run, part(0, i, i + 1)));
  ASSERT_EQ(made.size(), static_cast<size_t>((kContext - 11) * kVocabulary));
  EXPECT_TRUE(std::equal(made.begin(), made.end(), expected.begin() + 11 * kVocabulary));
}

TEST_P(Decoder, TextsDoNotAffectEachOther) {
  const ModelPtr model = decoder(3);
  const RunPtr alone = begin(model, 1, 24), together = begin(model, 2, 6, 3);
  std::vector<std::vector<float>> expected;
  for (int32_t s = 0; s < 3; ++s) expected.push_back(logits_of(alone, part(s, 0, kContext)));
  for (int32_t i = 0; i < kContext; ++i) {
    std::vector<Row> rows;
    for (int32_t s = 0; s < 3; ++s) rows.push_back(part((s + i) % 3, i, i + 1).front());
    if (i % 2) rows.insert(rows.begin() + 1, 3, {7, 3, -1});
    const std::vector<float> made = logits_of(together, rows);
    for (size_t r = 0; r < rows.size(); ++r) {
      if (rows[r].sequence < 0) continue;
      const auto of = expected[static_cast<size_t>(rows[r].sequence)].begin() + i * kVocabulary;
      EXPECT_TRUE(std::equal(of, of + kVocabulary,
                             made.begin() + static_cast<std::ptrdiff_t>(r) * kVocabulary))
          << "position " << i << ", row " << r;
    }
  }
}

TEST_P(Decoder, AnotherTextBeginsAtPosition0) {
  const ModelPtr model = decoder();
  const RunPtr used = begin(model, 1, 12), fresh = begin(model, 1, 12);
  logits_of(used, part(0, 0, 12));
  std::vector<Row> other = part(1, 0, 12);
  for (Row& row : other) row.sequence = 0;
  EXPECT_EQ(logits_of(used, other), logits_of(fresh, other));
}

// Of a decoder with two places: the first one to the second one, up to that position.
Row copy_to_second(int32_t position) { return {0, position, -2 - (0 * 2 + 1)}; }

// The second place gets the first tokens of the text: in the micro-batch that computes them, in
// place of tokens that it got so before, and in a later step.
TEST_P(Decoder, HasTheLogitsOfTheWholeWindowAfterTokensThatAreCopied) {
  const std::vector<float> expected = window(GetParam().tensor);
  const ModelPtr model = decoder(2);
  const RunPtr run = begin(model, 2, 8, 1);
  const auto rest = [](int32_t from) {
    std::vector<Row> out = part(0, from, kContext);
    for (Row& row : out) row.sequence = 1;
    return out;
  };
  logits_of(run, part(1, 0, 9));
  Error err;
  for (const int32_t last : {6, 14}) {  // with the copy, whole micro-batches
    std::vector<Row> rows = part(0, 0, last + 1);
    rows.push_back(copy_to_second(last));
    ASSERT_EQ(step(run, rows, WEFT_FILL, nullptr, err), WEFT_OK) << err.text;
    std::vector<float> made;
    for (const Row& row : rest(last + 1)) append(made, logits_of(run, {row}));
    EXPECT_TRUE(std::equal(made.begin(), made.end(), expected.begin() + (last + 1) * kVocabulary));
  }
  logits_of(run, part(0, 15, 16));
  logits_of(run, part(0, 16, 24));
  std::vector<Row> rows = rest(17);
  rows.insert(rows.begin(), copy_to_second(16));
  const std::vector<float> made = logits_of(run, rows);
  EXPECT_TRUE(
      std::equal(made.begin() + kVocabulary, made.end(), expected.begin() + 17 * kVocabulary));
}

std::string mesh_name(const testing::TestParamInfo<MeshCase>& info) {
  return std::string(*info.param.axis ? info.param.axis : "one") +
         std::to_string(info.param.threads) + "x" + std::to_string(info.param.tensor);
}
INSTANTIATE_TEST_SUITE_P(Meshes, Decoder,
                         testing::Values(MeshCase{"", 0, 1}, MeshCase{"", 2, 1},
                                         MeshCase{"stage", 0, 1}, MeshCase{"stage", 2, 1},
                                         MeshCase{"", 0, 2}, MeshCase{"tensor", 1, 2},
                                         MeshCase{"stage", 1, 2}),
                         mesh_name);

TEST(DecoderBytes, AreThoseOfKeysAndValues) {
  for (const uint32_t flags : {0u, uint32_t{WEFT_NODE_BF16_CACHE}}) {
    const ModelPtr model = decoder(3, 20, flags);
    std::vector<weft_axis> axes = {{"stage", 2, 0}};
    const PlanPtr plan = new_plan(model, config_of(1, 4, 0, &axes));
    int64_t state = 0;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      int64_t all = 0;
      for (uint32_t kind = WEFT_MEMORY_WEIGHTS; kind <= WEFT_MEMORY_STATE; ++kind)
        all += weft_plan_memory(plan.get(), rank, static_cast<weft_memory_kind>(kind));
      EXPECT_EQ(all, weft_plan_bytes(plan.get(), rank));
      state += weft_plan_memory(plan.get(), rank, WEFT_MEMORY_STATE);
    }
    // 20 positions have two strips of 16; the lengths of 3 sequences take 64 bytes.
    const int64_t element = flags ? 2 : 4, blocks = 3;
    EXPECT_EQ(state, blocks * (2 * 3 * 32 * 32 * element + 64));
  }
}

TEST(DecoderRefusals, APlaceThatTheCacheDoesNotHave) {
  const ModelPtr model = decoder(1, 10);
  const RunPtr run = start(model, config_of(1, 12));
  const auto rows = [](int32_t sequence) {
    std::vector<Row> out = part(sequence, 0, 10);
    out.resize(12, {7, 0, -1});
    return out;
  };
  Error err;
  EXPECT_TRUE(logits_of(run, part(0, 0, 12), err).empty());
  EXPECT_NE(std::strstr(err.text, "(cached_attention): input 1: element 10 is 10, expected 0 to 9"),
            nullptr)
      << err.text;
  EXPECT_TRUE(logits_of(run, rows(1), err).empty());
  EXPECT_NE(std::strstr(err.text, "input 2: element 0 is 1, expected 0 to 0, or -1 for padding"),
            nullptr)
      << err.text;
  EXPECT_FALSE(logits_of(run, rows(0), err).empty()) << "the run goes on: " << err.text;
}

TEST(DecoderRefusals, CopiesThatDoNotFit) {
  const ModelPtr model = decoder(2, 10);
  const RunPtr run = start(model, config_of(1, 12));
  const auto refused = [&](const Row& copy, const char* says) {
    std::vector<Row> rows = part(0, 0, 4);
    rows.push_back(copy);
    rows.resize(12, {7, 0, -1});
    Error err;
    EXPECT_TRUE(logits_of(run, rows, err).empty());
    EXPECT_NE(std::strstr(err.text, says), nullptr) << err.text;
  };
  refused({7, 0, -6}, "input 2: element 4 is -6, expected -5 to -2 for a copy, or -1 for padding");
  refused({7, 0, -5}, "input 2: element 4 is -5, a copy of sequence 1 to itself");
  refused(copy_to_second(10), "input 1: element 4 is 10, expected 0 to 9");
  refused(copy_to_second(4), "row 4 copies 5 positions of sequence 0, expected at most 4");
}

TEST(DecoderRefusals, StepsThatFillNothingOrWereNotPlanned) {
  Error err;
  const ModelPtr model = decoder();
  weft_plan_config config = config_of(1, 8);
  config.step_kinds = WEFT_STEPS_FORWARD;
  expect_error(step(start(model, config), part(0, 0, 8), WEFT_FILL, nullptr, err), err, WEFT_ESTATE,
               {"the plan was made without WEFT_STEPS_FILL"});
  weft_model* made = nullptr;
  ASSERT_EQ(weft_model_preset(kModel, 0, 1, &made, nullptr, &err), WEFT_OK) << err.text;
  const ModelPtr preset(made);
  const TensorPtr tokens = zeros({1, kContext}, WEFT_I32);
  weft_tensor* const inputs[] = {tokens.get(), nullptr};
  expect_error(weft_run_step(start(preset, config_of(1, 1)).get(), inputs, 2, WEFT_FILL, nullptr, 0,
                             nullptr, &err),
               err, WEFT_ESTATE, {"no node of the model keeps state to fill"});
  config.step_kinds = WEFT_STEPS_FILL;
  config.micro_batch_size = 1;
  weft_plan* plan = nullptr;
  expect_error(weft_plan_new(preset.get(), &config, &plan, &err), err, WEFT_EINVAL,
               {"step_kinds: the model cannot make any", "because it has no state"});
}

TEST(DecoderRefusals, ReplicasAndModelsWithoutTokens) {
  Error err;
  weft_model* out = nullptr;
  expect_error(weft_model_decoder("mlp", nullptr, &out, nullptr, &err), err, WEFT_EINVAL,
               {"'mlp' does not take tokens"});
  weft_decoder_config config = defaults(weft_decoder_config_init);
  config.context = 25;
  expect_error(weft_model_decoder(kModel, &config, &out, nullptr, &err), err, WEFT_EINVAL,
               {"context is 25", "has a context of 24"});
  config = defaults(weft_decoder_config_init);
  config.sequences = 0;
  expect_error(weft_model_decoder(kModel, &config, &out, nullptr, &err), err, WEFT_EINVAL,
               {"sequences is 0, expected 1 to"});
  const ModelPtr model = decoder();
  weft_plan_config plan = config_of(2, 4);
  plan.ranks = 2;
  plan.schedule = "pipedream";
  plan.stage_replicas = "2";
  weft_plan* made = nullptr;
  expect_error(
      weft_plan_new(model.get(), &plan, &made, &err), err, WEFT_EINVAL,
      {"node 'h.0.attn' (cached_attention) keeps state", "stage_replicas is '2', expected none"});
}

}  // namespace
