// mul: a * b element by element, same shapes.
#include "kernels/elementwise.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

class Mul final : public Op {
 public:
  std::string_view name() const override { return "mul"; }

  Result<Inferred> infer(const Attrs&, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 2, weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    WEFT_TRY(check_same(in, 1));
    return Inferred{.out = in[0].desc, .stash = {}, .scratch = 0};
  }

  Uses uses_input(const Attrs&) const override {
    return {.in = 0b11, .out = false, .stash = false};
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    const double n = static_cast<double>(out.elements());
    return {.forward_flops = n, .input_flops = 2 * n, .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    for_ranges(*call.tiles, call.out.desc.elements(), kTileElements,
               [&](int64_t begin, int64_t end) {
                 kernels::mul(call.in[0].f32() + begin, call.in[1].f32() + begin,
                              call.out.f32() + begin, end - begin);
               });
    return {};
  }

  Status input_grad(const Call& call) const override {
    for_ranges(*call.tiles, call.dout.desc.elements(), kTileElements,
               [&](int64_t begin, int64_t end) {
                 for (size_t port = 0; port < 2; ++port)
                   if (call.din[port])
                     kernels::mul(call.dout.f32() + begin, call.in[1 - port].f32() + begin,
                                  call.din[port].f32() + begin, end - begin);
               });
    return {};
  }
};

}  // namespace

const Op& mul_op() {
  static const Mul op;
  return op;
}

}  // namespace weft
