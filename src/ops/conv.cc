// conv1d: x f32[.., t, in] with samples in front, out f32[.., t', out]. Weight 0 is [taps, in,
// out]. conv2d: x f32[.., h, w, in], out f32[.., h', w', out]; weight 0 is [rows of taps, columns
// of taps, in / groups, out]. Weight 1 is the bias [out] and may be missing. attrs.dims are stride,
// padding and dilation, along both axes of an image; missing ones count as 1, 0 and 1. conv2d has
// the number of groups after them: output channels of a group see the input channels of that group.
//
//   out[r] = bias + sum over taps k of x[r stride + k dilation - padding] W_k        x is 0 outside
//
// For one tap, the columns of a row of x that it sees lie at equal distances, so each tap is one
// product per row of x as it is stored with a slice of the weight, [in, out]: no patches are copied
// and no scratch is needed. The weight has its taps first (as in TensorFlow and JAX; PyTorch has
// them last) so that such a slice is a matrix. Taps are added in ascending order; forward and I
// give a block of columns of one row to a tile, W a block of one tap's slice. A conv1d is a conv2d
// of one row.
#include <algorithm>
#include <cstring>

#include "kernels/columns.h"
#include "kernels/gemm.h"
#include "kernels/ranges.h"
#include "ops/check.h"
#include "ops/window.h"

namespace weft {

namespace {

constexpr int64_t kBlock = 128;  // columns of out (forward) or x (I), or inputs of a tap's slice
                                 // (W), per tile ..
constexpr int64_t kTileWork =
    1000000;  // .. and more blocks of them where they cost fewer multiply-adds than this
constexpr int64_t kColumns = 256;  // of a bias, per tile

int64_t dim_or(const Attrs& attrs, int i, int64_t other) {
  return i < attrs.dims.rank ? attrs.dims[i] : other;
}

struct Sizes {
  Window rows, columns;
  int64_t samples, in, out, groups;

  // Of an x and a weight with `axes` axes of taps.
  Sizes(const Attrs& attrs, const Shape& x, const Shape& weight, int axes)
      : rows{1, 1},
        columns(window(attrs, x[x.rank - 2], weight[axes - 1])),
        samples(x.elements(0, x.rank - 1 - axes)),
        in(x.last()),
        out(weight.last()),
        groups(dim_or(attrs, 3, 1)) {
    if (axes == 2) rows = window(attrs, x[x.rank - 3], weight[0]);
  }

  int64_t taps() const { return rows.taps * columns.taps; }
  int64_t group_in() const { return in / groups; }
  int64_t group_out() const { return out / groups; }
  // The first element of a row.
  int64_t x_row(int64_t sample, int64_t row) const {
    return (sample * rows.extent + row) * columns.extent * in;
  }
  int64_t out_row(int64_t sample, int64_t row) const {
    return (sample * rows.count() + row) * columns.count() * out;
  }
  int64_t x_stride() const { return columns.stride * in; }

 private:
  static Window window(const Attrs& attrs, int64_t extent, int64_t taps) {
    return {extent, taps, dim_or(attrs, 0, 1), dim_or(attrs, 1, 0), dim_or(attrs, 2, 1)};
  }
};

// Calls body(sample, row, first column, last column) for blocks of the columns of each row.
template <typename F>
void for_blocks(const Call& call, const Sizes& s, int64_t rows, int64_t columns, F&& body) {
  const int64_t blocks = ceil_div(columns, kBlock);
  const int64_t work =
      std::max<int64_t>(1, std::min(columns, kBlock) * s.taps() * s.group_in() * s.out);
  for_ranges(*call.tiles, s.samples * rows * blocks, std::max<int64_t>(1, kTileWork / work),
             [&](int64_t begin, int64_t end) {
               for (int64_t i = begin; i < end; ++i) {
                 const int64_t row = i / blocks, first = i % blocks * kBlock;
                 body(row / rows, row % rows, first, std::min(columns, first + kBlock));
               }
             });
}

class Conv final : public Op {
 public:
  Conv(std::string_view name, int axes) : name_(name), axes_(axes) {}

