// reshape to attrs.dims, elements in the same order. The first dimension may be -1: as many as
// there are. For a batched operand it must be, so that the batch stays in front; the rest must then
// divide what one sample has.
#include <cstring>

#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

void copy(Tiles& tiles, const View& from, const View& to) {
  for_ranges(tiles, to.desc.elements(), kTileElements, [&](int64_t begin, int64_t end) {
    std::memcpy(to.i32() + begin, from.i32() + begin, static_cast<size_t>(end - begin) * 4);
  });
}

class Reshape final : public Op {
 public:
  std::string_view name() const override { return "reshape"; }
  uint32_t reads() const override { return kDims; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 0));
    const Desc& x = in[0].desc;
    WEFT_TRY(check_movable(0, x));
    Desc out{x.dtype, attrs.dims};
    int64_t rest = 1;
    for (int i = 1; i < out.shape.rank; ++i) {
      const int64_t dim = out.shape[i];
      if (dim < 0 || __builtin_mul_overflow(rest, dim, &rest))
        return Status(Code::invalid,
                      cat("dims are ", attrs.dims.text(),
                          ", expected 0 or more after the first and a product that fits"));
    }
    const bool inferred = out.shape.rank > 0 && out.shape[0] == -1;
    if (in[0].batched && !inferred)
      return Status(Code::invalid, cat("dims are ", attrs.dims.text(),
                                       ", expected -1 first: input 0 ", x.text(), " is batched"));
    if (inferred) {
      if (rest < 1 || x.elements() % rest)
        return Status(Code::invalid,
                      cat("input 0 expects a multiple of ", rest, " elements for dims ",
                          attrs.dims.text(), ", got ", x.text()));
      out.shape[0] = x.elements() / rest;
    }
    WEFT_TRY(check_shape(std::span(out.shape.dims.data(), static_cast<size_t>(out.shape.rank)),
                         out.dtype)
                 .within("dims"));
    if (out.elements() != x.elements())
      return Status(Code::invalid, cat("input 0 expects ", out.elements(), " elements for dims ",
                                       attrs.dims.text(), ", got ", x.text()));
    return Inferred{.out = out, .stash = {}, .scratch = 0};
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc&) const override {
    return {};
  }

  Status forward(const Call& call) const override {
    copy(*call.tiles, call.in[0], call.out);
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (call.din[0]) copy(*call.tiles, call.dout, call.din[0]);
    return {};
  }
};

}  // namespace

const Op& reshape_op() {
  static const Reshape op;
  return op;
}

}  // namespace weft
