// dropout with probability attrs.factor, survivors scaled by 1 / (1 - probability); the identity
// when not training. The mask is a function of (seed, step, micro-batch, node, element), so I makes
// it again and nothing is kept.
#include <cstring>

#include "kernels/dropout.h"
#include "kernels/ranges.h"
#include "ops/check.h"
#include "ops/dropout.h"

namespace weft {

namespace {

class Dropout final : public Op {
 public:
  std::string_view name() const override { return "dropout"; }
  uint32_t reads() const override { return kFactor; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    WEFT_TRY(check_probability(attrs));
    return Inferred{.out = in[0].desc, .stash = {}, .scratch = 0};
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    const double n = static_cast<double>(out.elements());
    return {
        .forward_flops = kDropoutFlops * n, .input_flops = kDropoutFlops * n, .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    run(call, call.in[0], call.out);
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (call.din[0]) run(call, call.dout, call.din[0]);
    return {};
  }

 private:
  static void run(const Call& call, const View& from, const View& to) {
    const Stream stream = dropout_stream(call.key);
    for_ranges(*call.tiles, to.desc.elements(), kTileElements, [&](int64_t begin, int64_t end) {
      if (call.training)
        kernels::dropout(stream, call.attrs->factor, begin, from.f32() + begin, end - begin,
                         to.f32() + begin);
      else
        std::memcpy(to.f32() + begin, from.f32() + begin,
                    static_cast<size_t>(end - begin) * sizeof(float));
    });
  }
};

}  // namespace

const Op& dropout_op() {
  static const Dropout op;
  return op;
}

}  // namespace weft
