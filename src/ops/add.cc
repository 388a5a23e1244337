// add: a + b, same shapes. Its gradient is dout for both.
#include <cstring>

#include "kernels/elementwise.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

class Add final : public Op {
 public:
  std::string_view name() const override { return "add"; }

  Result<Inferred> infer(const Attrs&, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 2, weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    WEFT_TRY(check_same(in, 1));
    return Inferred{.out = in[0].desc, .stash = {}, .scratch = 0};
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    return {
        .forward_flops = static_cast<double>(out.elements()), .input_flops = 0, .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    for_ranges(*call.tiles, call.out.desc.elements(), kTileElements,
               [&](int64_t begin, int64_t end) {
                 kernels::add(call.in[0].f32() + begin, call.in[1].f32() + begin,
                              call.out.f32() + begin, end - begin);
               });
    return {};
  }

  Status input_grad(const Call& call) const override {
    for_ranges(*call.tiles, call.dout.desc.elements(), kTileElements,
               [&](int64_t begin, int64_t end) {
                 for (const View& din : call.din)
                   if (din)
                     std::memcpy(din.f32() + begin, call.dout.f32() + begin,
                                 static_cast<size_t>(end - begin) * sizeof(float));
               });
    return {};
  }
};

}  // namespace

const Op& add_op() {
  static const Add op;
  return op;
}

}  // namespace weft
