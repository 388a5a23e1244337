// concat: up to 16 inputs joined along attrs.axis, which is not the batch; the other dimensions
// agree.
#include "ops/check.h"
#include "ops/runs.h"

namespace weft {

namespace {

constexpr size_t kMaxInputs = 16;

class Concat final : public Op {
 public:
  std::string_view name() const override { return "concat"; }
  uint32_t reads() const override { return kAxis; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    if (in.empty() || in.size() > kMaxInputs)
      return Status(Code::invalid, cat("expected 1 to ", kMaxInputs, " inputs, got ", in.size()));
    WEFT_TRY(check_counts(in, in.size(), weights, 0));
    WEFT_TRY(check_movable(0, in[0].desc));
    WEFT_TRY(check_axis(0, in[0].desc, attrs.axis));
    WEFT_TRY(check_not_batch(0, in[0], attrs.axis));
    Desc out = in[0].desc;
    for (int port = 1; port < static_cast<int>(in.size()); ++port) {
      // The same as input 0, but for the axis.
      const Operand& operand = in[static_cast<size_t>(port)];
      Operand first = in[0];
      if (attrs.axis < operand.desc.shape.rank)
        first.desc.shape[attrs.axis] = operand.desc.shape[attrs.axis];
      WEFT_TRY(check_same_as(first, operand, port));
      if (__builtin_add_overflow(out.shape[attrs.axis], operand.desc.shape[attrs.axis],
                                 &out.shape[attrs.axis]))
        return Status(Code::invalid, cat(port_name(port), " makes axis ", attrs.axis,
                                         " longer than 64 bits can count"));
    }
    WEFT_TRY(check_shape(std::span(out.shape.dims.data(), static_cast<size_t>(out.shape.rank)),
                         out.dtype)
                 .within("output"));
    return Inferred{.out = out, .stash = {}, .scratch = 0};
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc&) const override {
    return {};
  }

  Status forward(const Call& call) const override {
    move(call, call.out, call.in,
         [&](int64_t rows, int64_t run, int32_t* whole, int64_t stride, int32_t* part) {
           copy_runs(*call.tiles, rows, run, part, run, whole, stride);
         });
    return {};
  }

  Status input_grad(const Call& call) const override {
    move(call, call.dout, call.din,
         [&](int64_t rows, int64_t run, int32_t* whole, int64_t stride, int32_t* part) {
           if (part) copy_runs(*call.tiles, rows, run, whole, stride, part, run);
         });
    return {};
  }

 private:
  // Calls body for each part with its place in the whole.
  template <typename F>
  static void move(const Call& call, const View& whole, std::span<const View> parts,
                   const F& body) {
    const Shape& shape = whole.desc.shape;
    const int axis = call.attrs->axis;
    const int64_t rows = shape.elements(0, axis), inner = shape.elements(axis + 1, shape.rank),
                  stride = shape[axis] * inner;
    int64_t offset = 0;
    for (const View& part : parts) {
      const int64_t run = part.desc.shape[axis] * inner;
      body(rows, run, whole.i32() + offset, stride, part.i32());
      offset += run;
    }
  }
};

}  // namespace

const Op& concat_op() {
  static const Concat op;
  return op;
}

}  // namespace weft
