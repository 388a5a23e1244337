#include <algorithm>

#include "api/handles.h"
#include "graph/adapters.h"
#include "graph/presets.h"

using namespace weft;
using namespace weft::api;

namespace {

constexpr int64_t kMostSequences = 1 << 20;

Status give(Preset preset, weft_model** out, weft_preset_info* info) {
  auto model = std::make_unique<weft_model>();
  model->model = std::move(preset.model);
  model->preset = std::move(preset.text);
  model->seq_len = preset.seq_len;
  if (info) {
    weft_preset_info full = {};
    full.tokens = preset.tokens;
    full.vocabulary = preset.vocabulary;
    full.context = preset.context;
    full.seq_len = preset.seq_len;
    full.width = preset.width;
    full.text = model->preset.c_str();
    fill_result(info, full);
  }
  *out = model.release();
  return {};
}

Status make(const char* text, PresetOptions options, uint32_t stages, weft_model** out,
            weft_preset_info* info) {
  WEFT_TRY(require(text, "text"));
  WEFT_TRY(require(out, "out"));
  if (info) WEFT_TRY(check_result(*info));
  if (stages > 4096)
    return Status(Code::invalid, cat("stages is ", stages, ", expected at most 4096"));
  options.stages = static_cast<int32_t>(std::max(stages, 1u));
  WEFT_TRY_ASSIGN(Preset preset, make_preset(text, options));
  return give(std::move(preset), out, info);
}

}  // namespace

weft_status weft_model_preset(const char* text, int64_t seq_len, uint32_t stages, weft_model** out,
                              weft_preset_info* info, weft_error* err) {
  return guard(err, [&] { return make(text, {.seq_len = seq_len}, stages, out, info); });
}

weft_status weft_model_packed(const char* text, int64_t seq_len, uint32_t stages, weft_model** out,
                              weft_preset_info* info, weft_error* err) {
  return guard(err,
               [&] { return make(text, {.seq_len = seq_len, .packed = true}, stages, out, info); });
}

weft_status weft_model_decoder(const char* text, const weft_decoder_config* config,
                               weft_model** out, weft_preset_info* info, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(text, "text"));
    WEFT_TRY(require(out, "out"));
    if (info) WEFT_TRY(check_result(*info));
    weft_decoder_config c;
    WEFT_TRY(read_config(config, "weft_decoder_config", c));
    if (c.sequences < 1 || c.sequences > kMostSequences)
      return Status(Code::invalid, cat("weft_decoder_config.sequences is ", c.sequences,
                                       ", expected 1 to ", kMostSequences));
    if (c.flags & ~uint32_t{WEFT_NODE_BF16_CACHE})
      return Status(Code::invalid, cat("weft_decoder_config.flags are ", c.flags,
                                       ", expected 0 or WEFT_NODE_BF16_CACHE"));
    const CacheOptions cache{.sequences = static_cast<int32_t>(c.sequences),
                             .length = c.context,
                             .bf16 = (c.flags & WEFT_NODE_BF16_CACHE) != 0};
    WEFT_TRY_ASSIGN(Preset preset, make_preset(text, {.cache = cache}));
    return give(std::move(preset), out, info);
  });
}

weft_status weft_model_adapt(const weft_model* model, const weft_adapter_config* config,
                             weft_model** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    WEFT_TRY(require(out, "out"));
    weft_adapter_config c;
    WEFT_TRY(read_config(config, "weft_adapter_config", c));
    if (c.n_targets) WEFT_TRY(require(c.targets, "weft_adapter_config.targets"));
    AdapterOptions options{.rank = c.rank, .alpha = c.alpha, .dropout = c.dropout};
    for (uint32_t i = 0; i < c.n_targets; ++i) {
      WEFT_TRY(require(c.targets[i], "a name in weft_adapter_config.targets"));
      options.targets.emplace_back(c.targets[i]);
    }
    auto adapted = std::make_unique<weft_model>();
    WEFT_TRY_ASSIGN(adapted->model, adapt(*model->model, options));
    adapted->user_ops = model->user_ops;
    adapted->seq_len = model->seq_len;
    *out = adapted.release();
    return {};
  });
}
