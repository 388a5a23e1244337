// Losses that are sums over the elements of input 0.
//
//   mse                   (x - t)^2
//   binary_cross_entropy  log(1 + exp(x)) - x t, for logits x and probabilities t
//   sum_loss              x, for losses that are sums of terms
//
// Of the first two, input 1 has the targets t, and the sum is divided by the number of elements of
// the whole step, which is the mean. Of sum_loss, input 1 is an input of the model, whose elements
// are not read, and the sum is divided by its samples in the whole step.
#include <algorithm>

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
  bool targets;                          // input 1 has a target for each element
  double forward_flops, gradient_flops;  // per element
  double slope;                          // factor of what `gradient` computes
  double (*sum)(const Call& call, int64_t begin, int64_t n);
  void (*gradient)(const Call& call, float factor, int64_t begin, int64_t n);
};

template <auto kernel>
double sum_to_targets(const Call& call, int64_t begin, int64_t n) {
  return kernel(call.in[0].f32() + begin, call.in[1].f32() + begin, n);
}
template <auto kernel>
void gradient_to_targets(const Call& call, float factor, int64_t begin, int64_t n) {
  kernel(call.in[0].f32() + begin, call.in[1].f32() + begin, factor, call.din[0].f32() + begin, n);
}
double plain_sum(const Call& call, int64_t begin, int64_t n) {
  return -kernels::sum_below(call.in[0].f32() + begin, 0, n);
}
void constant_gradient(const Call& call, float factor, int64_t begin, int64_t n) {
  std::fill_n(call.din[0].f32() + begin, n, factor);
}

constexpr Function kMse{"mse",
                        true,
                        3,
                        2,
                        2,
                        sum_to_targets<kernels::squared_error>,
                        gradient_to_targets<kernels::scaled_difference>};
constexpr Function kBinary{"binary_cross_entropy",
                           true,
                           50,
                           27,
                           1,
                           sum_to_targets<kernels::binary_cross_entropy>,
                           gradient_to_targets<kernels::binary_cross_entropy_grad>};
constexpr Function kSum{"sum_loss", false, 1, 1, 1, plain_sum, constant_gradient};

class ElementwiseLoss final : public Op {
 public:
  explicit ElementwiseLoss(const Function& function) : function_(function) {}

  std::string_view name() const override { return function_.name; }

  Result<Inferred> infer(const Attrs&, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 2, weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    if (function_.targets)
      WEFT_TRY(check_same(in, 1));
    else if (in[0].batched != in[1].batched || in[1].desc.shape.rank < 1)
      return Status(Code::invalid, cat("input 1 expects samples in dimension 0, as input 0 ",
                                       in[0].desc.text(), " has them, got ", in[1].desc.text()));
    return Inferred{.out = {DType::f64, {1}},
                    .stash = {},
                    .scratch = static_cast<size_t>(blocks(in[0].desc)) * sizeof(double)};
  }

  bool differentiable(int port) const override { return port == 0; }
  bool is_loss() const override { return true; }
  Uses uses_input(const Attrs&) const override {
    return {.in = function_.targets ? 0b11u : 0u, .out = false, .stash = false};
  }
  bool by_rows(const Attrs&, std::span<const Desc>, std::span<const Desc>) const override {
    return function_.targets;
  }
  double count(const View& targets) const override {
    const Desc& desc = targets.desc;
    return static_cast<double>(function_.targets ? desc.elements() : desc.shape[0]);
  }

  Cost cost(const Attrs&, std::span<const Desc> in, std::span<const Desc>,
            const Desc&) const override {
    const double n = static_cast<double>(in[0].elements());
    return {.forward_flops = function_.forward_flops * n,
            .input_flops = function_.gradient_flops * n,
            .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    double* partials = static_cast<double*>(call.scratch);
    for_ranges(*call.tiles, call.in[0].desc.elements(), kBlock, [&](int64_t begin, int64_t end) {
      partials[begin / kBlock] = function_.sum(call, begin, end - begin);
    });
    double sum = 0;
    for (int64_t i = 0; i < blocks(call.in[0].desc); ++i) sum += partials[i];
    *call.out.as<double>() = sum;
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const float factor = static_cast<float>(function_.slope / call.denominator);
    for_ranges(
        *call.tiles, call.din[0].desc.elements(), kTileElements,
        [&](int64_t begin, int64_t end) { function_.gradient(call, factor, begin, end - begin); });
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

const Op& sum_loss_op() {
  static const ElementwiseLoss op(kSum);
  return op;
}

}  // namespace weft
