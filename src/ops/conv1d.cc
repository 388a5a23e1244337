// conv1d: x f32[.., t, in] with samples in front, out f32[.., t', out]. Weight 0 is [taps, in,
// out], weight 1 the bias [out] and may be missing. attrs.dims are stride, padding and dilation;
// those that are not there count as 1, 0 and 1.
//
//   out[r] = bias + sum over taps k of x[r stride + k dilation - padding] W_k        rows of x
//   outside of [0, t) are 0
//
// For one tap, the rows of x that it sees lie at equal distances, so each tap is one product of x
// as it is stored with a slice of the weight, [in, out]: no patches are copied out and no scratch
// is needed. The weight has its taps first (as TensorFlow and JAX store it; PyTorch has them last)
// so that such a slice is a matrix. Taps are added in ascending order; forward and I give a block
// of rows of one sample to a tile, W a block of rows of one tap's slice.
#include <algorithm>
#include <cstring>

#include "kernels/columns.h"
#include "kernels/gemm.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

constexpr int64_t kMost =
    1 << 20;  // taps, stride, padding, dilation: no product of two comes near the end of int64
constexpr int64_t kBlockRows =
    128;  // of out (forward), x (I) or the slice of a tap (W), per tile ..
constexpr int64_t kTileWork =
    1000000;  // .. and more blocks of them where they cost fewer multiply-adds than this
constexpr int64_t kColumns = 256;  // of a bias, per tile

int64_t ceil_div(int64_t a, int64_t b) { return a <= 0 ? 0 : (a + b - 1) / b; }

struct Steps {
  int64_t stride = 1, padding = 0, dilation = 1;

  explicit Steps(const Attrs& attrs) {
    if (attrs.dims.rank > 0) stride = attrs.dims[0];
    if (attrs.dims.rank > 1) padding = attrs.dims[1];
    if (attrs.dims.rank > 2) dilation = attrs.dims[2];
  }
};

// Rows [begin, end) of one sample's output.
struct Rows {
  int64_t begin, end;
  int64_t count() const { return std::max<int64_t>(0, end - begin); }
};

struct Sizes {
  Steps step;
  int64_t samples, rows, in, taps, out, out_rows;

  Sizes(const Attrs& attrs, const Desc& x, const Desc& weight)
      : step(attrs),
        samples(x.shape.elements(0, x.shape.rank - 2)),
        rows(x.shape[x.shape.rank - 2]),
        in(x.shape.last()),
        taps(weight.shape[0]),
        out(weight.shape[2]),
        out_rows(room() < 0 ? 0 : room() / step.stride + 1) {}

  // How far the first tap can move.
  int64_t room() const { return rows + 2 * step.padding - step.dilation * (taps - 1) - 1; }
  int64_t offset(int64_t tap) const { return tap * step.dilation - step.padding; }
  // The output rows whose tap is a row from `first` to before `last` of x.
  Rows seeing(int64_t tap, int64_t first, int64_t last) const {
    return {ceil_div(first - offset(tap), step.stride),
            std::min(out_rows, ceil_div(last - offset(tap), step.stride))};
  }
  int64_t x_row(int64_t tap, int64_t out_row) const { return out_row * step.stride + offset(tap); }
};

// Calls body(sample, first, last) for blocks of `rows` rows of each sample.
template <typename F>
void for_blocks(const Call& call, const Sizes& s, int64_t rows, F&& body) {
  const int64_t blocks = ceil_div(rows, kBlockRows);
  const int64_t work = std::max<int64_t>(1, std::min(rows, kBlockRows) * s.taps * s.in * s.out);
  for_ranges(*call.tiles, s.samples * blocks, std::max<int64_t>(1, kTileWork / work),
             [&](int64_t begin, int64_t end) {
               for (int64_t i = begin; i < end; ++i) {
                 const int64_t first = i % blocks * kBlockRows;
                 body(i / blocks, first, std::min(rows, first + kBlockRows));
               }
             });
}

