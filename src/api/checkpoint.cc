// Checkpoints and safetensors files behind one handle.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "api/run_handle.h"
#include "io/adapters.h"
#include "io/checkpoint_names.h"
#include "io/export.h"
#include "io/source_files.h"
#include "io/weights.h"
#include "runtime/load.h"

using namespace weft;
using namespace weft::api;

struct weft_checkpoint {
  std::optional<Checkpoint> checkpoint;
  std::optional<Weights> weights;
  std::vector<weft_pair> options;
  std::string source;
  std::vector<int32_t> ends;

  size_t params() const {
    return checkpoint ? checkpoint->model().size() : weights->tensors.size();
  }
  size_t states() const { return checkpoint ? checkpoint->optimizer().size() : 0; }
  const std::string& path() const { return checkpoint ? checkpoint->path() : weights->path; }

  const TensorSpec& spec(size_t index) const {
    return index < params() ? checkpoint->model()[index]
                            : checkpoint->optimizer()[index - params()];
  }
  const std::string& name(size_t index) const {
    return checkpoint ? spec(index).name : weights->tensors[index].entry->name;
  }
};

namespace {

// Also a device or a pipe, which is refused as a file.
bool is_file(const std::string& path) { return path_exists(path) && !is_directory(path); }

Result<Digest> digest_of_tensor(weft_checkpoint& c, size_t index) {
  const ShardPart part = index < c.params() ? ShardPart::model : ShardPart::optimizer;
  WEFT_TRY_ASSIGN(const Weights::Tensor tensor,
                  c.weights ? Result<Weights::Tensor>(c.weights->tensors[index])
                            : c.checkpoint->find(part, c.name(index)));
  return tensor.file->digest(*tensor.entry);
}

Result<Digest> digest_of_params(weft_checkpoint& c) {
  std::vector<size_t> order(c.params());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return c.name(a) < c.name(b); });
  Hasher all;
  for (size_t i : order) {
    WEFT_TRY_ASSIGN(const Digest digest, digest_of_tensor(c, i));
    all.bytes(c.name(i).c_str(), c.name(i).size() + 1).digest(digest);
  }
  return all.finish();
}

Result<SaveRequest> save_request(const weft_save_config& c) {
  WEFT_TRY(require(c.directory, "weft_save_config.directory"));
  if (!*c.directory)
    return Status(Code::invalid, "weft_save_config.directory is empty, expected a path");
  if (c.n_options) WEFT_TRY(require(c.options, "weft_save_config.options"));
  SaveRequest out;
  out.directory = c.directory;
  out.manifest.weft = weft_version();
  if (c.model) out.manifest.model = c.model;
  for (uint32_t i = 0; i < c.n_options; ++i) {
    WEFT_TRY(require(c.options[i].key, "a key in weft_save_config.options"));
    WEFT_TRY(require(c.options[i].value, "a value in weft_save_config.options"));
    const std::string key = c.options[i].key;
    if (key.empty()) return Status(Code::invalid, "a key in weft_save_config.options is empty");
    if (!out.manifest.options.emplace(key, c.options[i].value).second)
      return Status(Code::invalid, cat("weft_save_config.options has the key '", key, "' twice"));
  }
  return out;
}

Result<ExportOptions> export_options(const weft_export_config& c) {
  WEFT_TRY(require(c.dtype, "weft_export_config.dtype"));
  const std::string_view dtype = c.dtype;
  if (dtype != "f32" && dtype != "bf16")
    return Status(Code::invalid,
                  cat("weft_export_config.dtype is ", shown(dtype), ", expected 'f32' or 'bf16'"));
  if (c.shard_bytes == 0)
    return Status(Code::invalid, "weft_export_config.shard_bytes is 0, expected 1 or more");
  if (c.merge > 1)
    return Status(Code::invalid, cat("weft_export_config.merge is ", c.merge, ", expected 0 or 1"));
  return ExportOptions{dtype == "bf16" ? DType::bf16 : DType::f32, c.shard_bytes, c.merge == 1};
}

Result<ExportSource> source_to_export(weft_checkpoint& c) {
  return c.checkpoint ? export_source(*c.checkpoint) : export_source(*c.weights);
}

