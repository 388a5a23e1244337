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
  // The tokens that end a text.
  std::span<const int32_t> ends() const { return ends_of(info); }

 private:
  CheckpointPtr init_;
};

}  // namespace weft::cli
