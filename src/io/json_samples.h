// Samples in a file NAME.jsonl, one per line (sample_reader.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/sample_reader.h"
#include "io/samples.h"

namespace weft {

// Of samples with more ids than a window has room for. What follows the last target before a cut is
// left out, too, and so are samples that have none.
enum class LongSamples { refuse, cut, skip };

struct JsonSampleOptions {
  int64_t vocabulary = 0;
  int64_t length = 0;              // tokens of a window; the ids of a sample are at most one more
  int32_t end = -1;                // the token after a completion or text; -1: none
  std::vector<int32_t> ends = {};  // tokens after which `end` is not added
  bool packed = false;             // a window may have several samples
  LongSamples long_samples = LongSamples::refuse;
  double held_out = 0;  // share of the samples, at the end of the file; 1: all
};

inline bool is_json_samples(std::string_view path) { return path.ends_with(".jsonl"); }

// Windows of whole samples; places are their numbers. The ids of all samples are in memory.
class JsonSamples final : public SampleSource {
 public:
  // Fails for a sample that has no answer, with its line, or that is too long. `chat`: the template
  // for messages, or why there is none.
  static Result<JsonSamples> open(const std::string& path, const Tokenizer& tokenizer,
                                  const Result<ChatSource>& chat, const JsonSampleOptions& options);

  int64_t trainings() const override { return trained_; }
  int64_t evaluations() const override { return windows() - trained_; }
  // Each window once before any comes again, in an order that is drawn for each pass.
  int64_t training(uint64_t seed, uint64_t step, int64_t sample, int64_t samples) const override;
  int64_t evaluation(int64_t index) const override { return trained_ + index; }
  // The rest of a window is padding, at position 0. Targets that are not learned are -1, which no
  // loss counts.
  Status read(int64_t window, int32_t* tokens, int32_t* targets) const override;
  void positions(int64_t window, int32_t* out) const override;

  int64_t cut() const { return cut_; }
  int64_t skipped() const { return skipped_; }

 private:
  struct Sample {
    size_t begin, end;  // in ids_
    // The last id is only a target.
    size_t tokens() const { return end - begin - 1; }
  };

  // Cuts a sample that is too long. False: it is left out.
  bool fit(SampleIds& sample, LongSamples long_samples);
  void add(const SampleIds& sample);
  Status check_lengths(const std::string& path) const;
  std::string skipped_text(const JsonSampleOptions& options) const;
  void add_windows(size_t begin, size_t end, bool packed);
  int64_t windows() const { return static_cast<int64_t>(windows_.size()); }

  std::vector<int32_t> ids_;
  std::vector<bool> learned_;  // which ids are
  std::vector<Sample> samples_;
  std::vector<std::vector<size_t>> windows_;  // the samples of each
  int64_t length_ = 0;
  int64_t cut_ = 0, skipped_ = 0;  // samples that were too long
  int64_t trained_ = 0;            // windows for training, before those that are held out
};

}  // namespace weft
