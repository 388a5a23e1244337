// gather: picks along attrs.axis. Input 0 is [outer.., n, inner..], input 1 has indices i32
// [outer.., k] into the axis, and out is [outer.., k, inner..]: each index of the dimensions before
// the axis has indices of its own. Gradients of an element that is picked several times are added
// in the order of the indices.
#include <algorithm>
#include <cstring>

#include "kernels/elementwise.h"
#include "kernels/ranges.h"
#include "ops/check.h"
#include "ops/indices.h"

namespace weft {

namespace {

constexpr int64_t kColumns = 256;  // columns per strip of I

struct Sizes {
  int64_t outer, axis, picks, inner;

  Sizes(const Desc& x, const Desc& indices)
      : outer(indices.shape.elements(0, indices.shape.rank - 1)),
        axis(x.shape[indices.shape.rank - 1]),
        picks(indices.shape.last()),
        inner(x.shape.elements(indices.shape.rank, x.shape.rank)) {}
};

class Gather final : public Op {
 public:
  std::string_view name() const override { return "gather"; }
  uint32_t reads() const override { return kAxis; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 2, weights, 0));
    const Desc& x = in[0].desc;
    WEFT_TRY(check_movable(0, x));
    WEFT_TRY(check_axis(0, x, attrs.axis));
    WEFT_TRY(check_not_batch(0, in[0], attrs.axis));
    Desc expected{DType::i32,
                  Shape(std::span(x.shape.dims.data(), static_cast<size_t>(attrs.axis + 1)))};
    const Shape& indices = in[1].desc.shape;
    if (indices.rank == expected.shape.rank) expected.shape[attrs.axis] = indices[attrs.axis];
    WEFT_TRY(check_same_as({expected, in[0].batched}, in[1], 1));
    Desc out = x;
    out.shape[attrs.axis] = indices[attrs.axis];
    return Inferred{.out = out, .stash = {}, .scratch = 0};
  }

  Status check_input(const Attrs&, int port, std::span<const View> in,
                     std::span<const Desc>) const override {
    return port == 1 ? check_indices(in[1], port, Sizes(in[0].desc, in[1].desc).axis) : Status();
  }
  bool differentiable(int port) const override { return port == 0; }
  Uses uses_input(const Attrs&) const override {
    return {.in = 0b10, .out = false, .stash = false};
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc& out) const override {
    return {
        .forward_flops = 0, .input_flops = static_cast<double>(out.elements()), .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    const Sizes s(call.in[0].desc, call.in[1].desc);
    WEFT_TRY(check_indices(call.in[1], 1, s.axis));
    for_ranges(*call.tiles, s.outer * s.picks, tile_rows(s.inner), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t from = i / s.picks * s.axis + call.in[1].i32()[i];
        std::memcpy(call.out.i32() + i * s.inner, call.in[0].i32() + from * s.inner,
                    static_cast<size_t>(s.inner) * sizeof(int32_t));
      }
    });
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const Sizes s(call.din[0].desc, call.in[1].desc);
    WEFT_TRY(check_indices(call.in[1], 1, s.axis));
    const int64_t strips = (s.inner + kColumns - 1) / kColumns;
    const int64_t work = (s.axis + s.picks) * std::min(s.inner, kColumns);
    for_ranges(*call.tiles, s.outer * strips, tile_rows(work), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % strips * kColumns;
        add_strip(call, s, i / strips, first, std::min(s.inner - first, kColumns));
      }
    });
    return {};
  }

 private:
  static void add_strip(const Call& call, const Sizes& s, int64_t outer, int64_t first,
                        int64_t count) {
    float* dx = call.din[0].f32() + outer * s.axis * s.inner + first;
    const float* dout = call.dout.f32() + outer * s.picks * s.inner + first;
    const int32_t* indices = call.in[1].i32() + outer * s.picks;
    for (int64_t r = 0; r < s.axis; ++r) std::fill_n(dx + r * s.inner, count, 0.0f);
    for (int64_t k = 0; k < s.picks; ++k) {
      float* to = dx + indices[k] * s.inner;
      kernels::add(to, dout + k * s.inner, to, count);
    }
  }
};

}  // namespace

const Op& gather_op() {
  static const Gather op;
  return op;
}

}  // namespace weft
