// Chooses the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft::cli {

struct Sampling {
  double temperature = 1;  // 0: always the most likely token
  uint32_t top_k = 0;      // 0: all tokens
  uint64_t seed = 0;
};

// The random number depends only on (seed, prompt, position), so the choice does not depend on the
// ranks and threads. `order` is working memory.
int32_t sample(const Sampling& sampling, std::span<const float> logits, uint64_t prompt,
               uint64_t position, std::vector<int32_t>& order);

}  // namespace weft::cli
