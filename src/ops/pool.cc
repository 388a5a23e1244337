// max_pool, average_pool: x f32[.., h, w, c] with samples in front, out f32[.., h', w', c]: the
// greatest element, or the mean, of square windows. attrs.dims are size, stride (if missing, the
// size) and padding (if missing, 0). The padding is 0 for average_pool, and is not an element for
// max_pool, which keeps the place of the first greatest element in the image; NaN counts as
// greatest. I gathers what each element of x gets, in the order of the windows.
#include <algorithm>
#include <limits>

#include "kernels/elementwise.h"
#include "kernels/ranges.h"
#include "ops/check.h"
#include "ops/window.h"

namespace weft {

namespace {

struct Sizes {
  Window rows, columns;
  int64_t samples, channels;

  Sizes(const Attrs& attrs, const Shape& x)
      : rows(window(attrs, x[x.rank - 3])),
        columns(window(attrs, x[x.rank - 2])),
        samples(x.elements(0, x.rank - 3)),
        channels(x.last()) {}

  int64_t x_at(int64_t sample, int64_t row, int64_t column) const {
    return ((sample * rows.extent + row) * columns.extent + column) * channels;
  }
  int64_t out_at(int64_t sample, int64_t row, int64_t column) const {
    return ((sample * rows.count() + row) * columns.count() + column) * channels;
  }
  // The rows or columns that a window sees.
  static Span seen(const Window& window, int64_t at) {
    const int64_t first = window.position(0, at);
    return Span{first, first + window.taps}.within({0, window.extent});
  }
  // The windows that see a row or column.
  static Span seeing(const Window& window, int64_t index) {
    return {window.seeing(window.taps - 1, index, index + 1).begin,
            std::min(window.count(), (index + window.padding) / window.stride + 1)};
  }

 private:
  static Window window(const Attrs& attrs, int64_t extent) {
    const Shape& dims = attrs.dims;
    return {extent, dims[0], dims.rank > 1 ? dims[1] : dims[0], dims.rank > 2 ? dims[2] : 0};
  }
};

// body(sample, row, column) for all places of an image of that size.
template <typename F>
void for_places(const Call& call, const Sizes& s, int64_t rows, int64_t columns, F&& body) {
  // A place sees no more of a window than the image has.
  const int64_t seen =
      std::min(s.rows.taps, s.rows.extent) * std::min(s.columns.taps, s.columns.extent);
  const int64_t work = columns * s.channels * seen;
  for_ranges(*call.tiles, s.samples * rows, tile_rows(work), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t column = 0; column < columns; ++column) body(i / rows, i % rows, column);
  });
}

class Pool : public Op {
 public:
  explicit Pool(std::string_view name) : name_(name) {}

  std::string_view name() const override { return name_; }
  uint32_t reads() const override { return kDims; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 0));
    const Desc& x = in[0].desc;
    WEFT_TRY(check_dtype(0, x, DType::f32));
    WEFT_TRY(check_last_axes(0, in[0], 3));
    const Shape& dims = attrs.dims;
    const auto within = [&](int i, int64_t least, int64_t most) {
      return i >= dims.rank || (dims[i] >= least && dims[i] <= most);
    };
    if (dims.rank < 1 || dims.rank > 3 || !within(0, 1, kMostWindow) ||
        !within(1, 1, kMostWindow) || !within(2, 0, dims[0] / 2))
      return Status(Code::invalid, cat("dims are ", dims.text(),
                                       ", expected size (1 or more), stride (1 or more) and "
                                       "padding (0 to half the size), each at most ",
                                       kMostWindow));
    const Sizes s(attrs, x.shape);
    if (s.rows.count() < 1 || s.columns.count() < 1 || s.rows.extent < 1 || s.columns.extent < 1)
      return Status(Code::invalid, cat("input 0 expects ", std::max<int64_t>(s.rows.least(), 1),
                                       " rows and columns or more, got ", x.text()));
    if (s.rows.extent > most_places() / s.columns.extent)
      return Status(Code::invalid, cat("input 0 expects at most ", most_places(),
                                       " rows times columns, got ", x.text()));
    Desc out = x;
    out.shape[x.shape.rank - 3] = s.rows.count();
    out.shape[x.shape.rank - 2] = s.columns.count();
    return Inferred{.out = out, .stash = stash(out), .scratch = 0};
  }

  Cost cost(const Attrs& attrs, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    const auto n = static_cast<double>(out.elements()) * static_cast<double>(attrs.dims[0]) *
                   static_cast<double>(attrs.dims[0]);
    return {.forward_flops = n, .input_flops = n, .weight_flops = 0};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const Sizes s(*call.attrs, call.din[0].desc.shape);
    for_places(call, s, s.rows.extent, s.columns.extent,
               [&](int64_t sample, int64_t row, int64_t column) {
                 float* dx = call.din[0].f32() + s.x_at(sample, row, column);
                 std::fill_n(dx, s.channels, 0.0f);
                 const Span rows = Sizes::seeing(s.rows, row);
                 const Span columns = Sizes::seeing(s.columns, column);
                 for (int64_t r = rows.begin; r < rows.end; ++r)
                   for (int64_t c = columns.begin; c < columns.end; ++c)
                     add_grad(call, s.out_at(sample, r, c), row * s.columns.extent + column,
                              s.channels, dx);
                 finish(s, dx);
               });
    return {};
  }

 protected:
  // That the op can number.
  virtual int64_t most_places() const { return std::numeric_limits<int64_t>::max(); }
  virtual std::vector<Desc> stash(const Desc& out) const {
    (void)out;
    return {};
  }
  // Adds what a window at `out` gives to the element at `place` of its image.
  virtual void add_grad(const Call& call, int64_t out, int64_t place, int64_t channels,
                        float* dx) const = 0;
  virtual void finish(const Sizes& s, float* sums) const {
    (void)s;
    (void)sums;
  }

 private:
  const std::string_view name_;
};

