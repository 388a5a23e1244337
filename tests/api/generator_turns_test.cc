// A generator whose steps have fewer rows than there are sequences: each sequence advances.
#include <algorithm>
#include <map>

#include "api/generators.h"

namespace {

// Sequences that are more than the rows of a replica.
TEST(GeneratorTurns, SequencesGetRowsInTurn) {
  for (const uint32_t kinds : {uint32_t{WEFT_STEPS_ALL}, uint32_t{WEFT_STEPS_FORWARD}})
    for (const uint32_t data : {1u, 2u}) {
      const RunPtr run = new_run(5, 1, 0, 2, 0, data, kinds, data);
      const GeneratorPtr generator = new_generator(run);
      std::map<uint64_t, size_t> made;
      for (uint32_t i = 0; i < 5 * data; ++i)
        made[add(generator, text(static_cast<int32_t>(i), 1), config_of(i))] = 0;
      weft_token token;
      for (uint32_t i = 0; i < 30 * data && poll(generator, token); ++i) {
        ++made[token.sequence];
        size_t least = made[token.sequence], most = least;
        for (const auto& [sequence, tokens] : made) {
          least = std::min(least, tokens);
          most = std::max(most, tokens);
        }
        ASSERT_LE(most, least + 2) << i;
      }
    }
}

// Other sequences fill the step. A long one advances, and so does a sequence beside which short
// ones follow each other.
TEST(GeneratorTurns, ASequenceAdvancesBesideOthersThatFillTheSteps) {
  for (const uint32_t kinds : {uint32_t{WEFT_STEPS_ALL}, uint32_t{WEFT_STEPS_FORWARD}})
    for (const size_t length : {size_t{1}, size_t{4}}) {
      const RunPtr run = new_run(2, 1, 0, 1, 0, 1, kinds);
      const GeneratorPtr generator = new_generator(run);
      weft_sequence_config config = config_of(0);
      const uint64_t first = add(generator, text(0, 1), config);
      weft_token token;
      ASSERT_TRUE(poll(generator, token));
      config.limit = 1;
      uint64_t others = 0, made = 0;
      for (add(generator, text(1, length), config); made < 6 && poll(generator, token);) {
        if (token.sequence == first)
          ++made;
        else
          add(generator, text(1 + static_cast<int32_t>(++others), length), config);
      }
      EXPECT_EQ(made, 6u);
      EXPECT_GE(others, length == 1 ? 5u : 1u);
    }
}

}  // namespace
