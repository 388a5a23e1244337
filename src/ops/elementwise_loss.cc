// Losses that are sums over the elements of a prediction (input 0) and a target (input 1), divided
// by the number of elements of the whole step, which is the mean.
//
//   mse                   (x - t)^2
//   binary_cross_entropy  log(1 + exp(x)) - x t, for logits x and probabilities t
#include "kernels/elementwise.h"
#include "kernels/loss.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

constexpr int64_t kBlock = 4096;  // elements per partial sum

int64_t blocks(const Desc& desc) { return (desc.elements() + kBlock - 1) / kBlock; }

struct Function {
  std::string_view name;
  double forward_flops, gradient_flops;  // per element
  double slope;                          // factor of what `gradient` computes
  double (*sum)(const float* x, const float* target, int64_t n);
  void (*gradient)(const float* x, const float* target, float factor, float* dx, int64_t n);
};

constexpr Function kMse{"mse", 3, 2, 2, kernels::squared_error, kernels::scaled_difference};
constexpr Function kBinary{"binary_cross_entropy",
                           50,
                           27,
                           1,
                           kernels::binary_cross_entropy,
                           kernels::binary_cross_entropy_grad};

class ElementwiseLoss final : public Op {
 public:
  explicit ElementwiseLoss(const Function& function) : function_(function) {}

  std::string_view name() const override { return function_.name; }

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
  bool by_rows(const Attrs&, std::span<const Desc>, std::span<const Desc>) const override {
    return true;
  }

  Cost cost(const Attrs&, std::span<const Desc> in, std::span<const Desc>,
            const Desc&) const override {
    const double n = static_cast<double>(in[0].elements());
    return {.forward_flops = function_.forward_flops * n,
            .input_flops = function_.gradient_flops * n,
            .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    const float *x = call.in[0].f32(), *target = call.in[1].f32();
    double* partials = static_cast<double*>(call.scratch);
    for_ranges(*call.tiles, call.in[0].desc.elements(), kBlock, [&](int64_t begin, int64_t end) {
      partials[begin / kBlock] = function_.sum(x + begin, target + begin, end - begin);
    });
    double sum = 0;
    for (int64_t i = 0; i < blocks(call.in[0].desc); ++i) sum += partials[i];
    *call.out.as<double>() = sum;
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const float factor = static_cast<float>(function_.slope / call.denominator);
    for_ranges(*call.tiles, call.din[0].desc.elements(), kTileElements,
               [&](int64_t begin, int64_t end) {
                 function_.gradient(call.in[0].f32() + begin, call.in[1].f32() + begin, factor,
                                    call.din[0].f32() + begin, end - begin);
               });
    return {};
  }

 private:
  const Function& function_;
};

}  // namespace

const Op& mse_op() {
  static const ElementwiseLoss op(kMse);
  return op;
}

const Op& binary_cross_entropy_op() {
  static const ElementwiseLoss op(kBinary);
  return op;
}

}  // namespace weft
