// Training data of the presets: windows of a token file, samples of a file, or synthetic ones.
#include <algorithm>
#include <numeric>

#include "api/handles.h"
#include "base/rng.h"
#include "io/json_samples.h"
#include "io/tokens.h"

using namespace weft;
using namespace weft::api;

struct weft_data {
  int64_t vocabulary = 0, seq_len = 0, width = 0;
  std::unique_ptr<SampleSource> train, eval;  // eval: null if `train` has the held-out samples
  int64_t cut = 0, skipped = 0;               // samples that were too long
  // Null: the data is synthetic.
  const SampleSource* held_out() const { return eval ? eval.get() : train.get(); }
};

namespace {

constexpr int64_t kSyntheticWindows = 64;
// A step number that no training step has, so that the run is not trained on held-out samples.
constexpr uint64_t kHeldOut = ~uint64_t{0};

// If the bytes of a text were read as ids of another vocabulary, or samples as a text, the model
// would be trained on wrong tokens without any error.
Status check_ids(const char* path, const weft_data_config& c) {
  if (!path) return {};
  const std::string_view name = path;
  if (c.tokenizer) {
    if (!name.ends_with(".json")) return {};
    return Status(Code::invalid, cat("data '", name,
                                     "': a file of samples is named NAME.jsonl, "
                                     "and has one in each line"));
  }
  if (is_json_samples(name))
    return Status(Code::invalid, cat("data '", name, "': samples of text need a tokenizer"));
  if (c.vocabulary == 256 || has_ids(name)) return {};
  return Status(Code::invalid, cat("data '", name, "': a vocabulary of ", c.vocabulary,
                                   " takes ids from NAME.u16 or NAME.u32, or a text with a "
                                   "tokenizer; bytes are for one of 256"));
}

Result<weft_data_config> check_data(const weft_data_config* config) {
  weft_data_config c;
  WEFT_TRY(require(config, "config"));
  WEFT_TRY(read_config(config, "weft_data_config", c));
  const bool tokens = c.vocabulary > 0 && c.seq_len > 0, rows = c.width > 0;
  if (c.vocabulary < 0 || c.seq_len < 0 || c.width < 0 || (!tokens && !rows))
    return Status(Code::invalid,
                  cat("weft_data_config: vocabulary is ", c.vocabulary, ", seq_len ", c.seq_len,
                      ", width ", c.width, "; expected vocabulary and seq_len, or width"));
  constexpr int64_t kMostIds = int64_t{1} << 31, kMostLength = int64_t{1} << 40;
  if (c.vocabulary > kMostIds || c.seq_len > kMostLength || c.width > kMostLength)
    return Status(Code::invalid, cat("weft_data_config: vocabulary is ", c.vocabulary, ", seq_len ",
                                     c.seq_len, ", width ", c.width, "; expected at most ",
                                     kMostIds, ", ", kMostLength, " and ", kMostLength));
  if (!(c.eval_share >= 0 && c.eval_share < 1))
    return Status(Code::invalid, cat("weft_data_config.eval_share is ", c.eval_share,
                                     ", expected 0 or more and less than 1"));
  for (const char* path : {c.path, c.eval_path})
    if (path && !tokens)
      return Status(Code::invalid,
                    cat("data '", path, "': this model takes no tokens; its data is synthetic"));
  if (c.end_token < -1 || c.end_token >= std::max<int64_t>(c.vocabulary, 1))
    return Status(Code::invalid, cat("weft_data_config.end_token is ", c.end_token,
                                     ", expected -1, or a token below ", c.vocabulary));
  WEFT_TRY(check_ids(c.path, c));
  WEFT_TRY(check_ids(c.eval_path, c));
  return c;
}

Result<LongSamples> long_samples_of(const weft_data_config& c) {
  switch (c.long_samples) {
    case WEFT_LONG_REFUSE: return LongSamples::refuse;
    case WEFT_LONG_CUT: return LongSamples::cut;
    case WEFT_LONG_SKIP: return LongSamples::skip;
  }
  return Status(Code::invalid, cat("weft_data_config.long_samples is ", uint32_t{c.long_samples},
                                   ", expected WEFT_LONG_REFUSE, WEFT_LONG_CUT or WEFT_LONG_SKIP"));
}

Result<JsonSampleOptions> sample_options(const weft_data_config& c) {
  WEFT_TRY_ASSIGN(const LongSamples long_samples, long_samples_of(c));
  return JsonSampleOptions{.vocabulary = c.vocabulary,
                           .length = c.seq_len,
                           .end = c.end_token,
                           .packed = c.packed != 0,
                           .long_samples = long_samples};
}

// `options` are of samples, but the share to hold out is that of any file.
Status open_source(const char* path, const weft_data_config& c, const JsonSampleOptions& options,
                   weft_data& data, std::unique_ptr<SampleSource>& out) {
  if (is_json_samples(path)) {
    JsonSampleOptions of_model = options;
    WEFT_TRY(c.tokenizer->ends.status());
    of_model.ends = c.tokenizer->ends.value();
    WEFT_TRY_ASSIGN(JsonSamples samples,
                    JsonSamples::open(path, *c.tokenizer->tokenizer, c.tokenizer->chat, of_model));
    data.cut += samples.cut();
    data.skipped += samples.skipped();
    out = std::make_unique<JsonSamples>(std::move(samples));
    return {};
  }
  const bool is_text = c.tokenizer && !has_ids(path);
  WEFT_TRY_ASSIGN(TokenFile file,
                  is_text ? TokenFile::encode(path, *c.tokenizer->tokenizer, c.vocabulary)
                          : TokenFile::open(path, c.vocabulary));
  WEFT_TRY_ASSIGN(Samples samples, Samples::make(std::move(file), c.seq_len, options.held_out));
  out = std::make_unique<Samples>(std::move(samples));
  return {};
}

// The tensors of one call: the same number of samples, and the shape of the data.
Result<int64_t> check_pair(const weft_data& data, const weft_tensor* x, const weft_tensor* target) {
  WEFT_TRY(require(x, "x"));
  WEFT_TRY(require(target, "target"));
  const bool tokens = data.vocabulary > 0;
  const Desc expected{tokens ? DType::i32 : DType::f32,
                      {x->desc.shape[0], tokens ? data.seq_len : data.width}};
  for (const weft_tensor* t : {x, target})
    if (!(t->desc == expected))
      return Status(Code::invalid,
                    cat("the data is ", expected.text(), ", a tensor ", t->desc.text()));
  return expected.shape[0];
}

Result<int64_t> check_positions(const weft_data& data, const weft_tensor* positions) {
  WEFT_TRY(require(positions, "positions"));
  if (data.vocabulary == 0) return Status(Code::invalid, "data of rows has no positions");
  const Desc expected{DType::i32, {positions->desc.shape[0], data.seq_len}};
  if (!(positions->desc == expected))
    return Status(Code::invalid, cat("the data is ", expected.text(), ", the positions are ",
                                     positions->desc.text()));
  return expected.shape[0];
}

// A row of tokens, targets or positions.
int32_t* row_of(const weft_data& data, const weft_tensor& tensor, int64_t row) {
  return static_cast<int32_t*>(tensor.data) + row * data.seq_len;
}

// Rows: x is drawn from N(0, 1). Its target is x shifted by one column, with 0 in place of negative
// values: a network of ReLUs can learn it.
void draw_row(const Stream& stream, uint64_t sample, int64_t width, float* x, float* target) {
  const uint64_t pairs = static_cast<uint64_t>(width + 1) / 2;
  for (int64_t i = 0; i < width; i += 2) {
    const auto two = stream.normal(sample * pairs + static_cast<uint64_t>(i / 2));
    x[i] = static_cast<float>(two[0]);
    if (i + 1 < width) x[i + 1] = static_cast<float>(two[1]);
  }
  for (int64_t i = 0; i < width; ++i) target[i] = std::max(x[(i + 1) % width], 0.0f);
}

// Tokens: count up from a drawn id in drawn increments of 1 to 8.
void draw_tokens(const Stream& stream, uint64_t sample, int64_t vocabulary, int64_t length,
                 int32_t* tokens, int32_t* targets) {
  int64_t id = static_cast<int64_t>(stream.below(2 * sample, static_cast<uint64_t>(vocabulary)));
  const int64_t stride = 1 + static_cast<int64_t>(stream.below(2 * sample + 1, 8));
  for (int64_t i = 0; i <= length; ++i, id = (id + stride) % vocabulary) {
    if (i < length) tokens[i] = static_cast<int32_t>(id);
    if (i > 0) targets[i - 1] = static_cast<int32_t>(id);
  }
}

// Samples from `first` on of the synthetic data of a step.
void draw(const weft_data& data, uint64_t seed, uint64_t step, int64_t first, int64_t samples,
          weft_tensor& x, weft_tensor& target) {
  const Stream stream = Stream::data(seed, step);
  for (int64_t j = 0; j < samples; ++j) {
    const uint64_t sample = static_cast<uint64_t>(first + j);
    if (data.vocabulary)
      draw_tokens(stream, sample, data.vocabulary, data.seq_len,
                  static_cast<int32_t*>(x.data) + j * data.seq_len,
                  static_cast<int32_t*>(target.data) + j * data.seq_len);
    else
      draw_row(stream, sample, data.width, static_cast<float*>(x.data) + j * data.width,
               static_cast<float*>(target.data) + j * data.width);
  }
}

int64_t eval_windows(const weft_data& data) {
  return data.held_out() ? data.held_out()->evaluations() : kSyntheticWindows;
}

Status check_trains(const weft_data& data) {
  if (data.train || !data.eval) return {};
  return Status(Code::invalid, "the data has no path for training, only eval_path");
}

// How many of so many windows from `first` on there are. Those of tokens may be fewer.
Result<int64_t> check_held_out(const weft_data& data, int64_t first, int64_t samples) {
  const int64_t all = eval_windows(data);
  const bool rows = data.vocabulary == 0;
  if (first < 0 || (samples > 0 && first >= all) || (rows && first > all - samples))
    return Status(Code::invalid, cat(samples, " held-out windows from ", first,
                                     " on are asked for, there are ", all));
  return std::clamp<int64_t>(all - first, 0, samples);
}

}  // namespace

