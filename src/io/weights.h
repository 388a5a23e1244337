// Weights in a safetensors file, or in a directory as Hugging Face's Transformers writes it:
// config.json, and model.safetensors or the files that model.safetensors.index.json lists; or
// adapters as PEFT writes them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/adapters.h"
#include "io/safetensors.h"

namespace weft {

inline constexpr std::string_view kHead = "lm_head.";  // begins the names of the head
inline constexpr const char* kWeightsIndexFile = "model.safetensors.index.json";

struct Weights {
  struct Tensor {
    const SafetensorsFile* file;
    const SafetensorsEntry* entry;
  };

  std::string path;
  std::string model;  // as make_preset reads it; empty if the file does not say it
  std::optional<AdapterConfig> adapters;  // of a directory of PEFT
  std::vector<SafetensorsFile> files;
  std::vector<Tensor> tensors;  // refer to `files`, also when this object is moved
};

// Fails also if an index and its files differ.
Result<Weights> open_weights(const std::string& path);
// Of a directory of PEFT, which may be one of Transformers too.
Result<Weights> open_adapters(const std::string& path);

// The file of each tensor, by the names in the index.
Result<std::map<std::string, std::string>> parse_weights_index(std::string_view json);

struct WeightsIndex {
  std::map<std::string, std::string> file_of;  // each tensor
  uint64_t bytes = 0;                          // of all tensors
};
std::string print_weights_index(const WeightsIndex& index);

// The name of a file of such a directory that has `count` files of weights.
std::string weights_name(size_t index, size_t count);
// Whether it is such a name, or that of the index.
bool is_weights_name(std::string_view name);

}  // namespace weft
