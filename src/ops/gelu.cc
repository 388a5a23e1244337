// gelu: x times the share of the normal distribution below x; by erf, or by the tanh approximation
// with kTanh.
#include "kernels/gelu.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

class Gelu final : public Op {
 public:
  std::string_view name() const override { return "gelu"; }
  uint32_t reads() const override { return kTanh; }

  Result<Inferred> infer(const Attrs&, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    return Inferred{.out = in[0].desc, .stash = {}, .scratch = 0};
  }

  Uses uses_input(const Attrs&) const override { return {.in = 1, .out = false, .stash = false}; }
  bool by_rows(const Attrs&, std::span<const Desc>, std::span<const Desc>) const override {
    return true;
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    const double n = static_cast<double>(out.elements());
    return {.forward_flops = 30 * n, .input_flops = 40 * n, .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    const auto run = call.attrs->flags & kTanh ? kernels::gelu_tanh : kernels::gelu_erf;
    for_ranges(*call.tiles, call.out.desc.elements(), kTileElements,
               [&](int64_t begin, int64_t end) {
                 run(call.in[0].f32() + begin, call.out.f32() + begin, end - begin);
               });
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const auto run = call.attrs->flags & kTanh ? kernels::gelu_tanh_grad : kernels::gelu_erf_grad;
    for_ranges(*call.tiles, call.dout.desc.elements(), kTileElements,
               [&](int64_t begin, int64_t end) {
                 run(call.in[0].f32() + begin, call.dout.f32() + begin, call.din[0].f32() + begin,
                     end - begin);
               });
    return {};
  }
};

}  // namespace

const Op& gelu_op() {
  static const Gelu op;
  return op;
}

}  // namespace weft
