// Normalization over the last axis, with attrs.factor as epsilon. If gamma is shorter than that
// axis, each group of as many columns is normalized by itself.
//
//   layer_norm  (x - mean) / sqrt(variance + epsilon) * gamma + beta
//   rms_norm    x / sqrt(mean(x^2) + epsilon) * gamma
//
// Weight 0 is gamma or, with kUnitOffset, gamma - 1; weight 1 is beta. Stash: the inverse of the
// root and, for layer_norm, the mean, one each per row and group.
#include <algorithm>
#include <cmath>

#include "kernels/columns.h"
#include "kernels/norm.h"
#include "kernels/ranges.h"
#include "ops/check.h"
#include "ops/stored.h"

namespace weft {

namespace {

constexpr int64_t kColumns = 64;  // columns per tile of W

class Norm final : public Op {
 public:
  explicit Norm(bool centered) : centered_(centered) {}

  std::string_view name() const override { return centered_ ? "layer_norm" : "rms_norm"; }
  uint32_t reads() const override { return centered_ ? kFactor : kFactor | kUnitOffset; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, centered_ ? 2 : 1));
    const Desc& x = in[0].desc;
    WEFT_TRY(check_dtype(0, x, DType::f32));
    WEFT_TRY(check_last_axis(0, in[0]));
    if (x.shape.last() < 1)
      return Status(Code::invalid, cat("input 0 expects a last axis of 1 or more, got ", x.text()));
    // As the float that it becomes: one that vanishes there would make a row of equal numbers NaN.
    if (const float eps = static_cast<float>(attrs.factor); !(eps > 0) || !std::isfinite(eps))
      return Status(Code::invalid,
                    cat("factor (epsilon) is ", attrs.factor, ", expected a float more than 0"));
    const int64_t width = x.shape.last();
    const int64_t given = weights[0].shape.rank == 1 ? weights[0].shape.last() : 0;
    const int64_t n = given > 0 && width % given == 0 ? given : width;
    const Desc expected{DType::f32, {n}};
    for (size_t i = 0; i < weights.size(); ++i)
      if (weights[i] != expected)
        return Status(Code::invalid,
                      cat("weight ", i, i ? " (beta)" : " (gamma)", " expects ", expected.text(),
                          " for input 0 ", x.text(), ", got ", weights[i].text()));
    Desc per_row{DType::f32, x.shape};
    if (n == width)
      --per_row.shape.rank;
    else
      per_row.shape[x.shape.rank - 1] = width / n;
    const bool offset = (attrs.flags & kUnitOffset) != 0;
    return Inferred{.out = x,
                    .stash = std::vector<Desc>(centered_ ? 2 : 1, per_row),
                    .scratch = offset ? expected.bytes() : 0};
  }

  Uses uses_input(const Attrs&) const override { return {.in = 1, .out = false, .stash = true}; }
  Uses uses_weight(const Attrs&) const override { return {.in = 1, .out = false, .stash = true}; }
  bool by_rows(const Attrs&, std::span<const Desc>, std::span<const Desc>) const override {
    return true;
  }
  bool sums_bf16() const override { return true; }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    const double n = static_cast<double>(out.elements());
    return {.forward_flops = 8 * n, .input_flops = 14 * n, .weight_flops = 6 * n};
  }

  Status forward(const Call& call) const override {
    const auto [rows, n] = size(call.out, call.weights[0]);
    const float eps = static_cast<float>(call.attrs->factor);
    const float* gamma = gamma_of(call);
    for_ranges(*call.tiles, rows, tile_rows(n), [&, n = n](int64_t begin, int64_t end) {
      const float* x = call.in[0].f32() + begin * n;
      float *out = call.out.f32() + begin * n, *root = rstd(call) + begin;
      if (centered_)
        kernels::layer_norm(x, gamma, call.weights[1].f32(), eps, end - begin, n, out,
                            mean(call, begin), root);
      else
        kernels::rms_norm(x, gamma, eps, end - begin, n, out, root);
    });
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const auto [rows, n] = size(call.dout, call.weights[0]);
    const float* gamma = gamma_of(call);
    for_ranges(*call.tiles, rows, tile_rows(n), [&, n = n](int64_t begin, int64_t end) {
      kernels::norm_grad(call.in[0].f32() + begin * n, gamma, call.dout.f32() + begin * n,
                         mean(call, begin), rstd(call) + begin, end - begin, n,
                         call.din[0].f32() + begin * n);
    });
    return {};
  }

  Status weight_grad(const Call& call) const override {
    const auto [rows, n] = size(call.dout, call.acc);
    for_ranges(*call.tiles, n, kColumns, [&, rows = rows, n = n](int64_t begin, int64_t end) {
      if (call.weight == 0)
        with_elements(call.in[0], call.dout, [&](const auto* x, const auto* dout) {
          kernels::norm_gamma(x, dout, mean(call, 0), rstd(call), rows, n, begin, end,
                              call.acc.f32());
        });
      else
        with_elements(call.dout, [&](const auto* dout) {
          kernels::add_column_sums(dout + begin, rows, end - begin, n, call.acc.f32() + begin);
        });
    });
    return {};
  }

 private:
  static const float* gamma_of(const Call& call) {
    const View& weight = call.weights[0];
    if (!(call.attrs->flags & kUnitOffset)) return weight.f32();
    auto* const out = static_cast<float*>(call.scratch);
    std::transform(weight.f32(), weight.f32() + weight.desc.elements(), out,
                   [](float w) { return 1 + w; });
    return out;
  }
  float* mean(const Call& call, int64_t row) const {
    return centered_ ? call.stash[0].f32() + row : nullptr;
  }
  static float* rstd(const Call& call) { return call.stash.back().f32(); }

  struct Size {
    int64_t rows, n;
  };
  static Size size(const View& view, const View& weight) {
    const int64_t n = weight.desc.shape.last();
    return {view.desc.elements() / n, n};
  }

  const bool centered_;
};

}  // namespace

const Op& layer_norm_op() {
  static const Norm op(true);
  return op;
}

const Op& rms_norm_op() {
  static const Norm op(false);
  return op;
}

}  // namespace weft
