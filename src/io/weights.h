// Weights in a safetensors file, or in a directory as Hugging Face's Transformers writes it:
// config.json, and model.safetensors or the files that model.safetensors.index.json lists.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint.h"
#include "io/safetensors.h"

namespace weft {

inline constexpr std::string_view kHeadWeight = "lm_head.weight";

struct Weights {
  struct Tensor {
    const SafetensorsFile* file;
    const SafetensorsEntry* entry;
  };

  std::string path;
  std::string model;  // as make_preset reads it; empty if the file does not say it
  std::vector<SafetensorsFile> files;
  std::vector<Tensor> tensors;  // refer to `files`, also when this object is moved
};

// Fails also if an index and its files differ.
Result<Weights> open_weights(const std::string& path);

// Writes the parameters of a checkpoint as one safetensors file.
Status export_weights(Checkpoint& from, const std::string& path);
// Writes them with a config.json to such a directory, which is made if it does not exist.
Status export_directory(Checkpoint& from, const std::string& path);

// The file of each tensor, by the names in the index.
Result<std::map<std::string, std::string>> parse_weights_index(std::string_view json);

}  // namespace weft
