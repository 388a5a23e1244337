// where: the elements of input 1 where input 0 (i32) is not 0, and those of input 2 elsewhere, with
// broadcasting (broadcast.h).
#include <bit>

#include "ops/broadcast.h"
#include "ops/check.h"

namespace weft {

namespace {

class Where final : public Op {
 public:
  std::string_view name() const override { return "where"; }

  Result<Inferred> infer(const Attrs&, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 3, weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::i32));
    for (int port = 1; port < 3; ++port)
      WEFT_TRY(check_dtype(port, in[static_cast<size_t>(port)].desc, DType::f32));
    WEFT_TRY_ASSIGN(const Shape shape, broadcast_shape(in, weights));
    return Inferred{.out = {DType::f32, shape}, .stash = {}, .scratch = 0};
  }

  bool differentiable(int port) const override { return port > 0; }
  Uses uses_input(const Attrs&) const override { return {.in = 0b1, .out = false, .stash = false}; }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    const auto n = static_cast<double>(out.elements());
    return {.forward_flops = n, .input_flops = 2 * n, .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    const Broadcast shape(call.out.desc.shape, call.in, call.weights);
    shape.for_parts(*call.tiles, [&](const Broadcast::Part& part) {
      float condition[Broadcast::kStrip], first[Broadcast::kStrip], second[Broadcast::kStrip];
      const float* c = shape.elements(0, call.in[0].f32(), part, condition);
      const float* a = shape.elements(1, call.in[1].f32(), part, first);
      const float* b = shape.elements(2, call.in[2].f32(), part, second);
      float* out = call.out.f32() + shape.out_offset(part);
      for (int64_t i = 0; i < part.count; ++i) out[i] = is_set(c[i]) ? a[i] : b[i];
    });
    return {};
  }

  Status input_grad(const Call& call) const override {
    const Broadcast shape(call.dout.desc.shape, call.in, call.weights);
    for (size_t port = 1; port < 3; ++port) {
      if (!call.din[port]) continue;
      shape.sum_repeated(*call.tiles, port, call.din[port].f32(), false,
                         [&](const Broadcast::Part& part, float* out) {
                           float condition[Broadcast::kStrip];
                           const float* c = shape.elements(0, call.in[0].f32(), part, condition);
                           const float* dout = call.dout.f32() + shape.out_offset(part);
                           for (int64_t i = 0; i < part.count; ++i)
                             out[i] = is_set(c[i]) == (port == 1) ? dout[i] : 0.0f;
                         });
    }
    return {};
  }

 private:
  // Conditions are read as what Broadcast repeats, which has the bits of the integer.
  static bool is_set(const float& condition) { return std::bit_cast<int32_t>(condition) != 0; }
};

}  // namespace

const Op& where_op() {
  static const Where op;
  return op;
}

}  // namespace weft
