// Writes the parameters of a checkpoint for other programs: as one safetensors file, or as a
// directory of Transformers.
#pragma once

#include <string>

#include "io/checkpoint.h"

namespace weft {

struct ExportOptions {
  DType dtype = DType::f32;              // or bf16, to which the parameters are rounded
  uint64_t shard_bytes = 5'000'000'000;  // of the tensors in a file of a directory
  bool merge = false;                    // adapters into the weights
};

Status export_weights(Checkpoint& from, const std::string& path, const ExportOptions& options);
// With config.json and the files of source_files.h. Makes the directory if it does not exist. If
// the model has adapters that are not merged, only these are written, as PEFT does.
Status export_directory(Checkpoint& from, const std::string& path, const ExportOptions& options);

}  // namespace weft
