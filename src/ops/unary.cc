// The functions of kernels/unary.def as ops: one input, an output of its shape. I reads the input
// or the output only, so that the place of the other is free after forward.
#include "kernels/unary.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

enum class Saved { nothing, input, output };

struct Function {
  std::string_view name;
  Saved saved;
  double forward_flops, gradient_flops;  // per element
  void (*value)(const float* x, float* out, int64_t n);
  void (*gradient)(const float* saved, const float* dout, float* dx, int64_t n);
};

class Unary final : public Op {
 public:
  explicit Unary(const Function& function) : function_(function) {}

  std::string_view name() const override { return function_.name; }

  Result<Inferred> infer(const Attrs&, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    return Inferred{.out = in[0].desc, .stash = {}, .scratch = 0};
  }

  Uses uses_input(const Attrs&) const override {
    return {.in = function_.saved == Saved::input,
            .out = function_.saved == Saved::output,
            .stash = false};
  }
  bool by_rows(const Attrs&, std::span<const Desc>, std::span<const Desc>) const override {
    return true;
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    const double n = static_cast<double>(out.elements());
    return {.forward_flops = function_.forward_flops * n,
            .input_flops = function_.gradient_flops * n,
            .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    for_ranges(*call.tiles, call.out.desc.elements(), kTileElements,
               [&](int64_t begin, int64_t end) {
                 function_.value(call.in[0].f32() + begin, call.out.f32() + begin, end - begin);
               });
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const View& saved = function_.saved == Saved::input    ? call.in[0]
                        : function_.saved == Saved::output ? call.out
                                                           : call.dout;
    for_ranges(*call.tiles, call.dout.desc.elements(), kTileElements,
               [&](int64_t begin, int64_t end) {
                 function_.gradient(saved.f32() + begin, call.dout.f32() + begin,
                                    call.din[0].f32() + begin, end - begin);
               });
    return {};
  }

 private:
  const Function function_;
};

}  // namespace

#define WEFT_UNARY(name, saved, forward_flops, gradient_flops)                                \
  const Op& name##_op() {                                                                     \
    static const Unary op({#name, Saved::saved, forward_flops, gradient_flops, kernels::name, \
                           kernels::name##_grad});                                            \
    return op;                                                                                \
  }
#include "kernels/unary.def"
#undef WEFT_UNARY

}  // namespace weft
