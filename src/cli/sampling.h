// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft::cli {

struct Sampling {
  double temperature = 1;  // 0: the most likely token always
  uint32_t top_k = 0;      // 0: all tokens
  uint64_t seed = 0;
};

// The random number is a function of (seed, prompt, position) alone, so the choice does not depend on how a batch was computed.
// `order` is scratch.
int32_t sample(const Sampling& sampling, std::span<const float> logits, uint64_t prompt, uint64_t position, std::vector<int32_t>& order);

}  // namespace weft::cli
