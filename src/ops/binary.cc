// add, sub, mul, div: element by element with broadcasting (broadcast.h). add takes 2 to 16
// operands and adds them from the first to the last. The last operand of add, sub and mul may be a
// parameter.
#include <algorithm>
#include <cstring>

#include "kernels/elementwise.h"
#include "kernels/unary.h"
#include "ops/broadcast.h"
#include "ops/check.h"

namespace weft {

namespace {

enum class Kind { add, sub, mul, div };

struct Function {
  std::string_view name;
  Kind kind;
  size_t most_operands;
  bool takes_param;
  uint32_t uses_in;         // of I
  uint32_t uses_in_weight;  // of W
  bool uses_out;
  double gradient_flops;  // per element
  void (*value)(const float* a, const float* b, float* out, int64_t n);
};

constexpr Function kAdd{"add", Kind::add, 16, true, 0, 0, false, 0, kernels::add};
constexpr Function kSub{"sub", Kind::sub, 2, true, 0, 0, false, 1, kernels::sub};
constexpr Function kMul{"mul", Kind::mul, 2, true, 0b11, 0b1, false, 2, kernels::mul};
constexpr Function kDiv{"div", Kind::div, 2, false, 0b10, 0, true, 4, kernels::div};

class Binary final : public Op {
 public:
  explicit Binary(const Function& function) : function_(function) {}

  std::string_view name() const override { return function_.name; }

  Result<Inferred> infer(const Attrs&, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_operands(in.size(), weights.size()));
    for (size_t i = 0; i < in.size(); ++i)
      WEFT_TRY(check_dtype(static_cast<int>(i), in[i].desc, DType::f32));
    WEFT_TRY_ASSIGN(const Shape shape, broadcast_shape(in, weights));
    return Inferred{.out = {DType::f32, shape}, .stash = {}, .scratch = 0};
  }

  Uses uses_input(const Attrs&) const override {
    return {.in = function_.uses_in, .out = function_.uses_out, .stash = false};
  }
  Uses uses_weight(const Attrs&) const override {
    return {.in = function_.uses_in_weight, .out = false, .stash = false};
  }

  bool by_rows(const Attrs&, std::span<const Desc> in,
               std::span<const Desc> weights) const override {
    const auto is_first = [&in](const Desc& desc) { return desc.shape == in[0].shape; };
    return std::all_of(in.begin(), in.end(), is_first) &&
           (weights.empty() || weights[0].shape.rank <= 1);
  }

  Cost cost(const Attrs&, std::span<const Desc> in, std::span<const Desc> weights,
            const Desc& out) const override {
    const auto n = static_cast<double>(out.elements());
    const auto steps = static_cast<double>(in.size() + weights.size() - 1);
    return {.forward_flops = steps * n,
            .input_flops = function_.gradient_flops * n,
            .weight_flops = weights.empty() ? 0 : 2 * n};
  }

  Status forward(const Call& call) const override {
    const Broadcast shape(call.out.desc.shape, call.in, call.weights);
    const size_t operands = call.in.size() + call.weights.size();
    shape.for_parts(*call.tiles, [&](const Broadcast::Part& part) {
      float first[Broadcast::kStrip], next[Broadcast::kStrip];
      float* out = call.out.f32() + shape.out_offset(part);
      const float* so_far = shape.elements(0, data(call, 0), part, first);
      for (size_t i = 1; i < operands; ++i) {
        function_.value(so_far, shape.elements(i, data(call, i), part, next), out, part.count);
        so_far = out;
      }
    });
    return {};
  }

  Status input_grad(const Call& call) const override {
    const Broadcast shape(call.dout.desc.shape, call.in, call.weights);
    for (size_t port = 0; port < call.in.size(); ++port)
      if (call.din[port]) sum_terms(call, shape, port, call.din[port].f32(), false);
    return {};
  }

  Status weight_grad(const Call& call) const override {
    const Broadcast shape(call.dout.desc.shape, call.in, call.weights);
    sum_terms(call, shape, call.in.size(), call.acc.f32(), true);
    return {};
  }

 private:
  static const float* data(const Call& call, size_t operand) {
    const size_t inputs = call.in.size();
    return operand < inputs ? call.in[operand].f32() : call.weights[operand - inputs].f32();
  }

  Status check_operands(size_t inputs, size_t weights) const {
    const size_t most = function_.most_operands, params = function_.takes_param ? 1 : 0;
    if (inputs >= 1 && weights <= params && inputs + weights >= 2 && inputs + weights <= most)
      return {};
    return Status(Code::invalid, cat("expected ", most == 2 ? "2" : cat("2 to ", most), " inputs",
                                     params ? ", of which the last may be a parameter" : "",
                                     ", got ", inputs, " inputs and ", weights, " parameters"));
  }

  // The gradient of an operand: dout times the derivative, summed over what the operand repeats.
  void sum_terms(const Call& call, const Broadcast& shape, size_t operand, float* to,
                 bool add) const {
    shape.sum_repeated(*call.tiles, operand, to, add, [&](const Broadcast::Part& part, float* out) {
      write_terms(call, shape, operand, part, out);
    });
  }

  void write_terms(const Call& call, const Broadcast& shape, size_t operand,
                   const Broadcast::Part& part, float* out) const {
    float repeated[Broadcast::kStrip];
    const float* dout = call.dout.f32() + shape.out_offset(part);
    const auto other = [&](size_t i) { return shape.elements(i, data(call, i), part, repeated); };
    switch (function_.kind) {
      case Kind::add: copy(dout, out, part.count); return;
      case Kind::sub:
        if (operand == 0)
          copy(dout, out, part.count);
        else
          kernels::neg(dout, out, part.count);
        return;
      case Kind::mul: kernels::mul(dout, other(1 - operand), out, part.count); return;
      case Kind::div: {
        const float* divisor = other(1);
        kernels::div(dout, divisor, out, part.count);
        if (operand == 0) return;
        kernels::mul(out, call.out.f32() + shape.out_offset(part), out, part.count);
        kernels::neg(out, out, part.count);
        return;
      }
    }
  }

  static void copy(const float* from, float* to, int64_t n) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
  }

  const Function& function_;
};

}  // namespace

const Op& add_op() {
  static const Binary op(kAdd);
  return op;
}

const Op& sub_op() {
  static const Binary op(kSub);
  return op;
}

const Op& mul_op() {
  static const Binary op(kMul);
  return op;
}

const Op& div_op() {
  static const Binary op(kDiv);
  return op;
}

}  // namespace weft
