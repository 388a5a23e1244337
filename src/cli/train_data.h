// The training and held-out data of `weft train`.
#pragma once

#include "cli/build.h"

namespace weft::cli {

// The value of --data that generates data from the seed.
inline constexpr const char* kSynthetic = "synthetic";

struct DataOptions {
  std::string file, eval;  // --data; empty: none is named
  std::string tokenizer;   // for files of text; empty: there is none
  int32_t end_token = -1;  // of samples

  bool has_json() const { return file.ends_with(".jsonl") || eval.ends_with(".jsonl"); }
};

// `trains`: the run makes steps, so that it needs data.
Outcome open_data(const DataOptions& options, const weft_preset_info& model,
                  uint32_t micro_batch_size, bool trains, DataPtr& out);

// The samples of a step, for inputs of make_inputs().
Outcome fill_samples(const weft_data* data, uint64_t seed, uint64_t step,
                     std::span<const TensorPtr> inputs);
// Held-out windows from `first` on.
Outcome fill_held_out(const weft_data* data, int64_t first, std::span<const TensorPtr> inputs);

}  // namespace weft::cli
