// Training data: a file of token ids or of text, and the selection of samples.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/file.h"
#include "io/samples.h"
#include "text/tokenizer.h"

namespace weft {

// Whether the name is that of a file of ids: NAME.u16 or NAME.u32.
bool has_ids(std::string_view path);

// Ids in a file without header: `*.u16` and `*.u32` little-endian, in any other file one byte each.
// Read in windows, so that the file can be larger than memory.
class TokenFile {
 public:
  // Reads the file once to check that every id is 0 to vocabulary - 1, unless the width of an id
  // guarantees it.
  static Result<TokenFile> open(const std::string& path, int64_t vocabulary);
  // A text in UTF-8. Its ids are in memory.
  static Result<TokenFile> encode(const std::string& path, const Tokenizer& tokenizer,
                                  int64_t vocabulary);

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // in tokens
  // The ids from offset to offset + length, checked again, because the file may have changed. On
  // failure `out` may be partly overwritten.
  Status window(int64_t offset, int64_t length, int32_t* out) const;

 private:
  Status check_ids() const;
  Status read(int64_t offset, int64_t length, int32_t* out) const;
  Status check_id(int64_t place, uint32_t id) const;

  std::string path_;
  File file_;
  std::vector<uint32_t> ids_;  // of a text
  int64_t vocabulary_ = 0, size_ = 0;
  uint32_t width_ = 1;  // bytes of an id
};

// Samples of `length` tokens, each with the targets that follow them by one. The end of the file is
// held out: training never uses it, and evaluation uses only this part.
class Samples final : public SampleSource {
 public:
  // held_out: share of the file, in [0, 1]. Fails if the file is too short for one training sample,
  // except with a share of 1, or, with a share above 0, for one target of evaluation.
  static Result<Samples> make(TokenFile file, int64_t length, double held_out);

  int64_t length() const { return length_; }
  int64_t starts() const { return boundary_ - length_; }  // where a training sample may begin
  // Adjacent windows, as for evaluation. Training draws as many, but at any offset.
  int64_t trainings() const override { return windows(boundary_); }
  int64_t evaluations() const override { return evaluations_; }

  // Places are offsets in the file.
  int64_t training(uint64_t seed, uint64_t step, int64_t sample, int64_t samples) const override;
  // Windows are adjacent: each held-out token except the first is a target once. What is missing in
  // the last one is padding, with targets of -1.
  int64_t evaluation(int64_t index) const override { return boundary_ + index * length_; }
  Status read(int64_t offset, int32_t* tokens, int32_t* targets) const override;
  void positions(int64_t offset, int32_t* out) const override;

 private:
  // That have each of so many tokens, except the first, as a target.
  int64_t windows(int64_t tokens) const { return tokens > 1 ? (tokens - 2) / length_ + 1 : 0; }

  TokenFile file_;
  int64_t length_ = 0, boundary_ = 0, evaluations_ = 0;
};

}  // namespace weft
