// Functions of one element as ops: one input, an output of its shape. I reads the input or the
// output only, so that the place of the other is free after forward. They are those of
// kernels/unary.def, and some that read attributes:
//
//   gelu     x times the share of the normal distribution below x; by erf, or by the tanh
//            approximation with kTanh
//   scale    x * attrs.factor, rounded to float once
//   softcap  attrs.cap * tanh(x / attrs.cap), which keeps x between -cap and cap
#include "kernels/unary.h"

#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/gelu.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

enum class Saved { nothing, input, output };

struct Function {
  std::string_view name;
  Saved saved;
  double forward_flops, gradient_flops;  // per element
  void (*value)(const Attrs& attrs, const float* x, float* out, int64_t n);
  void (*gradient)(const Attrs& attrs, const float* saved, const float* dout, float* dx, int64_t n);
  uint32_t reads = 0;                       // see Op::reads
  Status (*check)(const Attrs&) = nullptr;  // null: any attributes
};

class Unary final : public Op {
 public:
  explicit Unary(const Function& function) : function_(function) {}

  std::string_view name() const override { return function_.name; }
  uint32_t reads() const override { return function_.reads; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    if (function_.check) WEFT_TRY(function_.check(attrs));
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
                 function_.value(*call.attrs, call.in[0].f32() + begin, call.out.f32() + begin,
                                 end - begin);
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
                 function_.gradient(*call.attrs, saved.f32() + begin, call.dout.f32() + begin,
                                    call.din[0].f32() + begin, end - begin);
               });
    return {};
  }

 private:
  const Function function_;
};

template <auto kernel>
void value_of(const Attrs&, const float* x, float* out, int64_t n) {
  kernel(x, out, n);
}
template <auto kernel>
void gradient_of(const Attrs&, const float* saved, const float* dout, float* dx, int64_t n) {
  kernel(saved, dout, dx, n);
}

float factor_of(const Attrs& attrs) { return static_cast<float>(attrs.factor); }
float cap_of(const Attrs& attrs) { return static_cast<float>(attrs.cap); }

void gelu(const Attrs& attrs, const float* x, float* out, int64_t n) {
  (attrs.flags & kTanh ? kernels::gelu_tanh : kernels::gelu_erf)(x, out, n);
}
void gelu_grad(const Attrs& attrs, const float* x, const float* dout, float* dx, int64_t n) {
  (attrs.flags & kTanh ? kernels::gelu_tanh_grad : kernels::gelu_erf_grad)(x, dout, dx, n);
}

void scale(const Attrs& attrs, const float* x, float* out, int64_t n) {
  kernels::scale(x, factor_of(attrs), out, n);
}
void scale_grad(const Attrs& attrs, const float*, const float* dout, float* dx, int64_t n) {
  kernels::scale(dout, factor_of(attrs), dx, n);
}
Status check_factor(const Attrs& attrs) {
  if (std::isfinite(factor_of(attrs))) return {};
  return Status(Code::invalid, cat("factor is ", attrs.factor, ", expected a finite f32 number"));
}

void softcap(const Attrs& attrs, const float* x, float* out, int64_t n) {
  kernels::softcap(x, cap_of(attrs), out, n);
}
void softcap_grad(const Attrs& attrs, const float* y, const float* dout, float* dx, int64_t n) {
  kernels::softcap_grad(y, dout, cap_of(attrs), dx, n);
}

}  // namespace

#define WEFT_UNARY(name, saved, forward_flops, gradient_flops)                           \
  const Op& name##_op() {                                                                \
    static const Unary op({#name, Saved::saved, forward_flops, gradient_flops,           \
                           value_of<kernels::name>, gradient_of<kernels::name##_grad>}); \
    return op;                                                                           \
  }
#include "kernels/unary.def"
#undef WEFT_UNARY

const Op& gelu_op() {
  static const Unary op({"gelu", Saved::input, 30, 40, gelu, gelu_grad, kTanh});
  return op;
}

const Op& scale_op() {
  static const Unary op({"scale", Saved::nothing, 1, 1, scale, scale_grad, kFactor, check_factor});
  return op;
}

const Op& softcap_op() {
  static const Unary op(
      {"softcap", Saved::output, kCapFlops, 4, softcap, softcap_grad, kCap, check_cap});
  return op;
}

}  // namespace weft
