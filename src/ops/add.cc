// add: the sum of 2 to 16 inputs of the same shape, from the first to the last. Its gradient is
// dout for each.
#include <cstring>

#include "kernels/elementwise.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

constexpr size_t kMaxInputs = 16;

class Add final : public Op {
 public:
  std::string_view name() const override { return "add"; }

  Result<Inferred> infer(const Attrs&, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    if (in.size() < 2 || in.size() > kMaxInputs)
      return Status(Code::invalid, cat("expected 2 to ", kMaxInputs, " inputs, got ", in.size()));
    WEFT_TRY(check_counts(in, in.size(), weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::f32));
    for (int port = 1; port < static_cast<int>(in.size()); ++port) WEFT_TRY(check_same(in, port));
    return Inferred{.out = in[0].desc, .stash = {}, .scratch = 0};
  }

  Cost cost(const Attrs&, std::span<const Desc> in, std::span<const Desc>,
            const Desc& out) const override {
    const auto adds = static_cast<double>(in.size() - 1);
    return {.forward_flops = adds * static_cast<double>(out.elements()),
            .input_flops = 0,
            .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    for_ranges(*call.tiles, call.out.desc.elements(), kTileElements,
               [&](int64_t begin, int64_t end) {
                 float* out = call.out.f32() + begin;
                 const float* sum = call.in[0].f32() + begin;
                 for (const View& addend : call.in.subspan(1)) {
                   kernels::add(sum, addend.f32() + begin, out, end - begin);
                   sum = out;
                 }
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
