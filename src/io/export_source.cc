#include "io/export_source.h"

#include <algorithm>
#include <memory>

#include "base/text.h"
#include "graph/presets.h"
#include "io/file.h"
#include "io/named_weights.h"
#include "io/source_files.h"

namespace weft {

namespace {

// The adapters of a model, or its other parameters.
std::vector<TensorSpec> params_of(const Model& model, bool adapters) {
  std::vector<TensorSpec> out;
  for (const Param& param : model.params())
    if (is_adapter(param.name) == adapters) out.push_back({param.name, {DType::f32, param.shape}});
  return out;
}

// The parameters in files, which must be these and, beside adapters, those of their `bases`.
Result<ReadParam> reader_of(const Weights& weights, std::shared_ptr<const Model> model,
                            std::vector<TensorSpec> params, std::vector<TensorSpec>& bases) {
  WEFT_TRY_ASSIGN(NamedWeights named, NamedWeights::of(weights, *model));
  WEFT_TRY_ASSIGN(const std::vector<TensorSpec> found, named.specs());
  for (const std::string_view base : named.bases)
    bases.push_back({std::string(base), {DType::f32, model->param(model->find_param(base)).shape}});
  params.insert(params.end(), bases.begin(), bases.end());
  WEFT_TRY(compare_tensors(weights.path, params, found));
  WEFT_TRY(named.check_tied_head());
  return ReadParam([named = std::move(named), model = std::move(model)](std::string_view param,
                                                                        std::span<std::byte> out) {
    const Weights::Tensor& tensor = named.params.at(param);
    return tensor.file->read_floats(
        *tensor.entry, 0, {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
  });
}

// An export of the adapters would not have another value.
Status check_same(const TensorSpec& param, const ReadParam& base, const ReadParam& beside) {
  std::vector<std::byte> expected(param.desc.bytes()), found(expected.size());
  WEFT_TRY(base(param.name, expected));
  WEFT_TRY(beside(param.name, found));
  if (expected == found) return {};
  return Status(Code::data, cat("the value of '", param.name, "' beside the adapters differs from ",
                                "that of the model, expected the same"));
}

void add_files(const Weights& weights, ExportSource& out) {
  out.directories.push_back(weights.path);
  for (const SafetensorsFile& file : weights.files) out.files.push_back(file.path());
}

}  // namespace

ExportSource export_source(Checkpoint& from) {
  ExportSource out{.path = from.path(),
                   .model = from.manifest().model,
                   .source = source_of(from.path()),
                   .base = {},
                   .params = from.model(),
                   .trained = {},
                   .files = {},
                   .directories = {},
                   .read = [&from](std::string_view param, std::span<std::byte> bytes) {
                     return from.read_model(param, bytes);
                   }};
  for (const TensorSpec& state : from.optimizer())
    out.trained.push_back(state.name.substr(0, state.name.rfind('.')));
  const bool adapted = std::any_of(out.params.begin(), out.params.end(),
                                   [](const TensorSpec& param) { return is_adapter(param.name); });
  if (adapted) out.base = base_of(out.source);  // otherwise its weights are others
  return out;
}

Result<ExportSource> export_source(const Weights& from) {
  if (from.model.empty())
    return Status(Code::invalid, cat("'", from.path, "' does not name its model, expected ",
                                     "a checkpoint or a directory of Transformers"));
  WEFT_TRY_ASSIGN(const Preset preset, make_preset(from.model, {}));
  ExportSource out{.path = from.path,
                   .model = from.model,
                   .source = from.path,
                   .base = absolute_path(from.path),
                   .params = params_of(*preset.model, false),
                   .trained = {},
                   .files = {},
                   .directories = {},
                   .read = {}};
  std::vector<TensorSpec> none;
  WEFT_TRY_ASSIGN(out.read, reader_of(from, preset.model, out.params, none));
  add_files(from, out);
  return out;
}

Result<ExportSource> add_adapters(ExportSource base, const Weights& adapters) {
  if (base.model.empty())
    return Status(Code::invalid,
                  cat(base.path, ": does not name its model, to which adapters are added"));
  WEFT_TRY_ASSIGN(const Preset without, make_preset(base.model, {}));
  if (without.adapters)
    return Status(Code::invalid, cat(base.path, ": the model has adapters already"));
  const char* const joint = base.model.find(':') == base.model.npos ? ":" : ",";
  base.model += joint + adapters.adapters->keys;
  WEFT_TRY_ASSIGN(const Preset preset, make_preset(base.model, {}).within(adapters.path));
  WEFT_TRY(compare_tensors(base.path, params_of(*preset.model, false), base.params));
  const std::vector<TensorSpec> added = params_of(*preset.model, true);
  std::vector<TensorSpec> bases;
  WEFT_TRY_ASSIGN(const ReadParam read_added, reader_of(adapters, preset.model, added, bases));
  for (const TensorSpec& each : bases)
    WEFT_TRY(check_same(each, base.read, read_added).within(adapters.path));
  base.read = [read = std::move(base.read), read_added](std::string_view param,
                                                        std::span<std::byte> out) {
    return is_adapter(param) ? read_added(param, out) : read(param, out);
  };
  base.params.insert(base.params.end(), added.begin(), added.end());
  base.trained.clear();  // a directory of adapters is for `base` as it was trained
  add_files(adapters, base);
  return base;
}

}  // namespace weft