weft_status weft_data_open(const weft_data_config* config, weft_data** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(out, "out"));
    WEFT_TRY_ASSIGN(const weft_data_config c, check_data(config));
    auto data = std::make_unique<weft_data>();
    data->vocabulary = c.seq_len > 0 ? c.vocabulary : 0;
    data->seq_len = c.seq_len;
    data->width = c.width;
    WEFT_TRY_ASSIGN(JsonSampleOptions options, sample_options(c));
    options.held_out = c.eval_path ? 0 : c.eval_share;
    if (c.path) WEFT_TRY(open_source(c.path, c, options, *data, data->train));
    options.held_out = 1;
    if (c.eval_path) WEFT_TRY(open_source(c.eval_path, c, options, *data, data->eval));
    *out = data.release();
    return {};
  });
}

void weft_data_free(weft_data* data) { delete data; }

weft_status weft_data_sample(const weft_data* data, uint64_t seed, uint64_t step, weft_tensor* x,
                             weft_tensor* target, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(data, "data"));
    WEFT_TRY_ASSIGN(const int64_t samples, check_pair(*data, x, target));
    WEFT_TRY(check_trains(*data));
    if (!data->train) {
      draw(*data, seed, step, 0, samples, *x, *target);
      return {};
    }
    for (int64_t j = 0; j < samples; ++j)
      WEFT_TRY(data->train->read(data->train->training(seed, step, j, samples),
                                 row_of(*data, *x, j), row_of(*data, *target, j)));
    return {};
  });
}

