#include "io/export.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/text.h"
#include "graph/presets.h"
#include "io/adapters.h"
#include "io/checkpoint_names.h"
#include "io/model_config.h"
#include "io/replacement.h"
#include "io/source_files.h"
#include "io/weights.h"
#include "kernels/bf16.h"

namespace weft {

namespace {

constexpr const char *kWriter = "writer", *kWeft = "weft";  // in the metadata of exports

// What of a model is exported.
enum class Content : uint8_t { all, merged, adapters };

// Weights that are read would be replaced before the export is complete, and a model that is read
// would lose one of its small files.
Status check_not_read(const ExportSource& from, const std::string& path) {
  std::error_code ignored;
  const auto is_one_of = [&ignored](const std::filesystem::path& at,
                                    const std::vector<std::string>& list) {
    return std::any_of(list.begin(), list.end(), [&](const std::string& other) {
      return std::filesystem::equivalent(at, other, ignored);
    });
  };
  const std::filesystem::path file = path;
  const std::string name = file.filename();
  const bool is_small =
      is_source_file(name) || name == kWeightsIndexFile || name == kAdapterConfigFile;
  const bool reads =
      is_one_of(file, from.files) || is_one_of(file, from.directories) ||
      (is_small && is_one_of(file.has_parent_path() ? file.parent_path() : ".", from.directories));
  if (!reads) return {};
  return Status(Code::invalid, cat(path, ": is read by the export; name another place"));
}

class Exporter {
 public:
  // `prefix`: of the names in the files, except those of the head.
  Exporter(const ExportSource& from, DType dtype, std::string_view prefix,
           Content content = Content::all)
      : from_(&from), content_(content) {
    for (TensorSpec tensor : from.params) {
      if (content != Content::all && is_adapter(tensor.name) != (content == Content::adapters))
        continue;
      const std::string param = tensor.name;
      if (!param.starts_with(kHead)) tensor.name.insert(0, prefix);
      if (content == Content::adapters) tensor.name.insert(0, kAdapterPrefix);
      if (tensor.desc.dtype == DType::f32) tensor.desc.dtype = dtype;
      param_of_[tensor.name] = param;
      tensors_.push_back(std::move(tensor));
    }
  }

  // For Content::merged.
  Status merge(const Model& model) {
    WEFT_TRY_ASSIGN(merge_, AdapterMerge::of(model));
    return {};
  }

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  Status write(const std::string& path, const std::vector<TensorSpec>& tensors);

 private:
  Status read(const SafetensorsEntry& entry, std::vector<std::byte>& out);
  Status read(const std::string& param, std::span<std::byte> out);

