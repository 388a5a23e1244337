// Chooses the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace weft::api {

struct Sampling {
  double temperature = 1;         // 0: always the most likely token
  uint32_t top_k = 0;             // 0: all tokens
  double top_p = 1;               // the most likely tokens that together have this probability
  double min_p = 0;               // tokens of at least this part of the probability of the first
  double repetition_penalty = 1;  // for tokens of the text
  uint64_t seed = 0;
};

// Names the field of weft_sequence_config that is out of range.
Status check_sampling(const Sampling& sampling);

// Logits of tokens that occur in the text: positive ones are divided by the penalty, negative ones
// are multiplied by it (Keskar et al. 2019).
void penalize(std::span<float> logits, std::span<const int32_t> text, double penalty);

// Whether sample() can choose a token: no logit is NaN, and the largest one is finite.
bool can_sample(std::span<const float> logits);

// The working memory of sample().
struct Candidates {
  struct Token {
    int32_t id;
    double weight;  // of the choice; that of the most likely token is 1
  };
  std::vector<Token> tokens;
};

// The random number depends only on (seed, prompt, position), so the choice does not depend on the
// ranks and threads. The filters apply after the temperature: top-k, then top-p, then min-p.
int32_t sample(const Sampling& sampling, std::span<const float> logits, uint64_t prompt,
               uint64_t position, Candidates& work);

}  // namespace weft::api
