// Samples in a file NAME.jsonl: each line is {"prompt": "...", "completion": "..."}, and only the
// completion is to be learned.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/samples.h"
#include "text/tokenizer.h"

namespace weft {

struct JsonSampleOptions {
  int64_t vocabulary = 0;
  int64_t length = 0;   // tokens of a row; the ids of a sample are at most one more
  int32_t end = -1;     // the token after a completion; -1: none
  double held_out = 0;  // share of the samples, at the end of the file; 1: all
};

inline bool is_json_samples(std::string_view path) { return path.ends_with(".jsonl"); }

// The ids of all samples are in memory.
class JsonSamples final : public SampleSource {
 public:
  // Fails for a sample that is too long or has no completion, with its line.
  static Result<JsonSamples> open(const std::string& path, const Tokenizer& tokenizer,
                                  const JsonSampleOptions& options);

  // The rest of a row is padding. Targets of the prompt and of padding are -1, which no loss
  // counts.
  int64_t evaluations() const override { return held_out_; }
  Status training(uint64_t seed, uint64_t step, uint64_t sample, int32_t* tokens,
                  int32_t* targets) const override;
  Status evaluation(int64_t index, int32_t* tokens, int32_t* targets) const override;

 private:
  struct Sample {
    size_t begin, answer, end;  // in ids_
  };

  Status add(std::string_view line, const Tokenizer& tokenizer, const JsonSampleOptions& options);
  Status check_lengths(const std::string& path, int64_t length) const;
  void write(const Sample& sample, int32_t* tokens, int32_t* targets) const;

  std::vector<int32_t> ids_;
  std::vector<Sample> samples_;
  int64_t length_ = 0, held_out_ = 0;
};

}  // namespace weft
