#include "io/json_samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/fault.h"
#include "base/rng.h"
#include "base/text.h"
#include "io/file.h"
#include "io/packing.h"

namespace weft {

namespace {

constexpr size_t kMostBytes = size_t{1} << 34;  // of a file

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

// check_lengths() refuses what `refuse` leaves as it is.
bool JsonSamples::fit(SampleIds& sample, LongSamples long_samples) {
  const auto most = static_cast<size_t>(length_) + 1;
  if (sample.ids.size() <= most || long_samples == LongSamples::refuse) return true;
  const bool is_used = long_samples == LongSamples::cut && sample.cut(most);
  ++(is_used ? cut_ : skipped_);
  return is_used;
}

void JsonSamples::add(const SampleIds& sample) {
  const size_t begin = ids_.size();
  ids_.insert(ids_.end(), sample.ids.begin(), sample.ids.end());
  learned_.insert(learned_.end(), sample.learned.begin(), sample.learned.end());
  samples_.push_back({begin, ids_.size()});
}

// One message for all of them: the user changes the file, or the length, once.
Status JsonSamples::check_lengths(const std::string& path) const {
  const size_t most = static_cast<size_t>(length_);
  const auto too_long = [&](const Sample& sample) { return sample.tokens() > most; };
  const auto first = std::find_if(samples_.begin(), samples_.end(), too_long);
  if (first == samples_.end()) return {};
  const auto longest =
      std::max_element(samples_.begin(), samples_.end(),
                       [](const Sample& a, const Sample& b) { return a.tokens() < b.tokens(); });
  return fault(cat(path, ": sample ", first - samples_.begin() + 1, " has ", first->tokens() + 1,
                   " tokens, expected at most ", most + 1, " for sequences of ", length_, "; ",
                   std::count_if(first, samples_.end(), too_long), " of ", samples_.size(),
                   " samples are longer, the longest has ", longest->tokens() + 1,
                   "; long_samples (--long-samples) cuts or skips them"));
}

// " (and 2 with more than 9 tokens)", or an empty text.
std::string JsonSamples::skipped_text(const JsonSampleOptions& options) const {
  if (skipped_ == 0) return "";
  const bool cuts = options.long_samples == LongSamples::cut;
  return cat(" (and ", skipped_, cuts ? " without a target in the first " : " with more than ",
             options.length + 1, " tokens)");
}

void JsonSamples::add_windows(size_t begin, size_t end, bool packed) {
  std::vector<size_t> lengths;
  for (size_t i = begin; i < end; ++i) lengths.push_back(samples_[i].tokens());
  std::vector<std::vector<size_t>> windows;
  if (packed)
    windows = pack_windows(lengths, static_cast<size_t>(length_));
  else
    for (size_t i = 0; i < lengths.size(); ++i) windows.push_back({i});
  for (std::vector<size_t>& window : windows) {
    for (size_t& sample : window) sample += begin;
    windows_.push_back(std::move(window));
  }
}

Result<JsonSamples> JsonSamples::open(const std::string& path, const Tokenizer& tokenizer,
                                      const Result<ChatSource>& chat,
                                      const JsonSampleOptions& options) {
  WEFT_TRY_ASSIGN(const std::string text, read_text(path, kMostBytes));
  JsonSamples out;
  out.length_ = options.length;
  const SampleReader reader(tokenizer, chat, options.vocabulary, options.end, options.ends);
  size_t number = 0;
  std::string_view rest = text;
  if (constexpr std::string_view kMark = "\xef\xbb\xbf"; rest.starts_with(kMark))  // a BOM
    rest.remove_prefix(kMark.size());
  while (!rest.empty()) {
    const std::string_view line = take_item(rest, '\n');
    ++number;
    if (is_blank(line)) continue;
    WEFT_TRY_ASSIGN(SampleIds sample, reader.read(line).within(cat(path, ": line ", number)));
    if (out.fit(sample, options.long_samples)) out.add(sample);
  }
  WEFT_TRY(out.check_lengths(path));
  const size_t count = out.samples_.size();
  const auto held = static_cast<size_t>(std::floor(static_cast<double>(count) * options.held_out));
  const bool trains = options.held_out < 1;
  const bool evaluates = options.held_out > 0;
  if ((trains && count == held) || (evaluates && held == 0))
    return fault(cat(path, ": has ", count, " samples", out.skipped_text(options), ", of which ",
                     held, " are held out, expected at least 1", trains ? " for training" : "",
                     evaluates ? cat(trains ? " and 1" : "", " held out") : ""));
  out.add_windows(0, count - held, options.packed);
  out.trained_ = out.windows();
  out.add_windows(count - held, count, options.packed);
  return out;
}

int64_t JsonSamples::training(uint64_t seed, uint64_t step, int64_t sample, int64_t samples) const {
  const auto count = static_cast<uint64_t>(trained_);
  const uint64_t number = step * static_cast<uint64_t>(samples) + static_cast<uint64_t>(sample);
  const Stream pass = Stream::data(seed, number / count);
  return static_cast<int64_t>(pass.shuffled(number % count, count));
}

Status JsonSamples::read(int64_t window, int32_t* tokens, int32_t* targets) const {
  constexpr int32_t kPadding = 0, kNotCounted = -1;
  std::fill_n(tokens, length_, kPadding);
  std::fill_n(targets, length_, kNotCounted);
  for (const size_t number : windows_[static_cast<size_t>(window)]) {
    const Sample& sample = samples_[number];
    for (size_t i = sample.begin; i + 1 < sample.end; ++i) {
      *tokens++ = ids_[i];
      *targets++ = learned_[i + 1] ? ids_[i + 1] : kNotCounted;
    }
  }
  return {};
}

void JsonSamples::positions(int64_t window, int32_t* out) const {
  std::fill_n(out, length_, 0);
  for (const size_t number : windows_[static_cast<size_t>(window)]) {
    const size_t tokens = samples_[number].tokens();
    std::iota(out, out + tokens, 0);
    out += tokens;
  }
}

}  // namespace weft