Status load_parameters(weft_run& run, weft_checkpoint& from, std::string_view kept) {
  ++run.weights_written;
  return from.weights ? load_weights(*run.run, *from.weights, kept)
                      : load_weights(*run.run, *from.checkpoint, kept);
}

}  // namespace

weft_status weft_run_save(weft_run* run, const weft_save_config* config, weft_error* err) {
  return guard_run(run, err, [&]() -> Status {
    WEFT_TRY(require_run(run));
    WEFT_TRY(require(config, "config"));
    weft_save_config c;
    WEFT_TRY(read_config(config, "weft_save_config", c));
    WEFT_TRY_ASSIGN(SaveRequest request, save_request(c));
    if (c.flags != 0 && c.flags != WEFT_SAVE_QUEUE)
      return Status(Code::invalid,
                    cat("weft_save_config.flags is ", c.flags, ", expected 0 or WEFT_SAVE_QUEUE"));
    if (c.flags == 0) {
      WEFT_TRY(require_settled(*run));
      return run->run->save(std::move(request));
    }
    WEFT_TRY(require_no_generator(run));
    return run->run->submit_save(std::move(request), c.tag);
  });
}

weft_status weft_checkpoint_open(const char* path, weft_checkpoint** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(path, "path"));
    WEFT_TRY(require(out, "out"));
    auto opened = std::make_unique<weft_checkpoint>();
    if (is_file(path) || is_model_directory(path) || is_adapter_directory(path)) {
      WEFT_TRY_ASSIGN(opened->weights, open_weights(path));
    } else {
      WEFT_TRY_ASSIGN(opened->checkpoint, Checkpoint::open(path));
      for (const auto& [key, value] : opened->checkpoint->manifest().options)
        opened->options.push_back({key.c_str(), value.c_str()});
    }
    if (opened->checkpoint)
      opened->source = source_of(opened->path());
    else if (is_model_directory(path))
      opened->source = path;
    if (!opened->source.empty()) {
      WEFT_TRY_ASSIGN(opened->ends, end_tokens(opened->source));
    }
    *out = opened.release();
    return {};
  });
}

void weft_checkpoint_free(weft_checkpoint* checkpoint) { delete checkpoint; }

weft_status weft_checkpoint_describe(const weft_checkpoint* checkpoint,
                                     weft_checkpoint_info* info) {
  return guard(nullptr, [&]() -> Status {
    WEFT_TRY(require(checkpoint, "checkpoint"));
    WEFT_TRY(require(info, "info"));
    WEFT_TRY(check_result(*info));
    weft_checkpoint_info full = {};
    full.weights_only = checkpoint->weights.has_value();
    full.path = checkpoint->path().c_str();
    full.n_params = static_cast<uint32_t>(checkpoint->params());
    full.n_states = static_cast<uint32_t>(checkpoint->states());
    if (!checkpoint->source.empty()) full.source = checkpoint->source.c_str();
    full.ends = checkpoint->ends.data();
    full.n_ends = static_cast<uint32_t>(checkpoint->ends.size());
    if (checkpoint->weights) {
      if (!checkpoint->weights->model.empty()) full.model = checkpoint->weights->model.c_str();
      if (const auto& adapters = checkpoint->weights->adapters)
        full.adapters = adapters->keys.c_str();
      fill_result(info, full);
      return {};
    }
    const Manifest& manifest = checkpoint->checkpoint->manifest();
    if (!manifest.model.empty()) full.model = manifest.model.c_str();
    full.seed = manifest.seed;
    full.step = manifest.step;
    full.options = checkpoint->options.data();
    full.n_options = static_cast<uint32_t>(checkpoint->options.size());
    if (const std::string& warning = checkpoint->checkpoint->warning(); !warning.empty())
      full.warning = warning.c_str();
    fill_result(info, full);
    return {};
  });
}

