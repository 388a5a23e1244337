#include "io/export.h"

#include <cstring>
#include <filesystem>
#include <set>

#include "base/text.h"
#include "io/checkpoint_names.h"
#include "io/model_config.h"
#include "io/source_files.h"
#include "io/weights.h"
#include "kernels/bf16.h"

namespace weft {

namespace {

class Exporter {
 public:
  // `prefix`: of the names in the files, except that of the head.
  Exporter(Checkpoint& from, DType dtype, std::string_view prefix)
      : from_(from), prefix_(prefix), tensors_(from.model()) {
    for (TensorSpec& tensor : tensors_) {
      if (tensor.name != kHeadWeight) tensor.name.insert(0, prefix);
      if (tensor.desc.dtype == DType::f32) tensor.desc.dtype = dtype;
    }
  }

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  Status write(const std::string& path, const std::vector<TensorSpec>& tensors);

 private:
  Status read(const SafetensorsEntry& entry, std::vector<std::byte>& out);

  Checkpoint& from_;
  const std::string prefix_;
  std::vector<TensorSpec> tensors_;  // as they are written
};

Status Exporter::write(const std::string& path, const std::vector<TensorSpec>& tensors) {
  WEFT_TRY(check_outside_checkpoints(path));
  WEFT_TRY_ASSIGN(SafetensorsWriter writer,
                  SafetensorsWriter::create(path, tensors, {{"format", "pt"}}));
  std::vector<std::byte> bytes;
  for (const SafetensorsEntry& entry : writer.order()) {
    WEFT_TRY(read(entry, bytes));
    WEFT_TRY(writer.write(entry.name, bytes));
  }
  return writer.finish().status();
}

Status Exporter::read(const SafetensorsEntry& entry, std::vector<std::byte>& out) {
  const std::string name = entry.name.substr(entry.name == kHeadWeight ? 0 : prefix_.size());
  out.resize(entry.end - entry.begin);
  if (entry.dtype != "BF16") return from_.read_model(name, out);
  const size_t count = out.size() / sizeof(kernels::Bf16);
  std::vector<float> values(count);
  std::vector<kernels::Bf16> rounded(count);
  WEFT_TRY(from_.read_model(name, std::as_writable_bytes(std::span(values))));
  kernels::to_bf16(values.data(), rounded.data(), static_cast<int64_t>(count));
  std::memcpy(out.data(), rounded.data(), out.size());
  return {};
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

// The name that SafetensorsWriter would have given to a file that a killed export left.
std::string_view written_name(std::string_view name) {
  constexpr std::string_view kEnd = ".tmp";
  if (!name.starts_with('.') || !name.ends_with(kEnd)) return name;
  return name.substr(1, name.size() - 1 - kEnd.size());
}

// Files of weights that an earlier export left, and which could be read in place of the new ones.
Status remove_other_weights(const std::string& path, const std::set<std::string>& written) {
  WEFT_TRY_ASSIGN(const auto names, list_directory(path));
  for (const std::string& name : names)
    if (is_weights_name(written_name(name)) && !written.contains(name))
      WEFT_TRY(remove_path(join_path(path, name)));
  return {};
}

Status write_shards(Exporter& exporter, const std::string& path, uint64_t shard_bytes) {
  const std::vector<TensorSpec>& tensors = exporter.tensors();
  WEFT_TRY_ASSIGN(const auto ends, split_tensors(tensors, shard_bytes));
  std::set<std::string> written;
  WeightsIndex index;
  for (size_t i = 0, begin = 0; i < ends.size(); begin = ends[i++]) {
    const std::string name = weights_name(i, ends.size());
    const std::vector<TensorSpec> part(tensors.begin() + static_cast<ptrdiff_t>(begin),
                                       tensors.begin() + static_cast<ptrdiff_t>(ends[i]));
    WEFT_TRY(exporter.write(join_path(path, name), part));
    written.insert(name);
    for (const TensorSpec& tensor : part) {
      index.file_of[tensor.name] = name;
      index.bytes += tensor.desc.bytes();
    }
  }
  if (written.size() > 1) {
    WEFT_TRY(replace_text(join_path(path, kWeightsIndexFile), print_weights_index(index)));
    written.insert(kWeightsIndexFile);
  }
  return remove_other_weights(path, written);
}

}  // namespace

Status export_weights(Checkpoint& from, const std::string& path, const ExportOptions& options) {
  Exporter exporter(from, options.dtype, "");
  return exporter.write(path, exporter.tensors());
}

Status export_directory(Checkpoint& from, const std::string& path, const ExportOptions& options) {
  const std::string& model = from.manifest().model;
  if (model.empty())
    return Status(Code::invalid, cat(from.path(), ": does not name its model, which ",
                                     kModelConfigFile, " would describe"));
  const std::string source = source_of(from.path());
  std::string source_text;
  if (!source.empty()) {
    WEFT_TRY_ASSIGN(source_text, source_config(source));
  }
  const auto text = print_model_config(model, {.dtype = options.dtype, .source = source_text});
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
  Exporter exporter(from, options.dtype, weight_prefix(model));
  WEFT_TRY(write_shards(exporter, path, options.shard_bytes));
  if (!source.empty()) WEFT_TRY(copy_source(source, path));
  return replace_text(config, text.value());
}

}  // namespace weft
