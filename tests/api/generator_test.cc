// A generator: its tokens are those of single steps, whatever joins and leaves beside them.
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "api/generators.h"

namespace {

class Generators : public testing::TestWithParam<Drive> {};

TEST_P(Generators, TokensDoNotDependOnSequencesThatJoinAndLeave) {
  const Drive& d = GetParam();
  const RunPtr run = new_run(d);
  const GeneratorPtr generator = new_generator(run);
  std::map<uint64_t, int32_t> number;
  std::map<int32_t, Tokens> made;
  int32_t next = 0;
  const auto join = [&] {
    weft_sequence_config config = config_of(static_cast<uint64_t>(next));
    config.limit = 3 + static_cast<uint64_t>(next) % 4;
    number[add(generator, text(next, 1 + static_cast<size_t>(next) * 3 % 14), config)] = next;
    ++next;
  };
  for (uint32_t i = 0; i + 1 < d.sequences * d.data; ++i) join();
  size_t count = 0;
  for (weft_token token; poll(generator, token); ++count) {
    made[number.at(token.sequence)].push_back(token.token);
    if (count == 2) join();
    if (token.end && next < 12) join();
  }
  EXPECT_EQ(next, 12);
  for (const auto& [n, tokens] : made) {
    weft_sequence_config config = config_of(static_cast<uint64_t>(n));
    config.limit = 3 + static_cast<uint64_t>(n) % 4;
    EXPECT_EQ(tokens, one(text(n, 1 + static_cast<size_t>(n) * 3 % 14), config)) << n;
  }
}

std::string drive_name(const testing::TestParamInfo<Drive>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(
    Drives, Generators,
    testing::Values(Drive{"Inline", 1, 0, 16, 2, 1, 3}, Drive{"Threads", 2, 1, 8, 1, 2, 3},
                    Drive{"Team", 3, 2, 3, 0, 3, 3},
                    Drive{"Replicas", 1, 1, 4, 2, 2, 2, WEFT_STEPS_ALL, 2},
                    Drive{"ReplicasOfStages", 2, 1, 4, 1, 6, 3, WEFT_STEPS_ALL, 3},
                    Drive{"WithLogits", 2, 1, 4, 2, 3, 3, WEFT_STEPS_FORWARD},
                    Drive{"InlineRounds", 2, 0, 4, 2, 9, 7},
                    Drive{"ThreadsRounds", 2, 1, 4, 2, 8, 6},
                    Drive{"TeamRounds", 3, 1, 8, 1, 12, 5}),
    drive_name);

// A step has rounds for the tokens that the limits allow. All sequences end in its first round, or
// the generator is freed then; the run goes on.
TEST(Generator, AStepEndsWhenNoSequenceIsLeft) {
  for (const uint32_t threads : {0u, 1u}) {
    const RunPtr run = new_run(4, 2, threads, 4, 2, 8);
    Tokens all;
    for (int32_t token = 0; token < 41; ++token) all.push_back(token);
    for (const bool stops : {true, false}) {
      const GeneratorPtr generator = new_generator(run);
      weft_sequence_config config = config_of(0);
      config.stops = all.data();
      config.n_stops = stops ? 41 : 0;
      for (int32_t i = 0; i < 4; ++i) add(generator, text(i, 1), config);
      weft_token token;
      size_t count = 0;
      while ((stops || count < 3) && poll(generator, token)) ++count;
      EXPECT_EQ(count, stops ? 4 : 3);
    }
  }
}

TEST(Generator, ARemovedSequenceHasNoMoreTokensAndFreesItsPlace) {
  const RunPtr run = new_run(2);
  const GeneratorPtr generator = new_generator(run);
  const uint64_t first = add(generator, text(0, 3), config_of(0)),
                 second = add(generator, text(1, 3), config_of(1));
  weft_token token;
  ASSERT_TRUE(poll(generator, token));
  Error err;
  uint64_t id = 0;
  const Tokens more = text(2, 4);
  expect_error(weft_generator_add(generator.get(), more.data(), 4, nullptr, &id, &err), err,
               WEFT_EAGAIN, {"the cache has places for 2 sequences"});
  EXPECT_EQ(weft_generator_remove(generator.get(), second, &err), WEFT_OK);
  expect_error(weft_generator_remove(generator.get(), second, &err), err, WEFT_ENOENT,
               {"the generator has no sequence 2"});
  const uint64_t third = add(generator, more, config_of(2));
  Tokens made;
  while (poll(generator, token)) {
    EXPECT_TRUE(token.sequence == first || token.sequence == third);
    if (token.sequence == third) made.push_back(token.token);
  }
  EXPECT_EQ(made, one(more, config_of(2)));
}

// Both have a token of the same step, with which they end. Only one of them has been polled.
TEST(Generator, ARemovedSequenceThatHasEndedHasNoMoreTokens) {
  const RunPtr run = new_run(2);
  const GeneratorPtr generator = new_generator(run);
  weft_sequence_config config = config_of(0);
  config.limit = 1;
  const uint64_t ids[] = {add(generator, text(0, 1), config), add(generator, text(1, 1), config)};
  weft_token token;
  ASSERT_TRUE(poll(generator, token));
  const uint64_t other = ids[0] + ids[1] - token.sequence;
  Error err;
  EXPECT_EQ(weft_generator_remove(generator.get(), token.sequence, &err), WEFT_ENOENT);
  EXPECT_EQ(weft_generator_remove(generator.get(), other, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_generator_remove(generator.get(), other, &err), WEFT_ENOENT);
  EXPECT_FALSE(poll(generator, token));
}

bool is_readable(const RunPtr& run, int timeout_ms) {
  pollfd descriptor = {.fd = weft_run_fd(run.get()), .events = POLLIN, .revents = 0};
  return ::poll(&descriptor, 1, timeout_ms) == 1;
}

// A host that waits for the descriptor first, and polls once whenever it is readable.
TEST(Generator, TheDescriptorIsReadableWhilePollHasSomethingToDo) {
  for (const uint32_t threads : {0u, 1u}) {
    const RunPtr run = new_run(3, 2, threads, 4, 2, 8);
    const GeneratorPtr generator = new_generator(run);
    EXPECT_FALSE(is_readable(run, 0));
    weft_sequence_config config = config_of(0);
    config.limit = 5;
    for (int32_t i = 0; i < 3; ++i) add(generator, text(i, 9), config);
    ASSERT_TRUE(is_readable(run, 0));
    for (int left = 3; left > 0;) {
      ASSERT_TRUE(is_readable(run, -1));
      weft_token token = sized<weft_token>();
      Error err;
      const weft_status got = weft_generator_poll(generator.get(), &token, 0, &err);
      ASSERT_GE(got, 0) << err.text;
      left -= got == 1 && token.end != 0;
    }
    EXPECT_EQ(weft_generator_remove(generator.get(), add(generator, {1}, config), nullptr),
              WEFT_OK);
    weft_token token;
    EXPECT_FALSE(poll(generator, token));
    EXPECT_FALSE(is_readable(run, 0));
  }
}

TEST(Generator, ASequenceEndsAtItsLimitAtAStopAndAtTheEndOfTheCache) {
  const auto last = [](weft_sequence_config config, size_t length) {
    const RunPtr run = new_run(1);
    const GeneratorPtr generator = new_generator(run);
    add(generator, text(5, length), config);
    weft_token token, out = {};
    while (poll(generator, token)) out = token;
    return std::pair(out.index + 1, static_cast<int>(out.end));
  };
  weft_sequence_config config = config_of(0, 0);
  EXPECT_EQ(last(config, 3), std::pair(uint64_t{kContext - 3 + 1}, int{WEFT_SEQUENCE_CONTEXT}));
  EXPECT_EQ(last(config, kContext), std::pair(uint64_t{1}, int{WEFT_SEQUENCE_CONTEXT}));
  const Tokens all = one(text(5, 3), config);
  config.limit = 4;
  EXPECT_EQ(last(config, 3), std::pair(uint64_t{4}, int{WEFT_SEQUENCE_LIMIT}));
  config.stops = &all[2];
  config.n_stops = 1;
  const auto at = std::find(all.begin(), all.end(), all[2]) - all.begin();
  EXPECT_EQ(last(config, 3), std::pair(static_cast<uint64_t>(at) + 1, int{WEFT_SEQUENCE_STOP}));
}

TEST(Generator, ASequenceContinuesAnother) {
  const Tokens begin = text(3, 4), all = one(begin, config_of(7));
  Tokens longer = begin;
  longer.insert(longer.end(), all.begin(), all.begin() + 5);
  weft_sequence_config config = config_of(7);
  config.first = 5;
  EXPECT_EQ(one(longer, config), Tokens(all.begin() + 5, all.end()));
}

TEST(Generator, ASequenceThatBeginsLikeAnEarlierOneUsesItsCache) {
  const RunPtr run = new_run(2, 1, 0, 4, 1);
  const GeneratorPtr generator = new_generator(run);
  weft_sequence_config config = config_of(3);
  config.limit = 1;
  const Tokens begin = text(3, 17);
  Tokens other = begin;
  other.back() = (other.back() + 1) % 41;
  const Tokens expected = one(begin, config), expected_other = one(other, config);
  weft_token token;
  add(generator, begin, config);
  const size_t fresh = jobs_of(generator, token);
  EXPECT_EQ(token.token, expected[0]);
  for (const bool same : {true, false}) {
    add(generator, same ? begin : other, config);
    EXPECT_LT(jobs_of(generator, token), fresh);
    EXPECT_EQ(token.token, same ? expected[0] : expected_other[0]);
  }
  // Other weights make other keys and values.
  EXPECT_FALSE(poll(generator, token));
  Error err;
  TensorPtr weight = zeros({41, 32});
  ASSERT_EQ(weft_run_read(run.get(), "wte.weight", WEFT_VALUE, weight.get(), &err), WEFT_OK)
      << err.text;
  ASSERT_EQ(weft_run_write(run.get(), "wte.weight", WEFT_VALUE, weight.get(), &err), WEFT_OK)
      << err.text;
  add(generator, begin, config);
  EXPECT_EQ(jobs_of(generator, token), fresh);
  EXPECT_EQ(token.token, expected[0]);
}

void scale(weft_run* run, const char* name, std::initializer_list<int64_t> dims, float factor) {
  const TensorPtr weight = zeros(dims);
  Error err;
  ASSERT_EQ(weft_run_read(run, name, WEFT_VALUE, weight.get(), &err), WEFT_OK) << err.text;
  const int64_t n = elements(weft_tensor_desc(weight.get()));
  std::for_each_n(floats(weight), n, [factor](float& x) { x *= factor; });
  ASSERT_EQ(weft_run_write(run, name, WEFT_VALUE, weight.get(), &err), WEFT_OK) << err.text;
}

// The cache has the beginning of the sequence with the weights before.
TEST(Generator, TokensAreThoseOfTheWeightsThatAreWritten) {
  const RunPtr run = new_run(2, 1, 0, 4, 1);
  GeneratorPtr generator = new_generator(run);
  weft_sequence_config config = config_of(0, 0);
  config.limit = 6;
  const auto rest = [&generator] {
    Tokens out;
    for (weft_token token; poll(generator, token);) out.push_back(token.token);
    return out;
  };
  const Tokens begin = text(3, 17);
  add(generator, begin, config);
  const Tokens before = rest();
  add(generator, begin, config);
  scale(run.get(), "h.0.attn.c_attn.weight", {32, 96}, -50);
  const Tokens made = rest();
  EXPECT_NE(made, before);
  generator.reset();  // a run has one
  generator = new_generator(run);
  add(generator, begin, config);
  EXPECT_EQ(made, rest());
}

TEST(Generator, ReturnsWhenTheTimeHasPassedAndCanBeFreedInAStep) {
  const RunPtr run = new_run(1, 2, 1);
  Error err;
  {
    const GeneratorPtr generator = new_generator(run);
    weft_token token = sized<weft_token>();
    EXPECT_EQ(weft_generator_poll(generator.get(), &token, -1, &err), 0);  // no sequence
    add(generator, text(0, 15), config_of(0));
    EXPECT_GE(weft_generator_poll(generator.get(), &token, 0, &err), 0);
  }
  const GeneratorPtr generator = new_generator(run);
  add(generator, text(1, 5), config_of(1));
  Tokens made;
  for (weft_token token; poll(generator, token);) made.push_back(token.token);
  EXPECT_EQ(made, one(text(1, 5), config_of(1)));
}

std::string not_finite(uint64_t id) {
  return "a logit of sequence " + std::to_string(id) + " is not finite";
}

// Also in a step.
TEST(Generator, MayBeFreedAfterItsRun) {
  for (const uint32_t threads : {0u, 1u})
    for (const bool in_step : {false, true}) {
      RunPtr run = new_run(2, 1, threads);
      const GeneratorPtr generator = new_generator(run);
      const uint64_t id = add(generator, text(1, 5), config_of(1));
      weft_token token = sized<weft_token>();
      Error err;
      if (in_step) {
        EXPECT_GE(weft_generator_poll(generator.get(), &token, 0, &err), 0) << err.text;
      }
      run.reset();
      expect_error(weft_generator_poll(generator.get(), &token, -1, &err), err, WEFT_ESTATE,
                   {"the run of the generator has ended"});
      const Tokens tokens = text(2, 3);
      uint64_t other = 0;
      expect_error(
          weft_generator_add(generator.get(), tokens.data(), tokens.size(), nullptr, &other, &err),
          err, WEFT_ESTATE, {"the run of the generator has ended"});
      expect_error(weft_generator_remove(generator.get(), id, &err), err, WEFT_ESTATE,
                   {"the run of the generator has ended"});
    }
}

TEST(Generator, AModelThatIsNotFiniteHasNoTokens) {
  const RunPtr run = new_run(2);
  const TensorPtr gamma = zeros({32});
  floats(gamma)[3] = NAN;
  Error err;
  ASSERT_EQ(weft_run_write(run.get(), "ln_f.weight", WEFT_VALUE, gamma.get(), &err), WEFT_OK)
      << err.text;
  const GeneratorPtr generator = new_generator(run);
  weft_token token = sized<weft_token>();
  for (uint64_t round = 0; round < 2; ++round) {
    add(generator, {1, 2}, config_of(0));
    add(generator, {3, 4, 5}, config_of(1));
    for (uint64_t id = 2 * round + 1; id <= 2 * round + 2; ++id) {
      expect_error(weft_generator_poll(generator.get(), &token, -1, &err), err, WEFT_EDATA,
                   {not_finite(id).c_str(), "a weight or a value"});
      EXPECT_EQ(token.sequence, id);
    }
    EXPECT_EQ(weft_generator_poll(generator.get(), &token, -1, &err), 0);  // none is left
  }
  add(generator, {1, 2}, config_of(0));
  const uint64_t removed = add(generator, {3, 4}, config_of(1));
  EXPECT_EQ(weft_generator_poll(generator.get(), &token, -1, &err), WEFT_EDATA);
  EXPECT_EQ(weft_generator_remove(generator.get(), removed, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_generator_poll(generator.get(), &token, -1, &err), 0);
}

// Only one sequence is long enough for the position that is not finite.
TEST(Generator, ASequenceThatIsNotFiniteDoesNotEndOthers) {
  for (const uint32_t ranks : {1u, 2u})
    for (const int32_t bad : {0, 1, 2}) {
      const RunPtr run = new_run(4, ranks);
      const TensorPtr positions = zeros({kContext, 32});
      Error err;
      ASSERT_EQ(weft_run_read(run.get(), "wpe.weight", WEFT_VALUE, positions.get(), &err), WEFT_OK)
          << err.text;
      floats(positions)[12 * 32] = NAN;
      ASSERT_EQ(weft_run_write(run.get(), "wpe.weight", WEFT_VALUE, positions.get(), &err), WEFT_OK)
          << err.text;
      const GeneratorPtr generator = new_generator(run);
      std::vector<Tokens> expected, made(3);
      for (int32_t i = 0; i < 3; ++i) {
        weft_sequence_config config = config_of(static_cast<uint64_t>(i));
        config.limit = 4;
        const Tokens begin = text(i, i == bad ? 10 : 3);
        add(generator, begin, config);
        expected.push_back(one(begin, config));
      }
      expected[static_cast<size_t>(bad)].resize(3);  // the last one has positions 0 to 11
      weft_token token = sized<weft_token>();
      int failures = 0;
      for (weft_status got = 1; got; token = sized<weft_token>()) {
        got = weft_generator_poll(generator.get(), &token, -1, &err);
        if (got == 1) made[token.sequence - 1].push_back(token.token);
        if (got >= 0) continue;
        expect_error(got, err, WEFT_EDATA, {not_finite(static_cast<uint64_t>(bad) + 1).c_str()});
        ASSERT_LT(++failures, 2);
      }
      EXPECT_EQ(failures, 1);
      EXPECT_EQ(made, expected);
    }
}

TEST(Generator, CallsForTheTimeBetweenStepsNameIt) {
  const RunPtr run = new_run(1);
  const GeneratorPtr generator = new_generator(run);
  add(generator, text(0, 15), config_of(0));
  weft_token token;
  ASSERT_TRUE(poll(generator, token));  // of a step whose end has not been polled
  Error err;
  char hash[33];
  weft_save_config save = defaults(weft_save_config_init);
  save.directory = "/nowhere";
  const char* const busy = "a generator uses the run";
  expect_error(weft_run_digest(run.get(), hash, &err), err, WEFT_ESTATE, {busy});
  expect_error(weft_run_save(run.get(), &save, &err), err, WEFT_ESTATE, {busy});
}

TEST(Generator, RefusesByName) {
  Error err;
  weft_generator* out = nullptr;
  const RunPtr other = start(small_model(), plan_config());
  expect_error(weft_generator_new(other.get(), &out, &err), err, WEFT_EINVAL,
               {"is no decoder", "weft_model_decoder"});
  const RunPtr run = new_run(1);
  const GeneratorPtr generator = new_generator(run);
  uint64_t id = 0;
  const char* const busy = "a generator uses the run";
  expect_error(weft_generator_new(run.get(), &out, &err), err, WEFT_ESTATE, {busy});
  expect_error(weft_run_submit(run.get(), nullptr, 0, WEFT_FORWARD, 0, &err), err, WEFT_ESTATE,
               {busy});
  weft_event event = sized<weft_event>();
  expect_error(weft_run_poll(run.get(), &event, 0, &err), err, WEFT_ESTATE, {busy});
  const auto refused = [&](const Tokens& tokens, const weft_sequence_config& config,
                           const char* says) {
    expect_error(
        weft_generator_add(generator.get(), tokens.data(), tokens.size(), &config, &id, &err), err,
        WEFT_EINVAL, {says});
  };
  refused(text(0, kContext + 1), config_of(0), "the sequence has 21 tokens, expected 1 to 20");
  refused({}, config_of(0), "the sequence has 0 tokens");
  refused({3, 41}, config_of(0), "token 1 is 41, expected 0 to 40");
  refused({1}, config_of(0, -1), "weft_sequence_config.temperature is -1");
  weft_sequence_config config = config_of(0);
  config.top_p = 1.5;
  refused({1}, config, "weft_sequence_config.top_p is 1.5, expected a number from 0 to 1");
  config = config_of(0);
  config.repetition_penalty = 0;
  refused({1}, config, "weft_sequence_config.repetition_penalty is 0");
}

}  // namespace
