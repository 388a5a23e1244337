// relu: max(x, 0). I needs the output alone, so the input's place is free after forward.
#include "kernels/elementwise.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

class Relu final : public Op {
 public:
  std::string_view name() const override { return "relu"; }

  Result<Inferred> infer(const Attrs&, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    return Inferred{.out = in[0].desc, .stash = {}, .scratch = 0};
  }

  Uses uses_input(const Attrs&) const override { return {.in = 0, .out = true, .stash = false}; }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    const double n = static_cast<double>(out.elements());
    return {.forward_flops = n, .input_flops = n, .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    for_ranges(*call.tiles, call.out.desc.elements(), kTileElements,
               [&](int64_t begin, int64_t end) {
                 kernels::relu(call.in[0].f32() + begin, call.out.f32() + begin, end - begin);
               });
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    for_ranges(*call.tiles, call.dout.desc.elements(), kTileElements,
               [&](int64_t begin, int64_t end) {
                 kernels::relu_grad(call.out.f32() + begin, call.dout.f32() + begin,
                                    call.din[0].f32() + begin, end - begin);
               });
    return {};
  }
};

}  // namespace

const Op& relu_op() {
  static const Relu op;
  return op;
}

}  // namespace weft
