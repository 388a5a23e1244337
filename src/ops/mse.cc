// mse: the sum of squared errors of a prediction (input 0) against a target (input 1). Divided by
// the number of elements of the whole step, which is the mean.
#include "kernels/elementwise.h"
#include "kernels/loss.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

constexpr int64_t kBlock = 4096;  // elements per partial sum

int64_t blocks(const Desc& desc) { return (desc.elements() + kBlock - 1) / kBlock; }

class Mse final : public Op {
 public:
  std::string_view name() const override { return "mse"; }

  Result<Inferred> infer(const Attrs&, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 2, weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    WEFT_TRY(check_same(in, 1));
    return Inferred{.out = {DType::f64, {1}},
                    .stash = {},
                    .scratch = static_cast<size_t>(blocks(in[0].desc)) * sizeof(double)};
  }

  bool differentiable(int port) const override { return port == 0; }
  bool is_loss() const override { return true; }
  Uses uses_input(const Attrs&) const override {
    return {.in = 0b11, .out = false, .stash = false};
  }

  Cost cost(const Attrs&, std::span<const Desc> in, std::span<const Desc>,
            const Desc&) const override {
    const double n = static_cast<double>(in[0].elements());
    return {.forward_flops = 3 * n, .input_flops = 2 * n, .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    const float *y = call.in[0].f32(), *target = call.in[1].f32();
    double* partials = static_cast<double*>(call.scratch);
    for_ranges(*call.tiles, call.in[0].desc.elements(), kBlock, [&](int64_t begin, int64_t end) {
      partials[begin / kBlock] = kernels::squared_error(y + begin, target + begin, end - begin);
    });
    double sum = 0;
    for (int64_t i = 0; i < blocks(call.in[0].desc); ++i) sum += partials[i];
    *call.out.as<double>() = sum;
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const float factor = static_cast<float>(2 / call.denominator);
    for_ranges(*call.tiles, call.din[0].desc.elements(), kTileElements,
               [&](int64_t begin, int64_t end) {
                 kernels::scaled_difference(call.in[0].f32() + begin, call.in[1].f32() + begin,
                                            factor, call.din[0].f32() + begin, end - begin);
               });
    return {};
  }
};

}  // namespace

const Op& mse_op() {
  static const Mse op;
  return op;
}

}  // namespace weft
