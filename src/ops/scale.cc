// scale: x * attrs.factor, rounded to float once.
#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

class Scale final : public Op {
 public:
  std::string_view name() const override { return "scale"; }
  uint32_t reads() const override { return kFactor; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    if (!std::isfinite(static_cast<float>(attrs.factor)))
      return Status(Code::invalid,
                    cat("factor is ", attrs.factor, ", expected a finite f32 number"));
    return Inferred{.out = in[0].desc, .stash = {}, .scratch = 0};
  }
  bool by_rows(const Attrs&, std::span<const Desc>, std::span<const Desc>) const override {
    return true;
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    const double n = static_cast<double>(out.elements());
    return {.forward_flops = n, .input_flops = n, .weight_flops = 0};
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
    const float factor = static_cast<float>(call.attrs->factor);
    for_ranges(*call.tiles, to.desc.elements(), kTileElements, [&](int64_t begin, int64_t end) {
      kernels::scale(from.f32() + begin, factor, to.f32() + begin, end - begin);
    });
  }
};

}  // namespace

const Op& scale_op() {
  static const Scale op;
  return op;
}

}  // namespace weft