weft_status weft_data_positions(const weft_data* data, uint64_t seed, uint64_t step,
                                weft_tensor* positions, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(data, "data"));
    WEFT_TRY_ASSIGN(const int64_t samples, check_positions(*data, positions));
    WEFT_TRY(check_trains(*data));
    for (int64_t j = 0; j < samples; ++j) {
      int32_t* row = row_of(*data, *positions, j);
      if (data->train)
        data->train->positions(data->train->training(seed, step, j, samples), row);
      else
        std::iota(row, row + data->seq_len, 0);
    }
    return {};
  });
}

int64_t weft_data_windows(const weft_data* data) {
  return data && data->train ? data->train->trainings() : 0;
}

int64_t weft_data_cut_samples(const weft_data* data) { return data ? data->cut : 0; }

int64_t weft_data_skipped_samples(const weft_data* data) { return data ? data->skipped : 0; }

int64_t weft_data_eval_windows(const weft_data* data) { return data ? eval_windows(*data) : 0; }

weft_status weft_data_eval(const weft_data* data, int64_t first, weft_tensor* x,
                           weft_tensor* target, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(data, "data"));
    WEFT_TRY_ASSIGN(const int64_t samples, check_pair(*data, x, target));
    WEFT_TRY_ASSIGN(const int64_t held, check_held_out(*data, first, samples));
    const SampleSource* source = data->held_out();
    if (!source) draw(*data, 0, kHeldOut, first, held, *x, *target);
    for (int64_t j = 0; j < held && source; ++j)
      WEFT_TRY(source->read(source->evaluation(first + j), row_of(*data, *x, j),
                            row_of(*data, *target, j)));
    std::fill(row_of(*data, *x, held), row_of(*data, *x, samples), 0);
    std::fill(row_of(*data, *target, held), row_of(*data, *target, samples), -1);
    return {};
  });
}

weft_status weft_data_eval_positions(const weft_data* data, int64_t first, weft_tensor* positions,
                                     weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(data, "data"));
    WEFT_TRY_ASSIGN(const int64_t samples, check_positions(*data, positions));
    WEFT_TRY_ASSIGN(const int64_t held, check_held_out(*data, first, samples));
    const SampleSource* source = data->held_out();
    for (int64_t j = 0; j < samples; ++j) {
      int32_t* row = row_of(*data, *positions, j);
      if (j >= held)
        std::fill_n(row, data->seq_len, 0);
      else if (source)
        source->positions(source->evaluation(first + j), row);
      else
        std::iota(row, row + data->seq_len, 0);
    }
    return {};
  });
}
