// sum_loss: the sum of the elements of input 0, divided by the samples of the whole step. Input 1
// is an input of the model, whose samples are counted and whose elements are not read. For losses
// that are sums of terms.
#include <algorithm>

#include "kernels/loss.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

constexpr int64_t kBlock = 4096;  // elements per partial sum

int64_t blocks(const Desc& desc) { return (desc.elements() + kBlock - 1) / kBlock; }

class SumLoss final : public Op {
 public:
  std::string_view name() const override { return "sum_loss"; }

  Result<Inferred> infer(const Attrs&, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 2, weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    if (in[0].batched != in[1].batched || in[1].desc.shape.rank < 1)
      return Status(Code::invalid, cat("input 1 expects samples in dimension 0, as input 0 ",
                                       in[0].desc.text(), " has them, got ", in[1].desc.text()));
    return Inferred{.out = {DType::f64, {1}},
                    .stash = {},
                    .scratch = static_cast<size_t>(blocks(in[0].desc)) * sizeof(double)};
  }

  bool differentiable(int port) const override { return port == 0; }
  bool is_loss() const override { return true; }
  double count(const View& targets) const override {
    return static_cast<double>(targets.desc.shape[0]);
  }

  Cost cost(const Attrs&, std::span<const Desc> in, std::span<const Desc>,
            const Desc&) const override {
    const double n = static_cast<double>(in[0].elements());
    return {.forward_flops = n, .input_flops = n, .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    const Desc& x = call.in[0].desc;
    double* partials = static_cast<double*>(call.scratch);
    for_ranges(*call.tiles, x.elements(), kBlock, [&](int64_t begin, int64_t end) {
      partials[begin / kBlock] = -kernels::sum_below(call.in[0].f32() + begin, 0, end - begin);
    });
    double sum = 0;
    for (int64_t i = 0; i < blocks(x); ++i) sum += partials[i];
    *call.out.as<double>() = sum;
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const float factor = static_cast<float>(1 / call.denominator);
    for_ranges(*call.tiles, call.din[0].desc.elements(), kTileElements,
               [&](int64_t begin, int64_t end) {
                 std::fill_n(call.din[0].f32() + begin, end - begin, factor);
               });
    return {};
  }
};

}  // namespace

const Op& sum_loss_op() {
  static const SumLoss op;
  return op;
}

}  // namespace weft
