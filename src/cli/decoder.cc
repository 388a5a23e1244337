#include "cli/decoder.h"

#include <algorithm>

namespace weft::cli {

namespace {

// Rows of a chunk of a prompt: as many as the kernels multiply at their full speed, and not so many
// that the next tokens of other texts wait long.
constexpr size_t kChunk = 64;
// A group of fewer texts is not worth a micro-batch of its own: until then a step takes the time of
// reading the weights.
constexpr uint32_t kGroupTexts = 24;

size_t rounded_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

Outcome Decoder::prepare(const DecoderOptions& options, Built& built) {
  built_ = &built;
  groups_ = std::clamp(options.texts / kGroupTexts, 1u, options.stages);
  small_ = (options.texts + groups_ - 1) / groups_;
  full_ = std::max(kChunk, rounded_up(groups_ * small_ + 1, kChunk));
  weft_error err = sized<weft_error>();
  weft_decoder_config config = defaults(weft_decoder_config_init);
  config.sequences = options.texts;
  config.context = options.context;
  if (options.bf16_cache) config.flags = WEFT_NODE_BF16_CACHE;
  const std::string text = built.info.text;
  CLI_CALL(weft_model_decoder(text.c_str(), &config, Out(built.model), &built.info, &err));
  PlanOptions plan;
  plan.data = 1;
  plan.shard_ranks = options.tensor;
  plan.tensor = options.tensor;
  plan.gradient_groups = 1;
  plan.ranks = options.stages * options.tensor;
  plan.step_kinds = WEFT_STEPS_FORWARD;
  plan.micro_batches = std::max(options.stages, groups_);
  plan.micro_batch_size = static_cast<uint32_t>(full_);
  plan.precision = options.precision;
  OptimizerOptions optimizer;
  optimizer.rule = "sgd";  // it has no state
  PlanRequest request;
  CLI_TRY(request.fill(plan, optimizer, 1));
  request.config.short_size = static_cast<uint32_t>(small_);
  CLI_CALL(weft_plan_new(built.model.get(), &request.config, Out(built.plan), &err));
  return {};
}

// First the texts that wait for one token, then parts of prompts, as far as there are rows.
void Decoder::choose_rows(std::span<Text> texts) {
  weft_plan_info info = sized<weft_plan_info>();
  weft_plan_describe(plan(), &info);
  const size_t most = full_ * info.micro_batches;
  rows_.clear();
  const auto add = [&](Text& text) {
    const size_t count = std::min(text.waiting(), most - rows_.size());
    for (size_t i = 0; i < count; ++i, ++text.cached)
      rows_.push_back({.token = text.tokens[text.first + text.cached],
                       .position = static_cast<int32_t>(text.cached),
                       .place = static_cast<int32_t>(text.place)});
    if (count > 0 && text.waiting() == 0) rows_.back().text = &text - texts.data();
  };
  for (Text& text : texts)
    if (text.live && text.waiting() == 1) add(text);
  for (Text& text : texts)
    if (text.live) add(text);
  small_only_ = rows_.size() <= groups_ * small_;
  const size_t rest = rows_.size() % full_;
  if (small_only_)
    rows_.resize(rounded_up(rows_.size(), small_));
  else if (rest > 0 && rest <= small_)  // a short last micro-batch
    rows_.resize(rows_.size() - rest + small_);
  else
    rows_.resize(rounded_up(rows_.size(), full_));
}

Outcome Decoder::submit() {
  weft_error err = sized<weft_error>();
  weft_desc desc = {};
  desc.dtype = WEFT_I32;
  desc.n_dims = 2;
  desc.dims[0] = static_cast<int64_t>(rows_.size());
  desc.dims[1] = 1;
  weft_tensor* inputs[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (!inputs_[i] || weft_tensor_desc(inputs_[i].get()).dims[0] != desc.dims[0])
      CLI_CALL(weft_tensor_new(&desc, Out(inputs_[i]), &err));
    inputs[i] = inputs_[i].get();
    auto* out = static_cast<int32_t*>(weft_tensor_data(inputs[i]));
    for (const Row& row : rows_) *out++ = i == 0 ? row.token : i == 1 ? row.position : row.place;
  }
  CLI_CALL(weft_run_submit(run_, inputs, 3, WEFT_FORWARD, 0, &err));
  return {};
}

Outcome Decoder::receive(const Take& take) {
  weft_error err = sized<weft_error>();
  const auto vocabulary = static_cast<size_t>(built_->info.vocabulary);
  for (;;) {
    weft_event event = sized<weft_event>();
    const weft_status got = weft_run_poll(run_, &event, -1, &err);
    if (got < 0) return failed(got, err);
    if (got == 0 || event.kind == WEFT_EVENT_DONE) return {};
    if (event.kind == WEFT_EVENT_ERROR) return failed(event);
    if (event.kind != WEFT_EVENT_MICRO_BATCH || event.n_outputs < 1) continue;
    const weft_desc desc = weft_tensor_desc(event.outputs[0]);
    auto* logits = static_cast<float*>(weft_tensor_data(event.outputs[0]));
    const size_t begin = event.micro_batch * (small_only_ ? small_ : full_);
    for (size_t i = 0; i < static_cast<size_t>(desc.dims[0]); ++i, logits += vocabulary)
      if (const int64_t text = rows_[begin + i].text; text >= 0)
        take(static_cast<size_t>(text), {logits, vocabulary});
  }
}

Outcome Decoder::step(std::span<Text> texts, const Take& take) {
  choose_rows(texts);
  if (rows_.empty()) return {};
  CLI_TRY(submit());
  return receive(take);
}

}  // namespace weft::cli
