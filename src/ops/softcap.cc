// softcap: attrs.cap * tanh(x / attrs.cap), which keeps x between -cap and cap. I reads the output.
#include "kernels/elementwise.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

class Softcap final : public Op {
 public:
  std::string_view name() const override { return "softcap"; }
  uint32_t reads() const override { return kCap; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    WEFT_TRY(check_cap(attrs));
    return Inferred{.out = in[0].desc, .stash = {}, .scratch = 0};
  }

  Uses uses_input(const Attrs&) const override { return {.in = 0, .out = true, .stash = false}; }
  bool by_rows(const Attrs&, std::span<const Desc>, std::span<const Desc>) const override {
    return true;
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    const double n = static_cast<double>(out.elements());
    return {.forward_flops = kCapFlops * n, .input_flops = 4 * n, .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    const float cap = static_cast<float>(call.attrs->cap);
    for_ranges(
        *call.tiles, call.out.desc.elements(), kTileElements, [&](int64_t begin, int64_t end) {
          kernels::softcap(call.in[0].f32() + begin, cap, call.out.f32() + begin, end - begin);
        });
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const float cap = static_cast<float>(call.attrs->cap);
    for_ranges(*call.tiles, call.dout.desc.elements(), kTileElements,
               [&](int64_t begin, int64_t end) {
                 kernels::softcap_grad(call.out.f32() + begin, call.dout.f32() + begin, cap,
                                       call.din[0].f32() + begin, end - begin);
               });
    return {};
  }
};

}  // namespace

const Op& softcap_op() {
  static const Softcap op;
  return op;
}

}  // namespace weft
