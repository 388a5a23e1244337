// A sequence of a generator.
#pragma once

#include <memory>
#include <vector>

#include "api/cache_places.h"
#include "weft.h"

namespace weft::api {

struct Sequence {
  uint64_t id;
  CachePlace place;
  weft_sequence_config config;
  std::vector<int32_t> tokens, stops;
  size_t begun;       // number of tokens at the start
  size_t cached = 0;  // tokens
  uint64_t weights;   // weft_run::weights_written of the cached ones
  uint64_t turn;      // StepRows::new_turn() when it joined or got a row in turn
  size_t waiting() const { return tokens.size() - cached; }
};
using Sequences = std::vector<std::unique_ptr<Sequence>>;  // the oldest first

}  // namespace weft::api