class Conv1d final : public Op {
 public:
  std::string_view name() const override { return "conv1d"; }
  uint32_t reads() const override { return kDims; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, weights.size() == 2 ? 2 : 1));
    const Desc& x = in[0].desc;
    WEFT_TRY(check_dtype(0, x, DType::f32));
    WEFT_TRY(check_last_axes(0, in[0], 2));
    const Desc& weight = weights[0];
    if (weight.dtype != DType::f32 || weight.shape.rank != 3 || weight.shape[1] != x.shape.last() ||
        weight.shape[0] < 1 || weight.shape[0] > kMost)
      return Status(Code::invalid,
                    cat("weight 0 expects f32[taps,", x.shape.last(), ",?] with 1 to ", kMost,
                        " taps for input 0 ", x.text(), ", got ", weight.text()));
    const Desc bias{DType::f32, {weight.shape[2]}};
    if (weights.size() == 2 && weights[1] != bias)
      return Status(Code::invalid, cat("weight 1 expects ", bias.text(), " for weight 0 ",
                                       weight.text(), ", got ", weights[1].text()));
    WEFT_TRY(check_steps(attrs));
    const Sizes s(attrs, x, weight);
    if (s.out_rows < 1)
      return Status(Code::invalid,
                    cat("input 0 expects ", s.step.dilation * (s.taps - 1) + 1 - 2 * s.step.padding,
                        " rows or more for weight 0 ", weight.text(), ", got ", x.text()));
    Inferred inferred{.out = x, .stash = {}, .scratch = 0};
    inferred.out.shape[x.shape.rank - 2] = s.out_rows;
    inferred.out.shape[x.shape.rank - 1] = s.out;
    return inferred;
  }

  // The weight is at hand for I in any case.
  Uses uses_weight(const Attrs&) const override { return {.in = 1, .out = false, .stash = false}; }

  // What padding saves is not counted.
  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc> weights,
            const Desc& out) const override {
    const Shape& w = weights[0].shape;
    const double product =
        2.0 * static_cast<double>(out.elements()) * static_cast<double>(w.elements(0, 2));
    return {.forward_flops = product, .input_flops = product, .weight_flops = product};
  }

  // Rows start as the bias, or as 0: a row may have taps that see nothing.
  Status forward(const Call& call) const override {
    const Sizes s(*call.attrs, call.in[0].desc, call.weights[0].desc);
    const bool bias = call.weights.size() == 2;
    const int64_t x_stride = s.step.stride * s.in;
    for_blocks(call, s, s.out_rows, [&](int64_t sample, int64_t first, int64_t last) {
      const float* x = call.in[0].f32() + sample * s.rows * s.in;
      float* out = call.out.f32() + sample * s.out_rows * s.out;
      for (int64_t row = first; row < last; ++row) {
        if (bias)
          std::memcpy(out + row * s.out, call.weights[1].data,
                      static_cast<size_t>(s.out) * sizeof(float));
        else
          std::fill_n(out + row * s.out, s.out, 0.0f);
      }
      for (int64_t tap = 0; tap < s.taps; ++tap) {
        const Rows seeing = s.seeing(tap, 0, s.rows);
        const Rows part{std::max(first, seeing.begin), std::min(last, seeing.end)};
        if (part.count() == 0) continue;
        gemm_tile({part.count(),
                   s.out,
                   s.in,
                   {x + s.x_row(tap, part.begin) * s.in, x_stride},
                   slice(call, s, tap, false),
                   out + part.begin * s.out,
                   s.out,
                   1,
                   1});
      }
    });
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const Sizes s(*call.attrs, call.din[0].desc, call.weights[0].desc);
    const int64_t x_stride = s.step.stride * s.in;
    for_blocks(call, s, s.rows, [&](int64_t sample, int64_t first, int64_t last) {
      const float* dout = call.dout.f32() + sample * s.out_rows * s.out;
      float* dx = call.din[0].f32() + sample * s.rows * s.in;
      std::fill_n(dx + first * s.in, (last - first) * s.in, 0.0f);
      for (int64_t tap = 0; tap < s.taps; ++tap) {
        const Rows part = s.seeing(tap, first, last);
        if (part.count() == 0) continue;
        gemm_tile({part.count(),
                   s.in,
                   s.out,
                   {dout + part.begin * s.out, s.out},
                   slice(call, s, tap, true),
                   dx + s.x_row(tap, part.begin) * s.in,
                   x_stride,
                   1,
                   1});
      }
    });
    return {};
  }

  Status weight_grad(const Call& call) const override {
    if (call.weight == 1) return bias_grad(call);
    const Sizes s(*call.attrs, call.in[0].desc, call.acc.desc);
    const int64_t blocks = ceil_div(s.in, kBlockRows), x_stride = s.step.stride * s.in;
    for_tiles(*call.tiles, static_cast<int>(s.taps * blocks), [&](int tile) {
      const int64_t tap = tile / blocks, first = tile % blocks * kBlockRows,
                    count = std::min(kBlockRows, s.in - first);
      const Rows part = s.seeing(tap, 0, s.rows);
      if (part.count() == 0) return;
      float* acc = call.acc.f32() + (tap * s.in + first) * s.out;
      for (int64_t sample = 0; sample < s.samples; ++sample) {
        const float* x =
            call.in[0].f32() + (sample * s.rows + s.x_row(tap, part.begin)) * s.in + first;
        const float* dout = call.dout.f32() + (sample * s.out_rows + part.begin) * s.out;
        gemm_tile({count,
                   s.out,
                   part.count(),
                   {x, x_stride, kTransposed},
                   {dout, s.out},
                   acc,
                   s.out,
                   1,
                   1});
      }
    });
    return {};
  }

 private:
  static Status check_steps(const Attrs& attrs) {
    const Steps step(attrs);
    const auto within = [](int64_t x, int64_t least) { return x >= least && x <= kMost; };
    if (attrs.dims.rank <= 3 && within(step.stride, 1) && within(step.padding, 0) &&
        within(step.dilation, 1))
      return {};
    return Status(Code::invalid,
                  cat("dims are ", attrs.dims.text(),
                      ", expected stride (1 or more), padding (0 or more) and dilation "
                      "(1 or more), each at most ",
                      kMost));
  }

  // A tap's [in, out] of the weight.
  static Factor slice(const Call& call, const Sizes& s, int64_t tap, bool transposed) {
    return {call.weights[0].f32() + tap * s.in * s.out, s.out, transposed};
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
};

}  // namespace

const Op& conv1d_op() {
  static const Conv1d op;
  return op;
}

}  // namespace weft
