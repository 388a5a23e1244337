// Batch normalization: each column of the last axis over all rows of the micro-batch, with
// attrs.factor as epsilon.
//
//   (x - mean) / sqrt(variance + epsilon) * gamma + beta
//
// Weights: gamma, beta, the running mean and the running variance. In training the moments are
// those of the micro-batch, otherwise the running ones. W of the running weights adds the moments
// of the micro-batch, of which an update makes moving averages (Op::average). Stash: the mean and
// the variance of the micro-batch.
#include <algorithm>
#include <cmath>

#include "kernels/batch_norm.h"
#include "kernels/columns.h"
#include "kernels/ranges.h"
#include "ops/check.h"
#include "tensor/byte_count.h"

namespace weft {

namespace {

constexpr int64_t kColumns = 16;  // columns per tile of what is summed over the rows
enum Weight : int { kGamma, kBeta, kMean, kVariance, kWeights };

class BatchNorm final : public Op {
 public:
  std::string_view name() const override { return "batch_norm"; }
  uint32_t reads() const override { return kFactor | kMomentum; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, kWeights));
    const Desc& x = in[0].desc;
    WEFT_TRY(check_dtype(0, x, DType::f32));
    WEFT_TRY(check_last_axis(0, in[0]));
    // As the float that it becomes: one that vanishes there would make a column of equal numbers
    // NaN.
    if (const float eps = static_cast<float>(attrs.factor); !(eps > 0) || !std::isfinite(eps))
      return Status(Code::invalid,
                    cat("factor (epsilon) is ", attrs.factor, ", expected a float more than 0"));
    if (!(attrs.momentum > 0 && attrs.momentum <= 1))
      return Status(Code::invalid, cat("momentum is ", attrs.momentum,
                                       ", expected a number above 0 and at most 1"));
    const Desc expected{DType::f32, {x.shape.last()}};
    constexpr std::string_view kNames[] = {"gamma", "beta", "running mean", "running variance"};
    for (size_t i = 0; i < weights.size(); ++i)
      if (weights[i] != expected)
        return Status(Code::invalid,
                      cat("weight ", i, " (", kNames[i], ") expects ", expected.text(),
                          " for input 0 ", x.text(), ", got ", weights[i].text()));
    // I: a scale and two corrections per column.
    return Inferred{.out = x, .stash = {expected, expected}, .scratch = 3 * part_bytes(expected)};
  }

  double average(const Attrs& attrs, int weight) const override {
    return weight >= kMean ? attrs.momentum : 0;
  }
  Uses uses_input(const Attrs&) const override { return {.in = 1, .out = false, .stash = true}; }
  Uses uses_weight(const Attrs&) const override { return {.in = 1, .out = false, .stash = true}; }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    const double n = static_cast<double>(out.elements());
    return {.forward_flops = 8 * n, .input_flops = 9 * n, .weight_flops = 4 * n};
  }

  Status forward(const Call& call) const override {
    const Matrix m(call.out.desc);
    const float* x = call.in[0].f32();
    float *mean = call.stash[0].f32(), *variance = call.stash[1].f32();
    if (call.training) {
      for_ranges(*call.tiles, m.n, kColumns, [&](int64_t begin, int64_t end) {
        kernels::column_moments(x, m.rows, m.n, begin, end, mean, variance);
      });
    } else {
      std::copy_n(call.weights[kMean].f32(), m.n, mean);
      std::copy_n(call.weights[kVariance].f32(), m.n, variance);
    }
    const float* scale = scale_of(call, m.n);
    for_ranges(*call.tiles, m.rows, tile_rows(m.n), [&](int64_t begin, int64_t end) {
      kernels::scale_columns(x + begin * m.n, mean, scale, call.weights[kBeta].f32(), end - begin,
                             m.n, call.out.f32() + begin * m.n);
    });
    return {};
  }

  // In training, the moments depend on x, too.
  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const Matrix m(call.dout.desc);
    const float *x = call.in[0].f32(), *dout = call.dout.f32(), *mean = call.stash[0].f32();
    const float* scale = scale_of(call, m.n);
    float *g = scratch(call, 1, m.n), *h = scratch(call, 2, m.n);
    std::fill_n(g, m.n, 0.0f);
    std::fill_n(h, m.n, 0.0f);
    const auto rows = static_cast<float>(m.rows);
    if (call.training)
      for_ranges(*call.tiles, m.n, kColumns, [&](int64_t begin, int64_t end) {
        kernels::add_column_sums(dout + begin, m.rows, end - begin, m.n, g + begin);
        kernels::column_products(x, mean, dout, m.rows, m.n, begin, end, h);
        for (int64_t c = begin; c < end; ++c) {
          g[c] /= rows;
          h[c] /= rows * spread(call, c);
        }
      });
    for_ranges(*call.tiles, m.rows, tile_rows(m.n), [&](int64_t begin, int64_t end) {
      const int64_t at = begin * m.n;
      kernels::scale_columns_grad(x + at, dout + at, mean, scale, g, h, end - begin, m.n,
                                  call.din[0].f32() + at);
    });
    return {};
  }

  Status weight_grad(const Call& call) const override {
    const Matrix m(call.dout.desc);
    float* acc = call.acc.f32();
    const float *mean = call.stash[0].f32(), *variance = call.stash[1].f32();
    // Of the distribution that the rows are drawn from.
    const float unbiased =
        static_cast<float>(m.rows) / static_cast<float>(std::max<int64_t>(1, m.rows - 1));
    if (call.weight == kMean)
      for (int64_t c = 0; c < m.n; ++c) acc[c] += mean[c];
    if (call.weight == kVariance)
      for (int64_t c = 0; c < m.n; ++c) acc[c] += variance[c] * unbiased;
    if (call.weight >= kMean) return {};
    for_ranges(*call.tiles, m.n, kColumns, [&](int64_t begin, int64_t end) {
      if (call.weight == kBeta) {
        kernels::add_column_sums(call.dout.f32() + begin, m.rows, end - begin, m.n, acc + begin);
        return;
      }
      float* products = scratch(call, 0, m.n);
      kernels::column_products(call.in[0].f32(), mean, call.dout.f32(), m.rows, m.n, begin, end,
                               products);
      for (int64_t c = begin; c < end; ++c) acc[c] += products[c] / std::sqrt(spread(call, c));
    });
    return {};
  }

 private:
  struct Matrix {
    int64_t rows, n;
    explicit Matrix(const Desc& desc)
        : rows(desc.elements() / desc.shape.last()), n(desc.shape.last()) {}
  };

  static size_t part_bytes(const Desc& desc) { return static_cast<size_t>(padded_bytes(desc)); }
  static float* scratch(const Call& call, size_t part, int64_t n) {
    const Desc desc{DType::f32, {n}};
    return static_cast<float*>(call.scratch) + part * part_bytes(desc) / sizeof(float);
  }
  static float spread(const Call& call, int64_t column) {
    return call.stash[1].f32()[column] + static_cast<float>(call.attrs->factor);
  }
  // gamma / sqrt(variance + epsilon)
  static const float* scale_of(const Call& call, int64_t n) {
    float* out = scratch(call, 0, n);
    for (int64_t c = 0; c < n; ++c)
      out[c] = call.weights[kGamma].f32()[c] / std::sqrt(spread(call, c));
    return out;
  }
};

}  // namespace

const Op& batch_norm_op() {
  static const BatchNorm op;
  return op;
}

}  // namespace weft
