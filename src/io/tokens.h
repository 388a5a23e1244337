// Training data: a file of token ids, and which of them make up a sample.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "io/file.h"

namespace weft {

// Ids in a file without header: `*.u16` and `*.u32` little-endian, in any other file one byte each.
// Read window by window, so that the file may be larger than memory.
class TokenFile {
 public:
  // Reads the file once to check that every id is 0 to vocabulary - 1, unless the width of an id
  // says so.
  static Result<TokenFile> open(const std::string& path, int64_t vocabulary);

  const std::string& path() const { return file_.path(); }
  int64_t size() const { return size_; }  // in tokens
  // The ids from offset to offset + length, checked again, for the file may have changed. On
  // failure `out` may be overwritten in part.
  Status window(int64_t offset, int64_t length, int32_t* out) const;

 private:
  Status check_ids() const;

  File file_;
  int64_t vocabulary_ = 0, size_ = 0;
  uint32_t width_ = 1;  // bytes of an id
};

// Samples of `length` tokens, each with the targets that follow them by one. The end of the file is
// held out: training never sees it, evaluation sees nothing else.
class Samples {
 public:
  // held_out: share of the file, in [0, 1). Fails if the file is too short for one training sample
  // or, with a share above 0, for one of evaluation.
  static Result<Samples> make(TokenFile file, int64_t length, double held_out);

  int64_t length() const { return length_; }
  int64_t positions() const { return boundary_ - length_; }  // where a training sample may begin
  int64_t evaluations() const { return evaluations_; }

  // Where the sample begins; a function of these numbers alone, so a resumed run goes on with the
  // data it had not seen.
  int64_t position(uint64_t seed, uint64_t step, uint64_t sample) const;
  // `length` tokens and targets each.
  Status training(uint64_t seed, uint64_t step, uint64_t sample, int32_t* tokens,
                  int32_t* targets) const;
  // Windows follow one another: each held-out token but the first is a target once, save a rest too
  // short for a window.
  Status evaluation(int64_t index, int32_t* tokens, int32_t* targets) const;

 private:
  Status read(int64_t offset, int32_t* tokens, int32_t* targets) const;

  TokenFile file_;
  int64_t length_ = 0, boundary_ = 0, evaluations_ = 0;
};

}  // namespace weft
