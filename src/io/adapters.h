// Adapters in the files of Hugging Face's PEFT: adapter_config.json, and the parameters in
// adapter_model.safetensors. They can also be merged into the weights that they adapt.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "graph/adapters.h"

namespace weft {

inline constexpr const char *kAdapterConfigFile = "adapter_config.json",
                            *kAdapterFile = "adapter_model.safetensors";
// Of the names of all tensors in the file.
inline constexpr std::string_view kAdapterPrefix = "base_model.model.";

struct AdapterConfig {
  std::string keys;  // of a preset: "lora_rank=8,lora_alpha=16,lora_targets=q_proj/v_proj"
  double scale = 0;  // alpha / rank
};
// Fails if a field has a value for which weft would compute something else.
Result<AdapterConfig> parse_adapter_config(std::string_view json);
// The reverse, for an adapted model. `base`: the directory of the model without adapters; may be
// empty.
std::string print_adapter_config(const Model& model, const AdapterOptions& options,
                                 const std::string& base);

// Whether the path is a directory of PEFT.
bool is_adapter_directory(const std::string& path);

// Reads a parameter as float32.
using ReadParam = std::function<Status(std::string_view param, std::span<std::byte> out)>;

// The adapters of a model, for exports that do not have them.
class AdapterMerge {
 public:
  // Fails if another node uses a weight that has an adapter.
  static Result<AdapterMerge> of(const Model& model);

  // Adds alpha / rank * B A, whose factors it reads, if the parameter has an adapter.
  Status add(const ReadParam& read, std::string_view param, std::span<float> weight) const;

 private:
  struct Factors {
    std::string a, b;
    int64_t rank, rows, columns;  // of the weight as it is stored
    bool out_in;
    float scale;
  };
  std::map<std::string, Factors, std::less<>> of_;
};

}  // namespace weft