  std::string_view name() const override { return name_; }
  uint32_t reads() const override { return kDims; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, weights.size() == 2 ? 2 : 1));
    const Desc& x = in[0].desc;
    WEFT_TRY(check_dtype(0, x, DType::f32));
    WEFT_TRY(check_last_axes(0, in[0], axes_ + 1));
    WEFT_TRY(check_dims(attrs));
    WEFT_TRY(check_weight(attrs, x, weights[0]));
    const Desc bias{DType::f32, {weights[0].shape.last()}};
    if (weights.size() == 2 && weights[1] != bias)
      return Status(Code::invalid, cat("weight 1 expects ", bias.text(), " for weight 0 ",
                                       weights[0].text(), ", got ", weights[1].text()));
    const Sizes s(attrs, x.shape, weights[0].shape, axes_);
    for (const Window* w : {&s.rows, &s.columns})
      if (w->count() < 1)
        return Status(Code::invalid,
                      cat("input 0 expects ", w->least(), w == &s.rows ? " rows" : columns_name(),
                          " or more for weight 0 ", weights[0].text(), ", got ", x.text()));
    Inferred inferred{.out = x, .stash = {}, .scratch = 0};
    const int rank = x.shape.rank;
    if (axes_ == 2) inferred.out.shape[rank - 3] = s.rows.count();
    inferred.out.shape[rank - 2] = s.columns.count();
    inferred.out.shape[rank - 1] = s.out;
    return inferred;
  }

  // The weight is at hand for I in any case.
  Uses uses_weight(const Attrs&) const override { return {.in = 1, .out = false, .stash = false}; }

