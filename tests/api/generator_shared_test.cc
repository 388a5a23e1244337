// Sequences that begin with the same tokens: a generator computes these once, and the tokens that
// it adds are those of each sequence without others.
#include <algorithm>
#include <map>
#include <utility>

#include "api/generators.h"

namespace {

// Texts of 14 to 18 tokens, of which 0, 6, 12 or more are the same at the start.
Tokens branch(int32_t number) {
  const int32_t parts[] = {number % 2, number / 2 % 3, number / 6 % 2};
  Tokens out;
  for (const int32_t part : parts) {
    const Tokens more = text(3 * static_cast<int32_t>(out.size()) + part, 6);
    out.insert(out.end(), more.begin(), more.end());
  }
  out.resize(out.size() - static_cast<size_t>(number) % 5);
  return out;
}

weft_sequence_config limited(int32_t number) {
  weft_sequence_config out = config_of(static_cast<uint64_t>(number));
  out.limit = 1 + static_cast<uint64_t>(number) % 3;
  return out;
}

class SharedBeginnings : public testing::TestWithParam<Drive> {};

// Every fifth sequence is removed when another one has its first token.
TEST_P(SharedBeginnings, DoNotAffectTokens) {
  const Drive& d = GetParam();
  const RunPtr run = new_run(d);
  const GeneratorPtr generator = new_generator(run);
  constexpr int32_t kAll = 36;
  std::map<uint64_t, int32_t> number;
  std::map<int32_t, Tokens> made;
  int32_t next = 0, removed = 0;
  uint64_t leaves = 0;
  const auto join = [&] {
    const uint64_t id = add(generator, branch(next), limited(next));
    number[id] = next;
    if (next % 5 == 0) leaves = id;
    ++next;
  };
  for (uint32_t i = 0; i < d.sequences * d.data; ++i) join();
  for (weft_token token; poll(generator, token);) {
    made[number.at(token.sequence)].push_back(token.token);
    if (token.end && next < kAll) join();
    if (token.sequence == leaves) leaves = 0;
    if (token.index > 0 || leaves == 0 || next == kAll) continue;
    Error err;
    ASSERT_EQ(weft_generator_remove(generator.get(), std::exchange(leaves, 0), &err), WEFT_OK)
        << err.text;
    ++removed;
    join();
  }
  EXPECT_EQ(next, kAll);
  EXPECT_GE(removed, 1);
  EXPECT_EQ(made.size(), static_cast<size_t>(kAll - removed));
  for (const auto& [n, tokens] : made) EXPECT_EQ(tokens, one(branch(n), limited(n), d.bf16)) << n;
}

std::string drive_name(const testing::TestParamInfo<Drive>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(
    Drives, SharedBeginnings,
    testing::Values(Drive{"Inline", 1, 0, 16, 2, 1, 4}, Drive{"Threads", 2, 1, 8, 1, 2, 5},
                    Drive{"Team", 3, 2, 3, 0, 3, 3}, Drive{"FewRows", 1, 0, 2, 0, 1, 6},
                    Drive{"OneRow", 1, 0, 1, 0, 1, 4, WEFT_STEPS_FORWARD},
                    Drive{"Replicas", 1, 1, 4, 2, 2, 3, WEFT_STEPS_ALL, 2},
                    Drive{"ReplicasOfStages", 2, 1, 4, 1, 6, 3, WEFT_STEPS_ALL, 3},
                    Drive{"WithLogits", 2, 1, 4, 2, 3, 4, WEFT_STEPS_FORWARD},
                    Drive{"ThreadsRounds", 2, 1, 4, 2, 8, 6},
                    Drive{"TeamRounds", 3, 1, 8, 1, 12, 5},
                    Drive{"Bf16", 1, 0, 8, 2, 1, 4, WEFT_STEPS_ALL, 1, true},
                    Drive{"Bf16Stages", 2, 1, 8, 2, 4, 4, WEFT_STEPS_ALL, 1, true}),
    drive_name);

weft_sequence_config one_token() {
  weft_sequence_config out = config_of(3);
  out.limit = 1;
  return out;
}

// A run each of whose steps has one row, and is one job.
class Rows {
 public:
  explicit Rows(int64_t sequences)
      : run_(new_run(sequences, 1, 0, 1, 0, 1, WEFT_STEPS_FORWARD)),
        generator_(new_generator(run_)) {
    weft_token token;
    add({40});
    more_ = jobs_of(generator_, token) - 1;
  }

  uint64_t add(const Tokens& tokens, const weft_sequence_config& config = one_token()) const {
    return ::add(generator_, tokens, config);
  }
  void remove(uint64_t sequence) const {
    Error err;
    EXPECT_EQ(weft_generator_remove(generator_.get(), sequence, &err), WEFT_OK) << err.text;
  }
  // Rows until the next token.
  size_t next(weft_token& token) const { return jobs_of(generator_, token) - more_; }
  // Rows that make no token.
  void compute(size_t rows) const {
    Error err;
    weft_token token = sized<weft_token>();
    for (size_t job = 0; job < rows; ++job)
      EXPECT_EQ(weft_generator_poll(generator_.get(), &token, 0, &err), 0) << err.text;
  }

 private:
  const RunPtr run_;
  const GeneratorPtr generator_;
  size_t more_ = 0;  // polls for a token than rows
};

constexpr size_t kPrompt = 17;

// A row for each token of the prompt, then a copy and the last token for each other sequence.
TEST(SharedBeginning, IsComputedOnce) {
  const Tokens prompt = text(3, kPrompt), expected = one(prompt, one_token());
  const Rows rows(4);
  for (int i = 0; i < 4; ++i) rows.add(prompt);
  weft_token token;
  size_t all = 0;
  for (int i = 0; i < 4; ++i) {
    all += rows.next(token);
    EXPECT_EQ(token.token, expected[0]);
  }
  EXPECT_EQ(all, kPrompt + 3 * 2);
}

TEST(SharedBeginning, IsCopiedInTheStepThatComputesIt) {
  const RunPtr run = new_run(4, 1, 0, kPrompt + 3 * 2, 0, 1, WEFT_STEPS_FORWARD);
  const GeneratorPtr generator = new_generator(run);
  weft_token token;
  add(generator, {40}, one_token());
  const size_t step = jobs_of(generator, token);
  for (int i = 0; i < 4; ++i) add(generator, text(3, kPrompt), one_token());
  EXPECT_EQ(jobs_of(generator, token), step);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(jobs_of(generator, token), 1u);
}

TEST(SharedBeginning, OfASequenceThatRunsIsCopied) {
  Tokens prompt = text(3, kPrompt);
  const Rows rows(2);
  weft_token token;
  const uint64_t first = rows.add(prompt, config_of(0));
  EXPECT_EQ(rows.next(token), kPrompt);
  prompt[12] = (prompt[12] + 1) % 41;
  const uint64_t second = rows.add(prompt);
  size_t all = 0;
  do {
    all += rows.next(token) - (token.sequence == first);
  } while (token.sequence != second);
  EXPECT_EQ(all, 1 + kPrompt - 12);
  EXPECT_EQ(token.token, one(prompt, one_token())[0]);
}

// A copy takes a row, too.
TEST(SharedBeginning, OfFewTokensIsComputedAgain) {
  for (const size_t common : {size_t{3}, size_t{4}}) {
    const Rows rows(2);
    weft_token token;
    const Tokens prompt = text(3, kPrompt);
    Tokens other = text(4, kPrompt);
    std::copy_n(prompt.begin(), common, other.begin());
    rows.add(prompt);
    rows.add(other);
    const size_t all = rows.next(token) + rows.next(token);
    EXPECT_EQ(all, 2 * kPrompt - (common == 3 ? 0 : 3)) << common;
  }
}

// Two sequences wait for the first one, which leaves after 8 of its tokens. These are copied from
// its place, and the third sequence waits for the second one.
TEST(SharedBeginning, IsComputedByTheNextSequenceIfTheFirstOneLeaves) {
  const Tokens prompt = text(3, kPrompt), expected = one(prompt, one_token());
  const Rows rows(3);
  const uint64_t first = rows.add(prompt);
  for (int i = 0; i < 2; ++i) rows.add(prompt);
  rows.compute(8);
  rows.remove(first);
  weft_token token;
  size_t all = 0;
  for (int i = 0; i < 2; ++i) {
    all += rows.next(token);
    EXPECT_EQ(token.token, expected[0]);
  }
  EXPECT_EQ(all, 1 + kPrompt - 8 + 2);
}

// The place of the sequence that leaves has other tokens when its row is due.
TEST(SharedBeginning, OfAPlaceThatIsTakenIsComputedAgain) {
  const Tokens prompt = text(3, kPrompt), other = text(5, kPrompt);
  const Rows rows(2);
  const uint64_t first = rows.add(prompt), second = rows.add(prompt);
  rows.compute(8);
  rows.remove(first);
  const uint64_t third = rows.add(other);
  weft_token token;
  size_t all = 0;
  for (int i = 0; i < 2; ++i) {
    all += rows.next(token);
    EXPECT_TRUE(token.sequence == second || token.sequence == third);
    EXPECT_EQ(token.token, one(token.sequence == second ? prompt : other, one_token())[0]);
  }
  EXPECT_EQ(all, 2 * kPrompt);
}

}  // namespace