  const ExportSource* from_;
  Content content_;
  AdapterMerge merge_;
  std::vector<TensorSpec> tensors_;              // as they are written
  std::map<std::string, std::string> param_of_;  // by the names that are written
};

Status Exporter::write(const std::string& path, const std::vector<TensorSpec>& tensors) {
  WEFT_TRY(check_outside_checkpoints(path));
  WEFT_TRY_ASSIGN(SafetensorsWriter writer,
                  SafetensorsWriter::create(path, tensors, {{"format", "pt"}, {kWriter, kWeft}}));
  std::vector<std::byte> bytes;
  for (const SafetensorsEntry& entry : writer.order()) {
    WEFT_TRY(read(entry, bytes));
    WEFT_TRY(writer.write(entry.name, bytes));
  }
  return writer.finish().status();
}

Status Exporter::read(const SafetensorsEntry& entry, std::vector<std::byte>& out) {
  const std::string& param = param_of_.at(entry.name);
  out.resize(entry.end - entry.begin);
  if (entry.dtype != "BF16") return read(param, out);
  std::vector<float> values(out.size() / sizeof(kernels::Bf16));
  WEFT_TRY(read(param, std::as_writable_bytes(std::span(values))));
  kernels::to_bf16(values.data(), reinterpret_cast<kernels::Bf16*>(out.data()),
                   static_cast<int64_t>(values.size()));
  return {};
}

Status Exporter::read(const std::string& param, std::span<std::byte> out) {
  WEFT_TRY(from_->read(param, out));
  if (content_ != Content::merged) return {};
  return merge_.add(from_->read, param,
                    {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
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

// Files of weights that an earlier export left, and which could be read in place of the new ones,
// and those that a killed export did not complete.
Status remove_other_weights(const std::string& path, const std::set<std::string>& written) {
  const auto has_weights = [](std::string_view name) {
    return is_weights_name(name) || name == kAdapterFile;
  };
  WEFT_TRY_ASSIGN(const auto names, list_directory(path));
  for (const std::string& name : names) {
    if (has_weights(name) && !written.contains(name)) WEFT_TRY(remove_file(join_path(path, name)));
    if (has_weights(replaced_name(name))) remove_abandoned(join_path(path, name));
  }
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

// Whether the directory has an earlier export. Only what an export has written is replaced: a model
// may have no other copy. `description`: of the weights in the directory.
Result<bool> has_export(const std::string& path, const char* description) {
  if (!path_exists(path)) return false;
  WEFT_TRY_ASSIGN(const auto names, list_directory(path));
  const auto refuse = [&path](const std::string& name) {
    return Status(Code::invalid, cat(join_path(path, name),
                                     ": was not written by an export; name "
                                     "another directory, or remove it"));
  };
  const auto is_file = [&path](const std::string& name) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(join_path(path, name), ignored);
  };
  bool is_export = false;
  for (const std::string& name : names) {
    if (!name.ends_with(".safetensors")) continue;
    if (!is_weights_name(name) && name != kAdapterFile) continue;
    if (!is_file(name)) continue;
    const auto file = SafetensorsFile::open(join_path(path, name));
    const auto& metadata = file.ok() ? file.value().metadata() : SafetensorsMetadata();
    const auto writer = metadata.find(kWriter);
    if (writer == metadata.end() || writer->second != kWeft) return refuse(name);
    is_export = true;
  }
  if (is_export || !is_file(description)) return is_export;
  return refuse(description);
}

// Before anything is removed.
Status check_no_link_to_read(const ExportSource& from, const std::string& path,
                             const char* description) {
  if (!path_exists(path)) return {};
  WEFT_TRY_ASSIGN(const auto names, list_directory(path));
  for (const std::string& name : names)
    if (is_weights_name(name) || name == kAdapterFile || name == description)
      WEFT_TRY(check_not_read(from, join_path(path, name)));
  return {};
}

// Makes the directory, which has neither checkpoints nor the model of another program. Until all is
// written, it has no description: new weights with an old one would be another model. The small
// files of an earlier export that `source` lacks are removed, too.
Status begin_directory(const ExportSource& from, const std::string& path, const char* description,
                       const std::string& source) {
  WEFT_TRY(check_apart_from_checkpoints(path));
  WEFT_TRY(check_not_read(from, path));
  WEFT_TRY_ASSIGN(const bool replaces, has_export(path, description));
  WEFT_TRY(check_no_link_to_read(from, path, description));
  WEFT_TRY(make_directory(path, true));
  for (const char* name : {kModelConfigFile, kAdapterConfigFile}) {
    const std::string config = join_path(path, name);
    if (!path_exists(config)) continue;
    WEFT_TRY(place_for_file(config).status());
    if (replaces) WEFT_TRY(remove_file(config));
  }
  return replaces ? remove_other_source(source, path) : Status();
}

Result<Exporter> exporter_of(const ExportSource& from, const ExportOptions& options,
                             std::string_view prefix) {
  if (!options.merge) return Exporter(from, options.dtype, prefix);
  if (from.model.empty())
    return Status(Code::invalid,
                  cat(from.path, ": does not name its model, which has the adapters"));
  WEFT_TRY_ASSIGN(const Preset preset, make_preset(from.model, {}));
  if (!preset.adapters)
    return Status(Code::invalid, cat(from.path, ": its model has no adapters to merge"));
  Exporter out(from, options.dtype, prefix, Content::merged);
  const Status status = out.merge(*preset.model);
  if (!status.ok()) return status.within(from.path);
  return out;
}

// Adapters without the other parameters that were trained would be another model. The state of the
// optimizer tells of them; plain SGD has none.
Status check_only_adapters_trained(const ExportSource& from) {
  for (const std::string& param : from.trained) {
    if (is_adapter(param)) continue;
    return Status(Code::invalid,
                  cat(from.path, ": '", param, "' was trained too, and a directory of adapters ",
                      "would not have it; merge the adapters, or export to a file"));
  }
  return {};
}

Status write_adapters(const ExportSource& from, const std::string& path, DType dtype,
                      const Preset& preset) {
  WEFT_TRY(check_only_adapters_trained(from));
  WEFT_TRY(begin_directory(from, path, kAdapterConfigFile, ""));
  Exporter exporter(from, dtype, weight_prefix(from.model), Content::adapters);
  WEFT_TRY(exporter.write(join_path(path, kAdapterFile), exporter.tensors()));
  WEFT_TRY(remove_other_weights(path, {kAdapterFile}));
  return replace_text(join_path(path, kAdapterConfigFile),
                      print_adapter_config(*preset.model, *preset.adapters, from.base));
}

Status export_file(const ExportSource& from, const std::string& path,
                   const ExportOptions& options) {
  WEFT_TRY(check_not_read(from, path));
  WEFT_TRY_ASSIGN(Exporter exporter, exporter_of(from, options, ""));
  return exporter.write(path, exporter.tensors());
}

Status export_directory(const ExportSource& from, const std::string& path,
                        const ExportOptions& options) {
  if (from.model.empty())
    return Status(Code::invalid, cat(from.path, ": does not name its model, which ",
                                     kModelConfigFile, " would describe"));
  std::string source_text;
  if (!from.source.empty()) {
    WEFT_TRY_ASSIGN(source_text, source_config(from.source));
  }
  WEFT_TRY_ASSIGN(const std::string text,
                  print_model_config(from.model, {.dtype = options.dtype, .source = source_text})
                      .within(from.path));
  WEFT_TRY_ASSIGN(Exporter exporter, exporter_of(from, options, weight_prefix(from.model)));
  if (!options.merge) {
    WEFT_TRY_ASSIGN(const Preset preset, make_preset(from.model, {}));
    if (preset.adapters) return write_adapters(from, path, options.dtype, preset);
  }
  WEFT_TRY(begin_directory(from, path, kModelConfigFile, from.source));
  WEFT_TRY(write_shards(exporter, path, options.shard_bytes));
  if (!from.source.empty()) WEFT_TRY(copy_source(from.source, path));
  return replace_text(join_path(path, kModelConfigFile), text);
}

}  // namespace

Status export_model(const ExportSource& from, const std::string& path,
                    const ExportOptions& options) {
  return path.ends_with('/') ? export_directory(from, path, options)
                             : export_file(from, path, options);
}

}  // namespace weft
