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
};

// `trains`: the run makes steps, so that it needs data.
Outcome open_data(const DataOptions& options, const weft_preset_info& model,
                  uint32_t micro_batch_size, bool trains, DataPtr& out);

}  // namespace weft::cli
