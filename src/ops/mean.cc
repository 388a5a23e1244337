// mean over attrs.axis, which the output no longer has. The batch of a batched operand is not
// averaged: samples never mix.
#include <algorithm>

#include "kernels/columns.h"
#include "kernels/elementwise.h"
#include "kernels/norm.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

constexpr int64_t kColumns = 256;  // columns per strip

// The operand as [outer, axis, inner].
struct Split {
  int64_t outer, axis, inner;
};

Split split(const Desc& in, int axis) {
  return {in.shape.elements(0, axis), in.shape[axis], in.shape.elements(axis + 1, in.shape.rank)};
}

class Mean final : public Op {
 public:
  std::string_view name() const override { return "mean"; }
  uint32_t reads() const override { return kAxis; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 0));
    const Desc& x = in[0].desc;
    WEFT_TRY(check_dtype(0, x, DType::f32));
    WEFT_TRY(check_axis(0, x, attrs.axis));
    WEFT_TRY(check_not_batch(0, in[0], attrs.axis));
    if (x.shape[attrs.axis] < 1)
      return Status(Code::invalid,
                    cat("input 0 expects 1 or more along axis ", attrs.axis, ", got ", x.text()));
    Desc out{DType::f32, {}};
    for (int i = 0; i < x.shape.rank; ++i)
      if (i != attrs.axis) out.shape[out.shape.rank++] = x.shape[i];
    return Inferred{.out = out, .stash = {}, .scratch = 0};
  }

  Cost cost(const Attrs&, std::span<const Desc> in, std::span<const Desc>,
            const Desc&) const override {
    const double n = static_cast<double>(in[0].elements());
    return {.forward_flops = n, .input_flops = n, .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    const auto [outer, axis, inner] = split(call.in[0].desc, call.attrs->axis);
    const float *x = call.in[0].f32(), factor = static_cast<float>(1.0 / static_cast<double>(axis));
    float* out = call.out.f32();
    if (inner == 1) {
      for_ranges(*call.tiles, outer, tile_rows(axis), [&, n = axis](int64_t begin, int64_t end) {
        kernels::row_sums(x + begin * n, end - begin, n, out + begin);
        kernels::scale(out + begin, factor, out + begin, end - begin);
      });
      return {};
    }
    const int64_t strips = (inner + kColumns - 1) / kColumns;
    for_ranges(*call.tiles, outer * strips, tile_rows(axis * std::min(inner, kColumns)),
               [&, rows = axis, width = inner](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t o = i / strips, first = i % strips * kColumns,
                                 last = std::min(width, first + kColumns);
                   float* sums = out + o * width + first;
                   std::fill_n(sums, last - first, 0.0f);
                   kernels::add_column_sums(x + o * rows * width + first, rows, last - first, width,
                                            sums);
                   kernels::scale(sums, factor, sums, last - first);
                 }
               });
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const auto [outer, axis, inner] = split(call.din[0].desc, call.attrs->axis);
    const float *dout = call.dout.f32(),
                factor = static_cast<float>(1.0 / static_cast<double>(axis));
    float* dx = call.din[0].f32();
    for_ranges(*call.tiles, outer, tile_rows(axis * inner),
               [&, rows = axis, width = inner](int64_t begin, int64_t end) {
                 for (int64_t o = begin; o < end; ++o) {
                   float* block = dx + o * rows * width;
                   kernels::scale(dout + o * width, factor, block, width);
                   for (int64_t r = 1; r < rows; ++r) std::copy_n(block, width, block + r * width);
                 }
               });
    return {};
  }
};

}  // namespace

const Op& mean_op() {
  static const Mean op;
  return op;
}

}  // namespace weft
