// slice: elements [attrs.begin, attrs.end) along attrs.axis, which is not the batch.
#include "ops/check.h"
#include "ops/runs.h"

namespace weft {

namespace {

class Slice final : public Op {
 public:
  std::string_view name() const override { return "slice"; }
  uint32_t reads() const override { return kAxis | kRange; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 0));
    const Desc& x = in[0].desc;
    WEFT_TRY(check_movable(0, x));
    WEFT_TRY(check_axis(0, x, attrs.axis));
    WEFT_TRY(check_not_batch(0, in[0], attrs.axis));
    if (attrs.begin < 0 || attrs.begin >= attrs.end || attrs.end > x.shape[attrs.axis])
      return Status(Code::invalid, cat("[begin, end) is [", attrs.begin, ", ", attrs.end,
                                       "), expected a part of [0, ", x.shape[attrs.axis],
                                       ") for axis ", attrs.axis, " of input 0 ", x.text()));
    Desc out = x;
    out.shape[attrs.axis] = attrs.end - attrs.begin;
    return Inferred{.out = out, .stash = {}, .scratch = 0};
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc&) const override {
    return {};
  }

  Status forward(const Call& call) const override {
    const Part part(*call.attrs, call.in[0].desc.shape);
    copy_runs(*call.tiles, part.rows, part.run, call.in[0].i32() + part.offset, part.stride,
              call.out.i32(), part.run);
    return {};
  }

  Status input_grad(const Call& call) const override {
    if (!call.din[0]) return {};
    const Part part(*call.attrs, call.din[0].desc.shape);
    const int64_t after = part.stride - part.offset - part.run;
    for_ranges(*call.tiles, part.rows, tile_rows(part.stride), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        float* row = call.din[0].f32() + r * part.stride;
        std::memset(row, 0, static_cast<size_t>(part.offset) * 4);
        std::memcpy(row + part.offset, call.dout.f32() + r * part.run,
                    static_cast<size_t>(part.run) * 4);
        std::memset(row + part.offset + part.run, 0, static_cast<size_t>(after) * 4);
      }
    });
    return {};
  }

 private:
  // The input as rows of `stride` elements, of which `run` from `offset` are taken.
  struct Part {
    int64_t rows, stride, offset, run;
    Part(const Attrs& attrs, const Shape& in) {
      const int64_t inner = in.elements(attrs.axis + 1, in.rank);
      rows = in.elements(0, attrs.axis);
      stride = in[attrs.axis] * inner;
      offset = attrs.begin * inner;
      run = (attrs.end - attrs.begin) * inner;
    }
  };
};

}  // namespace

const Op& slice_op() {
  static const Slice op;
  return op;
}

}  // namespace weft
