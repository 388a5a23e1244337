// Computes the logits of texts token by token: keeps which of their tokens the cache of a run has,
// and packs the others into forward steps.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "cli/build.h"
#include "cli/launch.h"

namespace weft::cli {

struct DecoderOptions {
  uint32_t texts = 1;   // in the cache at the same time
  uint32_t stages = 1;  // of the pipeline
  uint32_t tensor = 1;  // ranks that share a stage
  int64_t context = 0;  // tokens of a text
  bool bf16_cache = false;
  std::string precision = "f32";
};

// A text in a place of the cache.
struct Text {
  std::vector<int32_t> tokens;
  uint32_t place = 0;
  bool live = true;   // needs the logits of its last token
  size_t first = 0;   // the token at position 0
  size_t cached = 0;  // tokens from the first on
  size_t waiting() const { return tokens.size() - first - cached; }
};

class Decoder {
 public:
  // `built` is the preset, and its checkpoint; it becomes the decoder and its plan.
  Outcome prepare(const DecoderOptions& options, Built& built);
  const weft_plan* plan() const { return built_->plan.get(); }
  void use(weft_run* run) { run_ = run; }
  int64_t context() const { return built_->info.seq_len; }

  // Runs one forward step for live texts. Calls take(text, logits) for those whose tokens it has
  // completed; the logits may be changed.
  using Take = std::function<void(size_t text, std::span<float> logits)>;
  Outcome step(std::span<Text> texts, const Take& take);

 private:
  // A row of a step: a token of a text, or padding.
  struct Row {
    int32_t token = 0, position = 0, place = -1;
    int64_t text = -1;  // that gets the logits of the row
  };

  void choose_rows(std::span<Text> texts);
  Outcome submit();
  Outcome receive(const Take& take);

  Built* built_ = nullptr;
  weft_run* run_ = nullptr;
  uint32_t groups_ = 1;          // of texts, in different micro-batches
  size_t full_ = 0, small_ = 0;  // rows of a micro-batch
  bool small_only_ = false;      // the step has short micro-batches only
  std::vector<Row> rows_;
  TensorPtr inputs_[3];
};

}  // namespace weft::cli
