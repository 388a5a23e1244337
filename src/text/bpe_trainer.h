// Trains a byte-level BPE: the most frequent pair of tokens becomes a token, again and again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace weft {

struct TrainedBpe {
  std::vector<std::string> tokens;                          // by id, in the alphabet of bytes
  std::vector<std::pair<std::string, std::string>> merges;  // in order
};

// The special tokens have the first ids, then come the 256 bytes. A pair that occurs less than
// `min_count` times is not merged. The result is that of the `tokenizers` library.
Result<TrainedBpe> train_bpe(std::string_view text, uint32_t vocabulary, uint32_t min_count,
                             const std::vector<std::string>& specials);

}  // namespace weft
