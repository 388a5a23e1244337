#include "io/weights.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "io/adapters.h"
#include "io/checkpoint_names.h"
#include "io/model_config.h"
#include "io/strict_json.h"

namespace weft {

namespace {

constexpr size_t kMostConfigBytes = size_t{1} << 20, kMostIndexBytes = size_t{1} << 26;
constexpr size_t kMostIndexValues = size_t{1} << 20;  // one for each tensor
constexpr const char *kSingle = "model.safetensors", *kPickled = "pytorch_model.bin";

void list_tensors(Weights& out) {
  for (const SafetensorsFile& file : out.files)
    for (const SafetensorsEntry& entry : file.entries()) out.tensors.push_back({&file, &entry});
}

Status check_index(const Weights& weights, const std::string& index,
                   const std::map<std::string, std::string>& file_of) {
  std::set<std::string_view> found;
  for (const Weights::Tensor& tensor : weights.tensors) {
    const std::string& name = tensor.entry->name;
    const auto listed = file_of.find(name);
    if (listed == file_of.end() || join_path(weights.path, listed->second) != tensor.file->path())
      return Status(Code::data, cat(tensor.file->path(), ": tensor ", shown(name), ": ", index,
                                    listed == file_of.end() ? " does not list it"
                                                            : " says that it is in another file"));
    found.insert(name);
  }
  for (const auto& [name, file] : file_of)
    if (!found.contains(name))
      return Status(Code::data, cat(join_path(weights.path, file), ": has no tensor ", shown(name),
                                    ", which ", index, " lists"));
  return {};
}

Status open_listed(Weights& out, const std::string& index) {
  WEFT_TRY_ASSIGN(const std::string text, read_text(index, kMostIndexBytes));
  WEFT_TRY_ASSIGN(const auto file_of, parse_weights_index(text).within(index));
  std::set<std::string> names;
  for (const auto& [tensor, file] : file_of) names.insert(file);
  for (const std::string& name : names) {
    WEFT_TRY_ASSIGN(SafetensorsFile file, SafetensorsFile::open(join_path(out.path, name)));
    out.files.push_back(std::move(file));
  }
  list_tensors(out);
  return check_index(out, index, file_of);
}

Status open_single(Weights& out, const std::string& path) {
  WEFT_TRY_ASSIGN(SafetensorsFile file, SafetensorsFile::open(path));
  out.files.push_back(std::move(file));
  list_tensors(out);
  return {};
}

Status open_directory(Weights& out) {
  const std::string config = join_path(out.path, kModelConfigFile),
                    single = join_path(out.path, kSingle),
                    index = join_path(out.path, kWeightsIndexFile);
  WEFT_TRY_ASSIGN(const std::string text, read_text(config, kMostConfigBytes));
  WEFT_TRY_ASSIGN(out.model, parse_model_config(text).within(config));
  if (path_exists(single)) return open_single(out, single);
  if (path_exists(index)) return open_listed(out, index);
  return Status(
      Code::not_found,
      cat(out.path, ": has no ", kSingle,
          path_exists(join_path(out.path, kPickled))
              ? cat("; ", kPickled, " cannot be read, save the model with safe_serialization=True")
              : cat(" and no ", kWeightsIndexFile)));
}

}  // namespace

Result<Weights> open_weights(const std::string& path) {
  const bool is_model = is_model_directory(path);
  if (!is_model && is_adapter_directory(path)) return open_adapters(path);
  Weights out;
  out.path = path;
  WEFT_TRY(is_model ? open_directory(out) : open_single(out, path));
  return out;
}

Result<Weights> open_adapters(const std::string& path) {
  if (!is_adapter_directory(path))
    return Status(Code::not_found, cat(path, ": has no ", kAdapterConfigFile,
                                       ", expected a directory that PEFT or an export wrote"));
  const std::string config = join_path(path, kAdapterConfigFile);
  Weights out;
  out.path = path;
  WEFT_TRY_ASSIGN(const std::string text, read_text(config, kMostConfigBytes));
  WEFT_TRY_ASSIGN(out.adapters, parse_adapter_config(text).within(config));
  WEFT_TRY(open_single(out, join_path(path, kAdapterFile)));
  return out;
}

Result<std::map<std::string, std::string>> parse_weights_index(std::string_view json) {
  WEFT_TRY_ASSIGN(const Json object,
                  read_json(json, {.fractions = Fractions::allow, .values = kMostIndexValues}));
  Fields fields(object, "");
  std::map<std::string, std::string> out;
  WEFT_TRY(fields.texts("weight_map", out));
  if (out.empty()) return Status(Code::data, "'weight_map' is empty");
  for (const auto& [tensor, file] : out) {
    if (!plain_file_name(file))
      return Status(Code::data, cat("tensor ", shown(tensor), ": file ", shown(file),
                                    ", expected the name of a file in the same directory"));
    WEFT_TRY(check_tensor_name(tensor));
  }
  return out;
}

std::string print_weights_index(const WeightsIndex& index) {
  Json weight_map = Json::object();
  for (const auto& [tensor, file] : index.file_of) weight_map[tensor] = file;
  return Json::object({{"metadata", Json::object({{"total_size", index.bytes}})},
                       {"weight_map", std::move(weight_map)}})
             .dump(2) +
         "\n";
}

std::string weights_name(size_t index, size_t count) {
  if (count == 1) return kSingle;
  return cat("model-", zero_padded(index + 1, 5), "-of-", zero_padded(count, 5), ".safetensors");
}

bool is_weights_name(std::string_view name) {
  if (name == kSingle || name == kWeightsIndexFile) return true;
  constexpr std::string_view kShape = "model-00000-of-00000.safetensors";
  const auto fits = [](char c, char of) { return of == '0' ? c >= '0' && c <= '9' : c == of; };
  return std::equal(name.begin(), name.end(), kShape.begin(), kShape.end(), fits);
}

}  // namespace weft