// It returns no status, so it must not allocate.
const char* weft_checkpoint_tensor(const weft_checkpoint* c, uint32_t index, weft_desc* desc,
                                   const char** dtype) {
  if (desc) *desc = {};
  if (dtype) *dtype = nullptr;
  if (!c || index >= c->params() + c->states()) return nullptr;
  if (!c->weights) {
    if (desc) *desc = from_desc(c->spec(index).desc);
    if (dtype) *dtype = file_dtype(c->spec(index).desc.dtype);
    return c->spec(index).name.c_str();
  }
  const SafetensorsEntry& entry = *c->weights->tensors[index].entry;
  const auto known = entry.known();
  if (desc) {
    *desc = from_desc({known.value_or(DType::f32), entry.shape});
    if (!known) desc->dtype = weft_dtype{};
  }
  if (dtype) *dtype = entry.dtype.c_str();
  return entry.name.c_str();
}

weft_status weft_checkpoint_digest(weft_checkpoint* checkpoint, int64_t index, char digest[33],
                                   weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(checkpoint, "checkpoint"));
    WEFT_TRY(require(digest, "digest"));
    const auto tensors = static_cast<int64_t>(checkpoint->params() + checkpoint->states());
    if (index < -1 || index >= tensors)
      return Status(Code::invalid, cat("index is ", index, ", expected -1 to ", tensors - 1));
    Digest value;
    if (index < 0) {
      WEFT_TRY_ASSIGN(value, digest_of_params(*checkpoint));
    } else {
      WEFT_TRY_ASSIGN(value, digest_of_tensor(*checkpoint, static_cast<size_t>(index)));
    }
    std::memcpy(digest, value.hex().c_str(), 33);
    return {};
  });
}

weft_status weft_checkpoint_export(weft_checkpoint* checkpoint, const char* path, weft_error* err) {
  return weft_checkpoint_export_as(checkpoint, path, nullptr, err);
}

weft_status weft_checkpoint_export_as(weft_checkpoint* checkpoint, const char* path,
                                      const weft_export_config* config, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(checkpoint, "checkpoint"));
    WEFT_TRY(require(path, "path"));
    weft_export_config c;
    WEFT_TRY(read_config(config, "weft_export_config", c));
    WEFT_TRY_ASSIGN(const ExportOptions options, export_options(c));
    WEFT_TRY_ASSIGN(ExportSource from, source_to_export(*checkpoint));
    if (!c.adapters) return export_model(from, path, options);
    WEFT_TRY_ASSIGN(const Weights adapters, open_adapters(c.adapters));
    WEFT_TRY_ASSIGN(from, add_adapters(std::move(from), adapters));
    return export_model(from, path, options);
  });
}

weft_status weft_checkpoint_keep_source(const char* directory, const char* source,
                                        const char* tokenizer, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(directory, "directory"));
    return keep_source(directory, source ? source : "", tokenizer ? tokenizer : "");
  });
}

weft_status weft_run_load(weft_run* run, weft_checkpoint* checkpoint, weft_load what,
                          weft_error* err) {
  return guard_run(run, err, [&]() -> Status {
    WEFT_TRY(require_run(run));
    WEFT_TRY(require(checkpoint, "checkpoint"));
    WEFT_TRY(require_settled(*run));
    if (what != WEFT_LOAD_ALL && what != WEFT_LOAD_WEIGHTS)
      return Status(Code::invalid, cat("what is ", uint32_t{what},
                                       ", expected WEFT_LOAD_ALL or WEFT_LOAD_WEIGHTS"));
    if (checkpoint->weights && what == WEFT_LOAD_ALL)
      return Status(Code::invalid,
                    cat("'", checkpoint->path(),
                        "' contains only weights; a run can be started from it, not resumed"));
    if (what == WEFT_LOAD_WEIGHTS) return load_parameters(*run, *checkpoint, {});
    ++run->weights_written;
    return load_run(*run->run, *checkpoint->checkpoint);
  });
}

weft_status weft_run_load_except(weft_run* run, weft_checkpoint* checkpoint, const char* kept,
                                 weft_error* err) {
  return guard_run(run, err, [&]() -> Status {
    WEFT_TRY(require_run(run));
    WEFT_TRY(require(checkpoint, "checkpoint"));
    WEFT_TRY(require(kept, "kept"));
    if (!*kept) return Status(Code::invalid, "kept is empty, expected patterns of names");
    WEFT_TRY(require_settled(*run));
    return load_parameters(*run, *checkpoint, kept);
  });
}
