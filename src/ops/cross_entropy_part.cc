// cross_entropy_part: what a part of the columns adds to softmax_cross_entropy. Input 0 holds the
// logits [.., n] of the columns from section.begin on, input 1 the targets i32 [..] among all
// section.whole columns. Output [.., 3]: the log of the sum of exponentials, what its rounding
// lost, and the logit of the target, or 0 if another part has it. Stash: that log in two parts
// (softmax.h), one each per row.
#include <algorithm>
#include <limits>

#include "kernels/ranges.h"
#include "kernels/softmax.h"
#include "ops/check.h"
#include "ops/targets.h"

namespace weft {

namespace {

class CrossEntropyPart final : public Op {
 public:
  std::string_view name() const override { return "cross_entropy_part"; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 2, weights, 0));
    const Desc& logits = in[0].desc;
    WEFT_TRY(check_dtype(0, logits, DType::f32));
    WEFT_TRY(check_last_axis(0, in[0]));
    const auto [axis, begin, whole] = attrs.section;
    const int64_t n = logits.shape.last();
    if (n < 1 || begin < 0 || begin > whole - n)
      return Status(Code::invalid, cat("input 0 expects a part of ", whole, " columns from ", begin,
                                       ", got ", logits.text()));
    const int rank = logits.shape.rank;
    const Shape rows(std::span(logits.shape.dims.data(), static_cast<size_t>(rank - 1)));
    WEFT_TRY(check_same_as({{DType::i32, rows}, in[0].batched}, in[1], 1));
    Desc out = logits;
    out.shape[rank - 1] = kCrossEntropyFields;
    return Inferred{.out = out, .stash = {{DType::f32, rows}, {DType::f32, rows}}, .scratch = 0};
  }

  // The loss is a small difference of these numbers.
  bool keeps_f32() const override { return true; }
  Status check_input(const Attrs& attrs, int port, std::span<const View> in,
                     std::span<const Desc>) const override {
    return check_targets(in[static_cast<size_t>(port)], port, attrs.section.whole);
  }
  bool differentiable(int port) const override { return port == 0; }
  Uses uses_input(const Attrs&) const override { return {.in = 0b11, .out = false, .stash = true}; }
  bool by_rows(const Attrs&, std::span<const Desc>, std::span<const Desc>) const override {
    return true;
  }

  Cost cost(const Attrs&, std::span<const Desc> in, std::span<const Desc>,
            const Desc&) const override {
    const double n = static_cast<double>(in[0].elements());
    return {.forward_flops = 20 * n, .input_flops = 20 * n, .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    WEFT_TRY(check_targets(call.in[1], 1, call.attrs->section.whole));
    const int64_t n = call.in[0].desc.shape.last();
    for_rows(call, [&](int64_t row, int64_t column) {
      const float* logits = call.in[0].f32() + row * n;
      float* top = call.stash[0].f32() + row;
      float* log = call.stash[1].f32() + row;
      kernels::log_sum_exp(logits, 1, n, top, log);
      if (*top == kNothing) *log = 0;
      float* out = call.out.f32() + kCrossEntropyFields * row;
      out[0] = *top + *log;
      out[1] = *top == kNothing ? 0 : lost_in(*top, *log, out[0]);
      out[2] = column >= 0 ? logits[column] : 0;
    });
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const int64_t n = call.in[0].desc.shape.last();
    for_rows(call, [&](int64_t row, int64_t column) {
      float* din = call.din[0].f32() + row * n;
      const float* dout = call.dout.f32() + kCrossEntropyFields * row;
      const float top = call.stash[0].f32()[row];
      if (call.in[1].i32()[row] < 0)
        std::fill(din, din + n, 0.0f);
      else if (top == kNothing)  // a gradient that is not finite stays so
        std::fill(din, din + n, 0.0f * dout[0]);
      else
        kernels::log_sum_exp_grad(call.in[0].f32() + row * n, top, call.stash[1].f32()[row],
                                  dout[0], n, din);
      if (column >= 0) din[column] += dout[2];
    });
    return {};
  }

 private:
  // The largest logit of a row whose columns are all ruled out.
  static constexpr float kNothing = -std::numeric_limits<float>::infinity();

  // What the sum of two floats differs by from what it was rounded to.
  static float lost_in(float a, float b, float sum) {
    const float b_in_sum = sum - a;
    return (a - (sum - b_in_sum)) + (b - b_in_sum);
  }

  // Calls body(row, column of the target here, or -1).
  template <typename F>
  static void for_rows(const Call& call, const F& body) {
    const int64_t n = call.in[0].desc.shape.last();
    for_ranges(*call.tiles, call.in[1].desc.elements(), tile_rows(n),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row) {
                   const int64_t column = call.in[1].i32()[row] - call.attrs->section.begin;
                   body(row, column < n ? column : -1);
                 }
               });
  }
};

}  // namespace

const Op& cross_entropy_part_op() {
  static const CrossEntropyPart op;
  return op;
}

}  // namespace weft
