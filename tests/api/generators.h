// Generators of a small model with random weights.
#pragma once

#include "api/api.h"

inline constexpr int64_t kContext = 20;
inline constexpr const char* kModel = "gpt-nano:blocks=2,width=32,heads=4,context=20,vocabulary=41";

struct FreeGenerator {
  void operator()(weft_generator* generator) const { weft_generator_free(generator); }
};
using GeneratorPtr = std::unique_ptr<weft_generator, FreeGenerator>;
using Tokens = std::vector<int32_t>;

inline RunPtr new_run(int64_t sequences, uint32_t ranks = 1, uint32_t threads = 0,
                      uint32_t size = 16, uint32_t short_size = 2, uint32_t micro_batches = 0,
                      uint32_t kinds = WEFT_STEPS_ALL, uint32_t data = 1, bool bf16 = false) {
  weft_decoder_config config = defaults(weft_decoder_config_init);
  config.sequences = sequences;
  if (bf16) config.flags = WEFT_NODE_BF16_CACHE;
  weft_model* model = nullptr;
  Error err;
  EXPECT_EQ(weft_model_decoder(kModel, &config, &model, nullptr, &err), WEFT_OK) << err.text;
  weft_plan_config plan = plan_config(ranks * data, micro_batches ? micro_batches : ranks, size);
  plan.short_size = short_size;
  plan.step_kinds = kinds;
  const weft_axis axes[] = {{"data", data, 0}, {"stage", ranks, 0}};
  if (data > 1) plan.axes = axes;
  if (data > 1) plan.n_axes = 2;
  if (bf16) plan.precision = "bf16";
  plan.seed = 9;
  return start(ModelPtr(model), plan, threads);
}

// How a run computes.
struct Drive {
  const char* name;
  uint32_t ranks, threads, size, short_size, micro_batches, sequences;
  uint32_t kinds = WEFT_STEPS_ALL;
  uint32_t data = 1;
  bool bf16 = false;
};

inline RunPtr new_run(const Drive& d) {
  return new_run(d.sequences, d.ranks, d.threads, d.size, d.short_size, d.micro_batches, d.kinds,
                 d.data, d.bf16);
}

inline GeneratorPtr new_generator(const RunPtr& run) {
  weft_generator* out = nullptr;
  Error err;
  EXPECT_EQ(weft_generator_new(run.get(), &out, &err), WEFT_OK) << err.text;
  return GeneratorPtr(out);
}

inline weft_sequence_config config_of(uint64_t number, double temperature = 1) {
  weft_sequence_config out = defaults(weft_sequence_config_init);
  out.number = number;
  out.temperature = temperature;
  return out;
}

inline uint64_t add(const GeneratorPtr& generator, const Tokens& tokens,
                    const weft_sequence_config& config) {
  uint64_t id = 0;
  Error err;
  EXPECT_EQ(weft_generator_add(generator.get(), tokens.data(), tokens.size(), &config, &id, &err),
            WEFT_OK)
      << err.text;
  return id;
}

inline bool poll(const GeneratorPtr& generator, weft_token& token) {
  Error err;
  token = sized<weft_token>();
  const weft_status got = weft_generator_poll(generator.get(), &token, -1, &err);
  EXPECT_GE(got, 0) << err.text;
  return got == 1;
}

inline Tokens text(int32_t number, size_t length) {
  Tokens out;
  for (size_t i = 0; i < length; ++i)
    out.push_back((number * 11 + static_cast<int32_t>(i) * 5) % 41);
  return out;
}

// The tokens that a generator adds to one text.
inline Tokens one(const Tokens& begin, const weft_sequence_config& config, bool bf16 = false) {
  const RunPtr run = new_run(1, 1, 0, 16, 2, 0, WEFT_STEPS_FORWARD, 1, bf16);
  const GeneratorPtr generator = new_generator(run);
  add(generator, begin, config);
  Tokens out;
  for (weft_token token; poll(generator, token);) {
    EXPECT_EQ(token.index, config.first + out.size());
    out.push_back(token.token);
  }
  return out;
}

// Jobs of a run without threads until the next token.
inline size_t jobs_of(const GeneratorPtr& generator, weft_token& token) {
  Error err;
  token = sized<weft_token>();
  size_t polls = 1;
  weft_status got = 0;
  for (; (got = weft_generator_poll(generator.get(), &token, 0, &err)) == 0; ++polls) {}
  EXPECT_EQ(got, 1) << err.text;
  return polls;
}
