// Makes the decoder of a preset and its plan, for weft_generator_new.
#pragma once

#include "cli/build.h"

namespace weft::cli {

struct DecoderOptions {
  uint32_t texts = 1;   // in the caches at the same time
  uint32_t data = 1;    // replicas, which divide the texts
  uint32_t stages = 1;  // of the pipeline
  uint32_t tensor = 1;  // ranks that share a stage
  int64_t context = 0;  // tokens of a text
  bool bf16_cache = false;
  std::string precision = "f32";
  std::string f32_nodes;
};

// `built` has the preset, and its checkpoint; it gets the decoder and its plan.
Outcome make_decoder(const DecoderOptions& options, Built& built);

}  // namespace weft::cli
