#include "io/tokens.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "base/text.h"

namespace weft {

namespace {

uint32_t width_of(std::string_view path) {
  return path.ends_with(".u32") ? 4 : path.ends_with(".u16") ? 2 : 1;
}

uint32_t id_at(const unsigned char* bytes, uint32_t width) {
  uint32_t id = 0;
  for (uint32_t i = 0; i < width; ++i) id |= uint32_t{bytes[i]} << (8 * i);
  return id;
}

Status check_vocabulary(const std::string& path, int64_t vocabulary) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (vocabulary >= 1 && vocabulary <= kMost) return {};
  return Status(Code::invalid,
                cat(path, ": vocabulary is ", vocabulary, ", expected 1 to ", kMost));
}

}  // namespace

bool has_ids(std::string_view path) { return width_of(path) > 1; }

Result<TokenFile> TokenFile::open(const std::string& path, int64_t vocabulary) {
  WEFT_TRY(check_vocabulary(path, vocabulary));
  TokenFile out;
  WEFT_TRY_ASSIGN(out.file_, File::open(path));
  WEFT_TRY_ASSIGN(const uint64_t bytes, out.file_.size());
  out.path_ = path;
  out.vocabulary_ = vocabulary;
  out.width_ = width_of(path);
  if (bytes % out.width_ != 0)
    return Status(Code::data,
                  cat(path, ": has ", bytes, " bytes, expected a multiple of ", out.width_));
  out.size_ = static_cast<int64_t>(bytes / out.width_);
  if (vocabulary < int64_t{1} << (8 * out.width_)) WEFT_TRY(out.check_ids());
  return out;
}

Result<TokenFile> TokenFile::encode(const std::string& path, const Tokenizer& tokenizer,
                                    int64_t vocabulary) {
  constexpr size_t kMostBytes = size_t{1} << 36;
  WEFT_TRY(check_vocabulary(path, vocabulary));
  WEFT_TRY_ASSIGN(const std::string text, read_text(path, kMostBytes));
  TokenFile out;
  out.path_ = path;
  out.vocabulary_ = vocabulary;
  if (const Status status = tokenizer.encode(text, {}, out.ids_); !status.ok())
    return status.within(path);
  out.ids_.shrink_to_fit();
  out.size_ = static_cast<int64_t>(out.ids_.size());
  const Status known = out.check_ids();
  if (known.ok()) return out;
  return Status(known.code(),
                cat(known.text(), "; the tokenizer has ", tokenizer.size(), " tokens"));
}

Status TokenFile::check_ids() const {
  std::vector<int32_t> ids(1 << 16);
  const auto most = static_cast<int64_t>(ids.size());
  for (int64_t at = 0; at < size_; at += most)
    WEFT_TRY(window(at, std::min(size_ - at, most), ids.data()));
  return {};
}

Status TokenFile::check_id(int64_t place, uint32_t id) const {
  if (id < vocabulary_) return {};
  return Status(Code::data, cat(path(), ": token ", place, " is ", id, ", expected 0 to ",
                                vocabulary_ - 1, " for a vocabulary of ", vocabulary_));
}

Status TokenFile::window(int64_t offset, int64_t length, int32_t* out) const {
  if (offset < 0 || length < 0 || offset > size_ || length > size_ - offset)
    return Status(Code::invalid, cat(path(), ": tokens ", offset, " to ", offset, " + ", length,
                                     " were requested, but it has ", size_));
  if (ids_.empty()) return read(offset, length, out);
  for (int64_t i = 0; i < length; ++i) {
    const uint32_t id = ids_[static_cast<size_t>(offset + i)];
    WEFT_TRY(check_id(offset + i, id));
    out[i] = static_cast<int32_t>(id);
  }
  return {};
}

Status TokenFile::read(int64_t offset, int64_t length, int32_t* out) const {
  unsigned char block[1 << 14];
  const int64_t at_once = static_cast<int64_t>(sizeof block / width_);
  for (int64_t done = 0; done < length; done += at_once) {
    const int64_t count = std::min(length - done, at_once);
    WEFT_TRY(file_.read(static_cast<uint64_t>(offset + done) * width_, block,
                        static_cast<size_t>(count) * width_));
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t id = id_at(block + i * width_, width_);
      WEFT_TRY(check_id(offset + done + i, id));
      out[done + i] = static_cast<int32_t>(id);
    }
  }
  return {};
}

Result<Samples> Samples::make(TokenFile file, int64_t length, double held_out) {
  if (length < 1 || length == std::numeric_limits<int64_t>::max())
    return Status(Code::invalid, cat("a sample has ", length, " tokens, expected 1 or more"));
  if (!(held_out >= 0 && held_out <= 1))
    return Status(Code::invalid, cat("held-out share is ", held_out, ", expected 0 to 1"));
  Samples out;
  out.length_ = length;
  out.boundary_ =
      file.size() - static_cast<int64_t>(std::floor(static_cast<double>(file.size()) * held_out));
  const int64_t held = file.size() - out.boundary_;
  if (out.boundary_ <= length && held_out < 1)
    return Status(Code::invalid, cat(file.path(), ": ", out.boundary_, " of its ", file.size(),
                                     " tokens are for training, but a sample of ", length,
                                     " and its targets take ", length + 1));
  if (held_out > 0 && held < 2)
    return Status(Code::invalid, cat(file.path(), ": ", held, " of its ", file.size(),
                                     " tokens are for evaluation, expected at least 2"));
  out.evaluations_ = out.windows(held);
  out.file_ = std::move(file);
  return out;
}

int64_t Samples::training(uint64_t seed, uint64_t step, int64_t sample, int64_t) const {
  return static_cast<int64_t>(
      Stream::data(seed, step)
          .below(static_cast<uint64_t>(sample), static_cast<uint64_t>(starts())));
}

void Samples::positions(int64_t, int32_t* out) const { std::iota(out, out + length_, 0); }

Status Samples::read(int64_t offset, int32_t* tokens, int32_t* targets) const {
  const int64_t count = std::min(length_, file_.size() - 1 - offset);
  WEFT_TRY(file_.window(offset, count, tokens));
  std::memcpy(targets, tokens + 1, static_cast<size_t>(count - 1) * sizeof *tokens);
  WEFT_TRY(file_.window(offset + count, 1, targets + count - 1));
  std::fill(tokens + count, tokens + length_, 0);
  std::fill(targets + count, targets + length_, -1);
  return {};
}

}  // namespace weft
