// What an export reads: the parameters of a checkpoint, or of files of weights, and adapters that
// are added to them.
#pragma once

#include <string>
#include <vector>

#include "io/adapters.h"
#include "io/checkpoint.h"
#include "io/weights.h"

namespace weft {

struct ExportSource {
  std::string path;
  std::string model;   // as make_preset reads it; may be empty
  std::string source;  // the directory of source_files.h; may be empty
  std::string base;    // the directory of the model without its adapters; may be empty
  std::vector<TensorSpec> params;
  std::vector<std::string> trained;             // parameters that have optimizer state
  std::vector<std::string> files, directories;  // of weights that are read
  ReadParam read;                               // of the type that `params` says
};

// The arguments must outlive the result.
ExportSource export_source(Checkpoint& from);
Result<ExportSource> export_source(const Weights& from);
// Fails if the model of `base` has adapters already, or if they are of another model.
Result<ExportSource> add_adapters(ExportSource base, const Weights& adapters);

}  // namespace weft
