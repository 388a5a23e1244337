// Writes parameters for other programs: as one safetensors file, or as a directory of Transformers
// or of PEFT.
#pragma once

#include <string>

#include "io/export_source.h"

namespace weft {

struct ExportOptions {
  DType dtype = DType::f32;              // or bf16, to which the parameters are rounded
  uint64_t shard_bytes = 5'000'000'000;  // of the tensors in a file of a directory
  bool merge = false;                    // adapters into the weights
};

// To a file. If the path ends with '/', to a directory, with config.json and the files of
// source_files.h, which is made if it does not exist. If the model has adapters that are not
// merged, only these are written there, as PEFT does.
Status export_model(const ExportSource& from, const std::string& path,
                    const ExportOptions& options);

}  // namespace weft
