// What an export reads: the parameters of a checkpoint, or of files of weights, and adapters that
// are added to them. One parameter is in memory at a time.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/adapters.h"
#include "io/checkpoint.h"
#include "io/weights.h"

namespace weft {

struct ExportSource {
  std::string path;
  std::string model;   // as make_preset reads it; may be empty
  std::string source;  // the directory of source_files.h; may be empty
  std::vector<TensorSpec> params;
  std::vector<std::string>
      with_state;                  // of the parameters: those that the optimizer has a state of
  std::vector<std::string> files;  // that are read, and their directory; without a checkpoint
  ReadParam read;                  // of the type that `params` says
};

// They refer to their arguments.
ExportSource export_source(Checkpoint& from);
Result<ExportSource> export_source(const Weights& from);
// Fails if the model of `base` has adapters already, or if they are of another model.
Result<ExportSource> add_adapters(ExportSource base, const Weights& adapters);

}  // namespace weft
