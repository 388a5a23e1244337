// transpose: axis i of the output is axis attrs.dims[i] of the input. Axis 0 of a batched operand
// stays in front.
#include <array>
#include <cstring>

#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

// to[.., j, ..] = from[..], where stepping along axis i of `to` moves stride[i] elements in `from`.
void gather(Tiles& tiles, const int32_t* from, const std::array<int64_t, kMaxRank>& stride,
            const View& to) {
  const Shape& shape = to.desc.shape;
  const int last = shape.rank - 1;
  const int64_t n = shape.last(), step = last < 0 ? 1 : stride[static_cast<size_t>(last)];
  for_ranges(tiles, shape.elements(0, std::max(last, 0)), tile_rows(n),
             [&](int64_t begin, int64_t end) {
               for (int64_t row = begin; row < end; ++row) {
                 const int32_t* source = from;
                 int64_t rest = row;
                 for (int i = last - 1; i >= 0; --i) {
                   source += rest % shape[i] * stride[static_cast<size_t>(i)];
                   rest /= shape[i];
                 }
                 int32_t* target = to.i32() + row * n;
                 if (step == 1) {
                   std::memcpy(target, source, static_cast<size_t>(n) * 4);
                 } else {
                   for (int64_t j = 0; j < n; ++j) target[j] = source[j * step];
                 }
               }
             });
}

std::array<int64_t, kMaxRank> strides(const Shape& shape) {
  std::array<int64_t, kMaxRank> out{};
  for (int i = 0; i < shape.rank; ++i)
    out[static_cast<size_t>(i)] = shape.elements(i + 1, shape.rank);
  return out;
}

class Transpose final : public Op {
 public:
  std::string_view name() const override { return "transpose"; }
  uint32_t reads() const override { return kDims; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 0));
    const Desc& x = in[0].desc;
    WEFT_TRY(check_movable(0, x));
    Desc out{x.dtype, x.shape};
    uint32_t seen = 0;
    for (int i = 0; i < attrs.dims.rank; ++i)
      if (attrs.dims[i] >= 0 && attrs.dims[i] < x.shape.rank) {
        out.shape[i] = x.shape[static_cast<int>(attrs.dims[i])];
        seen |= 1u << attrs.dims[i];
      }
    if (attrs.dims.rank != x.shape.rank || seen != (1u << x.shape.rank) - 1)
      return Status(Code::invalid, cat("dims are ", attrs.dims.text(),
                                       ", expected each axis of input 0 ", x.text(), " once"));
    if (in[0].batched && attrs.dims[0] != 0)
      return Status(Code::invalid,
                    cat("dims are ", attrs.dims.text(), ", expected 0 first: axis 0 of input 0 ",
                        x.text(), " is the batch"));
    return Inferred{.out = out, .stash = {}, .scratch = 0};
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc&) const override {
    return {};
  }

  Status forward(const Call& call) const override {
    const auto from = strides(call.in[0].desc.shape);
    std::array<int64_t, kMaxRank> stride{};
    for (int i = 0; i < call.attrs->dims.rank; ++i)
      stride[static_cast<size_t>(i)] = from[static_cast<size_t>(call.attrs->dims[i])];
    gather(*call.tiles, call.in[0].i32(), stride, call.out);
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const auto from = strides(call.dout.desc.shape);
    std::array<int64_t, kMaxRank> stride{};
    for (int i = 0; i < call.attrs->dims.rank; ++i)
      stride[static_cast<size_t>(call.attrs->dims[i])] = from[static_cast<size_t>(i)];
    gather(*call.tiles, call.dout.i32(), stride, call.din[0]);
    return {};
  }
};

}  // namespace

const Op& transpose_op() {
  static const Transpose op;
  return op;
}

}  // namespace weft