  // What padding saves is not counted.
  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc> weights,
            const Desc& out) const override {
    const Shape& w = weights[0].shape;
    const double product =
        2.0 * static_cast<double>(out.elements()) * static_cast<double>(w.elements(0, w.rank - 1));
    return {.forward_flops = product, .input_flops = product, .weight_flops = product};
  }

  // Columns start as the bias, or as 0: one may have taps that see nothing.
  Status forward(const Call& call) const override {
    const Sizes s(*call.attrs, call.in[0].desc.shape, call.weights[0].desc.shape, axes_);
    for_blocks(call, s, s.rows.count(), s.columns.count(),
               [&](int64_t sample, int64_t row, int64_t first, int64_t last) {
                 float* out = call.out.f32() + s.out_row(sample, row);
                 start(call, out + first * s.out, last - first, s.out);
                 for (int64_t tap = 0; tap < s.taps(); ++tap) {
                   const int64_t x_row = s.rows.position(tap / s.columns.taps, row);
                   if (x_row < 0 || x_row >= s.rows.extent) continue;
                   const float* x = call.in[0].f32() + s.x_row(sample, x_row);
                   add_tap(call, s, tap, {first, last}, x, out);
                 }
               });
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const Sizes s(*call.attrs, call.din[0].desc.shape, call.weights[0].desc.shape, axes_);
    for_blocks(call, s, s.rows.extent, s.columns.extent,
               [&](int64_t sample, int64_t row, int64_t first, int64_t last) {
                 float* dx = call.din[0].f32() + s.x_row(sample, row);
                 std::fill_n(dx + first * s.in, (last - first) * s.in, 0.0f);
                 for (int64_t tap = 0; tap < s.taps(); ++tap) {
                   const Span seen = s.rows.seeing(tap / s.columns.taps, row, row + 1);
                   if (seen.count() == 0) continue;
                   const float* dout = call.dout.f32() + s.out_row(sample, seen.begin);
                   add_tap_grad(call, s, tap, {first, last}, dout, dx);
                 }
               });
    return {};
  }

  Status weight_grad(const Call& call) const override {
    if (call.weight == 1) return bias_grad(call);
    const Sizes s(*call.attrs, call.in[0].desc.shape, call.acc.desc.shape, axes_);
    const int64_t in = s.group_in(), blocks = ceil_div(in, kBlock);
    for_tiles(*call.tiles, static_cast<int>(s.taps() * s.groups * blocks), [&](int tile) {
      const int64_t first = tile % blocks * kBlock, count = std::min(kBlock, in - first);
      const int64_t group = tile / blocks % s.groups, tap = tile / blocks / s.groups;
      add_weight_grad(call, s, tap, group, {first, first + count});
    });
    return {};
  }

 private:
  const char* columns_name() const { return axes_ == 2 ? " columns" : " rows"; }

  Status check_dims(const Attrs& attrs) const {
    const auto within = [](int64_t x, int64_t least) { return x >= least && x <= kMostWindow; };
    if (attrs.dims.rank <= axes_ + 2 && within(dim_or(attrs, 0, 1), 1) &&
        within(dim_or(attrs, 1, 0), 0) && within(dim_or(attrs, 2, 1), 1) &&
        within(dim_or(attrs, 3, 1), 1))
      return {};
    return Status(Code::invalid,
                  cat("dims are ", attrs.dims.text(),
                      ", expected stride (1 or more), padding (0 or more) and dilation "
                      "(1 or more)",
                      axes_ == 2 ? " and groups (1 or more)" : "", ", each at most ", kMostWindow));
  }

  Status check_weight(const Attrs& attrs, const Desc& x, const Desc& weight) const {
    const int64_t groups = dim_or(attrs, 3, 1), in = x.shape.last();
    if (in % groups != 0)
      return Status(Code::invalid, cat("input 0 expects a multiple of ", groups,
                                       " groups as last axis, got ", x.text()));
    bool fits = weight.dtype == DType::f32 && weight.shape.rank == axes_ + 2 &&
                weight.shape[axes_] == in / groups && weight.shape.last() % groups == 0;
    for (int i = 0; fits && i < axes_; ++i)
      fits = weight.shape[i] >= 1 && weight.shape[i] <= kMostWindow;
    if (fits) return {};
    return Status(
        Code::invalid,
        cat("weight 0 expects f32[taps,", axes_ == 2 ? "taps," : "", in / groups, ",?] with 1 to ",
            kMostWindow, " taps", groups > 1 ? cat(" and a multiple of ", groups, " outputs") : "",
            " for input 0 ", x.text(), ", got ", weight.text()));
  }

  static void start(const Call& call, float* out, int64_t count, int64_t width) {
    if (call.weights.size() < 2) {
      std::fill_n(out, count * width, 0.0f);
      return;
    }
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(out + i * width, call.weights[1].data,
                  static_cast<size_t>(width) * sizeof(float));
  }

  // [in, out] of a tap and a group.
  static Factor slice(const Call& call, const Sizes& s, int64_t tap, int64_t group,
                      bool transposed) {
    return {call.weights[0].f32() + tap * s.group_in() * s.out + group * s.group_out(), s.out,
            transposed};
  }

  // x and out begin with their rows.
  static void add_tap(const Call& call, const Sizes& s, int64_t tap, Span columns, const float* x,
                      float* out) {
    const int64_t column_tap = tap % s.columns.taps;
    const Span part = columns.within(s.columns.seeing(column_tap, 0, s.columns.extent));
    if (part.count() == 0) return;
    x += s.columns.position(column_tap, part.begin) * s.in;
    out += part.begin * s.out;
    for (int64_t g = 0; g < s.groups; ++g)
      gemm_tile({part.count(),
                 s.group_out(),
                 s.group_in(),
                 {x + g * s.group_in(), s.x_stride()},
                 slice(call, s, tap, g, false),
                 out + g * s.group_out(),
                 s.out,
                 1,
                 1});
  }

  static void add_tap_grad(const Call& call, const Sizes& s, int64_t tap, Span columns,
                           const float* dout, float* dx) {
    const int64_t column_tap = tap % s.columns.taps;
    const Span part = s.columns.seeing(column_tap, columns.begin, columns.end);
    if (part.count() == 0) return;
    dout += part.begin * s.out;
    dx += s.columns.position(column_tap, part.begin) * s.in;
    for (int64_t g = 0; g < s.groups; ++g)
      gemm_tile({part.count(),
                 s.group_in(),
                 s.group_out(),
                 {dout + g * s.group_out(), s.out},
                 slice(call, s, tap, g, true),
                 dx + g * s.group_in(),
                 s.x_stride(),
                 1,
                 1});
  }

  static void add_weight_grad(const Call& call, const Sizes& s, int64_t tap, int64_t group,
                              Span in) {
    const int64_t row_tap = tap / s.columns.taps, column_tap = tap % s.columns.taps;
    const Span rows = s.rows.seeing(row_tap, 0, s.rows.extent);
    const Span columns = s.columns.seeing(column_tap, 0, s.columns.extent);
    if (columns.count() == 0) return;
    float* acc = call.acc.f32() + (tap * s.group_in() + in.begin) * s.out + group * s.group_out();
    const int64_t x_first =
        s.columns.position(column_tap, columns.begin) * s.in + group * s.group_in() + in.begin;
    const int64_t out_first = columns.begin * s.out + group * s.group_out();
    for (int64_t sample = 0; sample < s.samples; ++sample)
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        const float* x =
            call.in[0].f32() + s.x_row(sample, s.rows.position(row_tap, row)) + x_first;
        const float* dout = call.dout.f32() + s.out_row(sample, row) + out_first;
        gemm_tile({in.count(),
                   s.group_out(),
                   columns.count(),
                   {x, s.x_stride(), kTransposed},
                   {dout, s.out},
                   acc,
                   s.out,
                   1,
                   1});
      }
  }

  static Status bias_grad(const Call& call) {
    const int64_t columns = call.acc.desc.elements(),
                  rows = columns ? call.dout.desc.elements() / columns : 0;
    for_ranges(*call.tiles, columns, kColumns, [&](int64_t begin, int64_t end) {
      kernels::add_column_sums(call.dout.f32() + begin, rows, end - begin, columns,
                               call.acc.f32() + begin);
    });
    return {};
  }

  const std::string_view name_;
  const int axes_;
};

}  // namespace

const Op& conv1d_op() {
  static const Conv op("conv1d", 1);
  return op;
}

const Op& conv2d_op() {
  static const Conv op("conv2d", 2);
  return op;
}

}  // namespace weft
