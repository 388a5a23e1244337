#include "io/weights.h"

#include <filesystem>
#include <set>

#include "base/text.h"
#include "io/checkpoint_names.h"
#include "io/model_config.h"
#include "io/strict_json.h"

namespace weft {

namespace {

constexpr size_t kMostConfigBytes = size_t{1} << 20, kMostIndexBytes = size_t{1} << 26;
constexpr const char *kSingle = "model.safetensors", *kIndex = "model.safetensors.index.json",
                     *kPickled = "pytorch_model.bin";

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
  const auto file_of = parse_weights_index(text);
  if (!file_of.ok()) return file_of.status().within(index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : file_of.value()) names.insert(file);
  for (const std::string& name : names) {
    WEFT_TRY_ASSIGN(SafetensorsFile file, SafetensorsFile::open(join_path(out.path, name)));
    out.files.push_back(std::move(file));
  }
  list_tensors(out);
  return check_index(out, index, file_of.value());
}

Status open_single(Weights& out, const std::string& path) {
  WEFT_TRY_ASSIGN(SafetensorsFile file, SafetensorsFile::open(path));
  out.files.push_back(std::move(file));
  list_tensors(out);
  return {};
}

Status open_directory(Weights& out) {
  const std::string config = join_path(out.path, kModelConfigFile),
                    single = join_path(out.path, kSingle), index = join_path(out.path, kIndex);
  WEFT_TRY_ASSIGN(const std::string text, read_text(config, kMostConfigBytes));
  auto model = parse_model_config(text);
  if (!model.ok()) return model.status().within(config);
  out.model = model.take();
  if (path_exists(single)) return open_single(out, single);
  if (path_exists(index)) return open_listed(out, index);
  return Status(
      Code::not_found,
      cat(out.path, ": has no ", kSingle,
          path_exists(join_path(out.path, kPickled))
              ? cat("; ", kPickled, " cannot be read, save the model with safe_serialization=True")
              : cat(" and no ", kIndex)));
}

// `prefix`: of the names in the file, except that of the head.
Status write_weights(Checkpoint& from, const std::string& path, std::string_view prefix) {
  WEFT_TRY(check_outside_checkpoints(path));
  std::vector<TensorSpec> tensors = from.model();
  for (TensorSpec& tensor : tensors)
    if (tensor.name != kHeadWeight) tensor.name.insert(0, prefix);
  WEFT_TRY_ASSIGN(SafetensorsWriter writer,
                  SafetensorsWriter::create(path, tensors, {{"format", "pt"}}));
  std::vector<std::byte> bytes;
  for (const SafetensorsEntry& entry : writer.order()) {
    bytes.resize(entry.end - entry.begin);
    const size_t skipped = entry.name == kHeadWeight ? 0 : prefix.size();
    WEFT_TRY(from.read_model(entry.name.substr(skipped), bytes));
    WEFT_TRY(writer.write(entry.name, bytes));
  }
  return writer.finish().status();
}

// The directory may not exist yet.
Status check_apart_from_checkpoints(const std::string& path) {
  std::error_code error;
  for (auto at = std::filesystem::weakly_canonical(path, error); !error; at = at.parent_path()) {
    if (has_checkpoints(at.string()))
      return Status(Code::invalid,
                    cat(path, ": '", at.string(), "' contains checkpoints, expected ",
                        "a directory outside of it"));
    if (!at.has_relative_path()) return {};
  }
  return Status(Code::io, cat(path, ": ", error.message()));
}

}  // namespace

Result<Weights> open_weights(const std::string& path) {
  Weights out;
  out.path = path;
  WEFT_TRY(is_model_directory(path) ? open_directory(out) : open_single(out, path));
  return out;
}

Status export_weights(Checkpoint& from, const std::string& path) {
  return write_weights(from, path, "");
}

Status export_directory(Checkpoint& from, const std::string& path) {
  const std::string& model = from.manifest().model;
  if (model.empty())
    return Status(Code::invalid, cat(from.path(), ": does not name its model, which ",
                                     kModelConfigFile, " would describe"));
  const auto text = print_model_config(model);
  if (!text.ok()) return text.status().within(from.path());
  WEFT_TRY(check_apart_from_checkpoints(path));
  WEFT_TRY(make_directory(path, true));
  const std::string config = join_path(path, kModelConfigFile);
  // Until all is written, the directory has no description: new weights with an old one would be
  // another model.
  if (path_exists(config)) {
    WEFT_TRY(place_for_file(config).status());
    WEFT_TRY(remove_path(config));
  }
  WEFT_TRY(write_weights(from, join_path(path, kSingle), weight_prefix(model)));
  return replace_text(config, text.value());
}

Result<std::map<std::string, std::string>> parse_weights_index(std::string_view json) {
  WEFT_TRY_ASSIGN(const Json object, read_json(json, Fractions::allow));
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

}  // namespace weft
