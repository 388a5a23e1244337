// softmax_cross_entropy: the sum over rows of -log softmax(logits)[target]. Input 0 holds logits
// [.., V], input 1 targets i32[..]. A row with target -1 is not counted and has no gradient. With
// attrs.factor s above 0, the class has the probability 1 - s + s / V, and each other one s / V
// (label smoothing). Stash: the log of the sum of exponentials in two parts (softmax.h), one each
// per row.
#include <algorithm>

#include "kernels/loss.h"
#include "kernels/ranges.h"
#include "kernels/softmax.h"
#include "ops/check.h"
#include "ops/stored.h"
#include "ops/targets.h"

namespace weft {

namespace {

class SoftmaxCrossEntropy final : public Op {
 public:
  std::string_view name() const override { return "softmax_cross_entropy"; }
  uint32_t reads() const override { return kFactor; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 2, weights, 0));
    const Desc& logits = in[0].desc;
    WEFT_TRY(check_dtype(0, logits, DType::f32));
    WEFT_TRY(check_last_axis(0, in[0]));
    if (logits.shape.last() < 1 || logits.shape.last() > INT32_MAX)
      return Status(Code::invalid, cat("input 0 expects a last axis of 1 to ", INT32_MAX, ", got ",
                                       logits.text()));
    const Shape rows(
        std::span(logits.shape.dims.data(), static_cast<size_t>(logits.shape.rank - 1)));
    WEFT_TRY(check_same_as({{DType::i32, rows}, in[0].batched}, in[1], 1));
    if (!(attrs.factor >= 0 && attrs.factor < 1))
      return Status(Code::invalid, cat("factor (label smoothing) is ", attrs.factor,
                                       ", expected 0 or more and below 1"));
    const size_t sums = attrs.factor > 0 ? static_cast<size_t>(rows.elements()) : 0;
    return Inferred{.out = {DType::f64, {1}},
                    .stash = {{DType::f32, rows}, {DType::f32, rows}},
                    .scratch = sums * sizeof(double)};
  }

  Status check_input(const Attrs&, int port, std::span<const View> in,
                     std::span<const Desc>) const override {
    return check_targets(in[static_cast<size_t>(port)], port, in[0].desc.shape.last());
  }
  bool differentiable(int port) const override { return port == 0; }
  bool is_loss() const override { return true; }
  Uses uses_input(const Attrs&) const override { return {.in = 0b11, .out = false, .stash = true}; }

  double count(const View& targets) const override { return count_targets(targets); }
  bool by_rows(const Attrs&, std::span<const Desc>, std::span<const Desc>) const override {
    return true;
  }
  bool sums_bf16() const override { return true; }

  Cost cost(const Attrs&, std::span<const Desc> in, std::span<const Desc>,
            const Desc&) const override {
    const double n = static_cast<double>(in[0].elements());
    return {.forward_flops = 20 * n, .input_flops = 20 * n, .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    WEFT_TRY(check_targets(call.in[1], 1, call.in[0].desc.shape.last()));
    with_elements(call.in[0], [&call](const auto* logits) { sum_losses(call, logits); });
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    WEFT_TRY(check_targets(call.in[1], 1, call.in[0].desc.shape.last()));
    const int64_t n = call.in[0].desc.shape.last();
    const double smoothing = call.attrs->factor;
    const float factor = static_cast<float>(1 / call.denominator);
    const float of_target = static_cast<float>((1 - smoothing) / call.denominator);
    const float of_each = static_cast<float>(smoothing / static_cast<double>(n) / call.denominator);
    const int32_t* targets = call.in[1].i32();
    for_ranges(*call.tiles, call.in[1].desc.elements(), tile_rows(n),
               [&](int64_t begin, int64_t end) {
                 for (int64_t r = begin; r < end; ++r) {
                   float* din = call.din[0].f32() + r * n;
                   if (targets[r] < 0) {
                     std::fill(din, din + n, 0.0f);
                     continue;
                   }
                   kernels::log_sum_exp_grad(call.in[0].f32() + r * n, call.stash[0].f32()[r],
                                             call.stash[1].f32()[r], factor, n, din);
                   for (int64_t i = 0; smoothing > 0 && i < n; ++i) din[i] -= of_each;
                   din[targets[r]] -= of_target;
                 }
               });
    return {};
  }

 private:
  template <typename T>
  static void sum_losses(const Call& call, const T* logits) {
    const int64_t n = call.in[0].desc.shape.last(), rows = call.in[1].desc.elements();
    const int32_t* targets = call.in[1].i32();
    float *top = call.stash[0].f32(), *log = call.stash[1].f32();
    const double smoothing = call.attrs->factor;
    double* below = static_cast<double*>(call.scratch);  // per row: the sum of top - logit
    for_ranges(*call.tiles, rows, tile_rows(n), [&](int64_t begin, int64_t end) {
      kernels::log_sum_exp(logits + begin * n, end - begin, n, top + begin, log + begin);
      for (int64_t r = begin; smoothing > 0 && r < end; ++r)
        below[r] = kernels::sum_below(logits + r * n, top[r], n);
    });
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) {
      if (targets[r] < 0) continue;
      double distance = double{top[r]} - double{as_float(logits[r * n + targets[r]])};
      if (smoothing > 0)
        distance = (1 - smoothing) * distance + smoothing * (below[r] / static_cast<double>(n));
      sum += distance + double{log[r]};
    }
    *call.out.as<double>() = sum;
  }
};

}  // namespace

const Op& softmax_cross_entropy_op() {
  static const SoftmaxCrossEntropy op;
  return op;
}

}  // namespace weft
