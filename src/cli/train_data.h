// The data of `weft train` and `weft eval`.
#pragma once

#include "cli/build.h"
#include "cli/json.h"
#include "cli/stored_options.h"

namespace weft::cli {

// The value of --data that generates data from the seed.
inline constexpr const char* kSynthetic = "synthetic";

// Whether a file has samples, one per line.
inline bool is_json(std::string_view file) { return file.ends_with(".jsonl"); }

struct DataOptions {
  std::string file, eval;  // --data; empty: none is named
  std::string tokenizer;   // for files of text; empty: there is none
  std::string long_samples = "refuse";

  bool has_json() const { return is_json(file) || is_json(eval); }
};

void add_long_samples_option(StoredOptions& settings, std::string& value);
// "long samples: 3 cut, 2 skipped", training and held out, or an empty text if there were none.
std::string long_samples_text(const weft_data* data);
// The same as "cut_samples" and "skipped_samples".
void add_long_samples(const weft_data* data, JsonObject& out);

// The samples of a step.
inline int64_t samples_of_step(const PlanOptions& plan) {
  return int64_t{plan.micro_batches} * plan.micro_batch_size;
}

// `ends`: tokens that end texts of the model. `trains`: the run makes steps, so that it needs data.
Outcome open_data(const DataOptions& options, const weft_preset_info& model,
                  std::span<const int32_t> ends, uint32_t micro_batch_size, bool trains,
                  DataPtr& out);
// Sets the steps of so many epochs, of data that has been opened.
Outcome steps_of_epochs(uint64_t epochs, const weft_data* data, const PlanOptions& plan,
                        uint64_t& steps);

// Opens only the file `options.eval`.
Outcome open_held_out(const DataOptions& options, const weft_preset_info& model,
                      std::span<const int32_t> ends, DataPtr& out);

// The inputs of a model: tokens, targets, and positions if samples are packed.
inline size_t inputs_of(const ModelOptions& model) { return model.packed ? 3 : 2; }
// Steps of an evaluation that are queued, so that they overlap on the ranks.
constexpr size_t kQueuedEvaluations = 2;
Outcome submit(weft_run* run, std::span<const TensorPtr> inputs, weft_step_mode mode,
               uint64_t step);

// The samples of a step, for inputs of make_inputs().
Outcome fill_samples(const weft_data* data, uint64_t seed, uint64_t step,
                     std::span<const TensorPtr> inputs);
// Held-out windows from `first` on.
Outcome fill_held_out(const weft_data* data, int64_t first, std::span<const TensorPtr> inputs);

}  // namespace weft::cli
