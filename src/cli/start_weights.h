// The weights with which a run of `weft train` begins.
#pragma once

#include <string>

#include "cli/build.h"

namespace weft::cli {

struct StartWeights {
  weft_checkpoint* from = nullptr;  // null: the run begins with initial values
  weft_checkpoint_info info = sized<weft_checkpoint_info>();

  // Those of `resumed` or, if it is null, of `init`, --init, or of the MODEL of `built`.
  Outcome open(const std::string& init, const Built& built, weft_checkpoint* resumed);
  // The token that ends a text; -1: none.
  int32_t end_token() const { return end_token_of(info); }

 private:
  CheckpointPtr init_;
};

}  // namespace weft::cli