class AveragePool final : public Pool {
 public:
  AveragePool() : Pool("average_pool") {}

  Status forward(const Call& call) const override {
    const Sizes s(*call.attrs, call.in[0].desc.shape);
    for_places(call, s, s.rows.count(), s.columns.count(),
               [&](int64_t sample, int64_t row, int64_t column) {
                 float* out = call.out.f32() + s.out_at(sample, row, column);
                 std::fill_n(out, s.channels, 0.0f);
                 const Span rows = Sizes::seen(s.rows, row);
                 const Span columns = Sizes::seen(s.columns, column);
                 for (int64_t r = rows.begin; r < rows.end; ++r)
                   for (int64_t c = columns.begin; c < columns.end; ++c)
                     kernels::add(out, call.in[0].f32() + s.x_at(sample, r, c), out, s.channels);
                 finish(s, out);
               });
    return {};
  }

 protected:
  void add_grad(const Call& call, int64_t out, int64_t, int64_t channels,
                float* dx) const override {
    kernels::add(dx, call.dout.f32() + out, dx, channels);
  }
  void finish(const Sizes& s, float* sums) const override {
    const double elements = static_cast<double>(s.rows.taps * s.columns.taps);
    kernels::scale(sums, static_cast<float>(1 / elements), sums, s.channels);
  }
};

class MaxPool final : public Pool {
 public:
  MaxPool() : Pool("max_pool") {}

  Uses uses_input(const Attrs&) const override { return {.in = 0, .out = false, .stash = true}; }

  Status forward(const Call& call) const override {
    const Sizes s(*call.attrs, call.in[0].desc.shape);
    for_places(call, s, s.rows.count(), s.columns.count(),
               [&](int64_t sample, int64_t row, int64_t column) {
                 const int64_t at = s.out_at(sample, row, column);
                 find(call, s, sample, Sizes::seen(s.rows, row), Sizes::seen(s.columns, column),
                      call.out.f32() + at, call.stash[0].i32() + at);
               });
    return {};
  }

 protected:
  std::vector<Desc> stash(const Desc& out) const override { return {{DType::i32, out.shape}}; }
  int64_t most_places() const override { return std::numeric_limits<int32_t>::max(); }

  void add_grad(const Call& call, int64_t out, int64_t place, int64_t channels,
                float* dx) const override {
    const float* dout = call.dout.f32() + out;
    const int32_t* places = call.stash[0].i32() + out;
    for (int64_t c = 0; c < channels; ++c)
      if (places[c] == place) dx[c] += dout[c];
  }

 private:
  static void find(const Call& call, const Sizes& s, int64_t sample, const Span& rows,
                   const Span& columns, float* top, int32_t* place) {
    bool first = true;
    for (int64_t r = rows.begin; r < rows.end; ++r)
      for (int64_t c = columns.begin; c < columns.end; ++c, first = false) {
        const float* x = call.in[0].f32() + s.x_at(sample, r, c);
        for (int64_t i = 0; i < s.channels; ++i) {
          if (!first && (x[i] <= top[i] || top[i] != top[i])) continue;
          top[i] = x[i];
          place[i] = static_cast<int32_t>(r * s.columns.extent + c);
        }
      }
  }
};

}  // namespace

const Op& average_pool_op() {
  static const AveragePool op;
  return op;
}

const Op& max_pool_op() {
  static const MaxPool op;
  return op;
}

}  // namespace weft
