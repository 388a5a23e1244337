// Programs that read and change the logits from which a generator chooses.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <new>

#include "api/generators.h"

namespace {

// What the callback of a sequence has seen, and does.
struct Chooser {
  int32_t multiple = 1;  // only multiples of it may be chosen
  uint64_t fails_at = UINT64_MAX, excludes_all_at = UINT64_MAX;  // index of a token
  weft_generator* generator = nullptr;                           // which it tries to use
  std::vector<Tokens> tokens;
  std::vector<uint64_t> indices;
  std::vector<std::vector<float>> logits;
};

int32_t choose(const weft_choice* choice) {
  auto& own = *static_cast<Chooser*>(choice->payload);
  EXPECT_EQ(choice->size, sizeof(weft_choice));
  own.tokens.emplace_back(choice->tokens, choice->tokens + choice->n_tokens);
  own.indices.push_back(choice->index);
  own.logits.emplace_back(choice->logits, choice->logits + choice->n_logits);
  for (size_t i = 0; i < choice->n_logits; ++i)
    if (static_cast<int32_t>(i) % own.multiple != 0 || choice->index == own.excludes_all_at)
      choice->logits[i] = -INFINITY;
  if (own.generator) {
    Error err;
    expect_error(weft_generator_remove(own.generator, choice->sequence, &err), err, WEFT_ESTATE,
                 {"choose of a sequence uses the generator"});
    weft_token token = sized<weft_token>();
    EXPECT_EQ(weft_generator_poll(own.generator, &token, 0, &err), WEFT_ESTATE);
  }
  if (choice->index != own.fails_at) return 0;
  std::snprintf(choice->err->text, sizeof choice->err->text, "no rule for it");
  return 7;
}

weft_sequence_config config_with(Chooser& chooser, double temperature = 1) {
  weft_sequence_config out = config_of(0, temperature);
  out.limit = 5;
  out.choose = choose;
  out.payload = &chooser;
  return out;
}

// The tokens of each sequence, by its identifier from 1.
std::vector<Tokens> made_by(const GeneratorPtr& generator, size_t sequences) {
  std::vector<Tokens> out(sequences);
  for (weft_token token; poll(generator, token);) out[token.sequence - 1].push_back(token.token);
  return out;
}

TEST(Choice, HasTheSequenceAndTheLogitsFromWhichTheTokenIsChosen) {
  for (const uint32_t threads : {0u, 1u}) {
    const RunPtr run = new_run(3, 2, threads, 4, 2, 8);
    const GeneratorPtr generator = new_generator(run);
    Chooser chooser;
    chooser.generator = generator.get();
    weft_sequence_config config = config_with(chooser, 0);
    config.first = 10;
    add(generator, text(0, 4), config);
    add(generator, text(1, 2), config_of(1));  // another sequence, without a callback
    const Tokens made = made_by(generator, 2)[0];
    ASSERT_EQ(made.size(), 5u);
    Tokens expected = text(0, 4);
    for (size_t i = 0; i < made.size(); ++i) {
      EXPECT_EQ(chooser.tokens[i], expected);
      EXPECT_EQ(chooser.indices[i], 10 + i);
      const std::vector<float>& logits = chooser.logits[i];
      ASSERT_EQ(logits.size(), 41u);
      EXPECT_EQ(made[i], std::max_element(logits.begin(), logits.end()) - logits.begin());
      expected.push_back(made[i]);
    }
  }
}

TEST(Choice, ExcludesTokensOfItsSequenceOnly) {
  const RunPtr run = new_run(3);
  const auto alone = [&](const Tokens& begin, const weft_sequence_config& config) {
    const GeneratorPtr generator = new_generator(run);
    add(generator, begin, config);
    return made_by(generator, 1)[0];
  };
  const Tokens other = alone(text(1, 2), config_of(1));
  weft_sequence_config five = config_of(0);
  five.limit = 5;
  const Tokens with_none = alone(text(0, 4), five);
  const GeneratorPtr generator = new_generator(run);
  Chooser sevens, all;
  sevens.multiple = 7;
  add(generator, text(0, 4), config_with(sevens));
  add(generator, text(1, 2), config_of(1));
  add(generator, text(0, 4), config_with(all));
  const std::vector<Tokens> made = made_by(generator, 3);
  ASSERT_EQ(made[0].size(), 5u);
  for (const int32_t token : made[0]) EXPECT_EQ(token % 7, 0);
  EXPECT_EQ(made[1], other);
  EXPECT_EQ(sevens.logits[0], all.logits[0]) << "those of the model, before the change";
  EXPECT_EQ(made[2], with_none) << "a callback that changes nothing";
}

TEST(Choice, AFailureEndsItsSequenceAndNoOther) {
  const RunPtr run = new_run(2);
  const GeneratorPtr generator = new_generator(run);
  Chooser fails, none;
  fails.fails_at = 2;
  none.excludes_all_at = 1;
  const uint64_t failing = add(generator, text(0, 4), config_with(fails));
  const uint64_t empty = add(generator, text(1, 2), config_with(none));
  Error err;
  std::vector<std::pair<uint64_t, weft_status>> ended;
  size_t tokens = 0;
  weft_token token = sized<weft_token>();
  for (weft_status got = 1; got != 0;) {
    got = weft_generator_poll(generator.get(), &token, -1, &err);
    if (got == 1) ++tokens;
    if (got >= 0) continue;
    ended.emplace_back(token.sequence, got);
    const std::string name = "sequence " + std::to_string(token.sequence);
    if (got == WEFT_EUSER)
      EXPECT_EQ(std::string(err.text), name + ": choose returned 7: no rule for it");
    else
      EXPECT_EQ(std::string(err.text), name + ": choose left no token, or a logit is NaN");
  }
  EXPECT_EQ(ended, (std::vector<std::pair<uint64_t, weft_status>>{{empty, WEFT_EDATA},
                                                                  {failing, WEFT_EUSER}}));
  EXPECT_EQ(tokens, 3u);
  Chooser works;
  add(generator, text(0, 4), config_with(works));
  size_t more = 0;
  while (poll(generator, token)) ++more;
  EXPECT_EQ(more, 5u) << "the generator goes on";
}

// A callback in C++ that throws does not leave the generator in the state of a callback.
TEST(Choice, AnExceptionIsAFailure) {
  const RunPtr run = new_run(1);
  const GeneratorPtr generator = new_generator(run);
  weft_sequence_config config = config_of(0);
  config.choose = [](const weft_choice*) -> int32_t { throw std::bad_alloc(); };
  const uint64_t sequence = add(generator, text(0, 4), config);
  Error err;
  weft_token token = sized<weft_token>();
  expect_error(weft_generator_poll(generator.get(), &token, -1, &err), err, WEFT_EUSER,
               {"sequence 1: choose threw: "});
  EXPECT_EQ(token.sequence, sequence);
  config.choose = nullptr;
  config.limit = 2;
  add(generator, text(0, 4), config);
  EXPECT_EQ(made_by(generator, 2)[1].size(), 2u);
}

}  // namespace
