// The collectives: infers the output of a node of an SPMD model at one coordinate. expand()
// (graph/expand.h) replaces them by slices, sums and joins, so they have no kernels.
#include <algorithm>
#include <array>

#include "ops/check.h"

namespace weft {

namespace {

Status check_parts(const Attrs& attrs, const Desc& x, int dim) {
  if (x.shape[dim] % attrs.over.size == 0) return {};
  return Status(Code::invalid,
                cat("dimension ", dim, " of input 0 ", x.text(), " is ", x.shape[dim],
                    ", expected a multiple of the axis, ", attrs.over.size));
}

Status check_moved(const Operand& in, int dim) {
  WEFT_TRY(check_axis(0, in.desc, dim));
  return check_not_batch(0, in, dim);
}

Status lengthen(const Attrs& attrs, int dim, Desc& out) {
  if (!__builtin_mul_overflow(out.shape[dim], attrs.over.size, &out.shape[dim])) return {};
  return Status(Code::invalid, cat("the output is longer along ", dim, " than 64 bits can count"));
}

Status all_gather(const Attrs& attrs, const Operand& in, Desc& out) {
  WEFT_TRY(check_moved(in, attrs.axis));
  return lengthen(attrs, attrs.axis, out);
}

Status all_reduce(const Attrs&, const Operand& in, Desc&) {
  return check_dtype(0, in.desc, DType::f32);
}

Status reduce_scatter(const Attrs& attrs, const Operand& in, Desc& out) {
  WEFT_TRY(check_dtype(0, in.desc, DType::f32));
  WEFT_TRY(check_moved(in, attrs.axis));
  WEFT_TRY(check_parts(attrs, in.desc, attrs.axis));
  out.shape[attrs.axis] /= attrs.over.size;
  return {};
}

Status all_to_all(const Attrs& attrs, const Operand& in, Desc& out) {
  if (attrs.dims.rank != 2)
    return Status(Code::invalid, cat("dims are ", attrs.dims.text(),
                                     ", expected the dimension that is cut and the one that is "
                                     "joined"));
  const auto cut = static_cast<int>(std::clamp<int64_t>(attrs.dims[0], -1, kMaxRank));
  const auto joined = static_cast<int>(std::clamp<int64_t>(attrs.dims[1], -1, kMaxRank));
  WEFT_TRY(check_moved(in, cut));
  WEFT_TRY(check_moved(in, joined));
  WEFT_TRY(check_parts(attrs, in.desc, cut));
  out.shape[cut] /= attrs.over.size;
  return lengthen(attrs, joined, out);
}

Status check_coordinate(const Attrs& attrs, int32_t coordinate, int32_t least) {
  if (coordinate >= least && coordinate < attrs.over.size) return {};
  return Status(Code::invalid, cat("coordinates has ", coordinate, ", expected ", least, " to ",
                                   attrs.over.size - 1));
}

Status broadcast(const Attrs& attrs, const Operand&, Desc&) {
  if (attrs.over.coordinates.size() != 1)
    return Status(Code::invalid, cat("coordinates has ", attrs.over.coordinates.size(),
                                     " entries, expected 1, the coordinate whose value is sent"));
  return check_coordinate(attrs, attrs.over.coordinates.front(), 0);
}

// No coordinate but -1 occurs twice.
Status check_distinct(const Attrs& attrs, int32_t least, const char* twice) {
  uint32_t seen = 0;
  for (const int32_t coordinate : attrs.over.coordinates) {
    WEFT_TRY(check_coordinate(attrs, coordinate, least));
    if (coordinate < 0) continue;
    if (seen & (1u << coordinate))
      return Status(Code::invalid, cat("coordinates has ", coordinate, " twice, ", twice));
    seen |= 1u << coordinate;
  }
  return {};
}

Status mask(const Attrs& attrs, const Operand&, Desc&) {
  if (attrs.over.coordinates.empty())
    return Status(Code::invalid,
                  "coordinates has no entry, expected the coordinates that keep their value");
  return check_distinct(attrs, 0, "expected each at most once");
}

Status ppermute(const Attrs& attrs, const Operand&, Desc&) {
  if (attrs.over.coordinates.size() != static_cast<size_t>(attrs.over.size))
    return Status(Code::invalid,
                  cat("coordinates has ", attrs.over.coordinates.size(), " entries, expected ",
                      attrs.over.size,
                      ": for each coordinate of the axis, the one whose value it gets, or -1"));
  return check_distinct(attrs, -1, "but a coordinate sends to one other at most");
}

struct Kind {
  Collective collective;
  std::string_view name;
  uint32_t reads;
  Status (*infer)(const Attrs& attrs, const Operand& in, Desc& out);
};

constexpr uint32_t reads_of(Collective collective) {
  switch (collective) {
    case Collective::all_gather:
    case Collective::reduce_scatter: return kOver | kAxis;
    case Collective::all_to_all: return kOver | kDims;
    case Collective::broadcast:
    case Collective::mask:
    case Collective::ppermute: return kOver | kCoordinates;
    default: return kOver;
  }
}

class CollectiveOp final : public Op {
 public:
  explicit CollectiveOp(const Kind& kind) : kind_(kind) {}
  std::string_view name() const override { return kind_.name; }
  uint32_t reads() const override { return kind_.reads; }
  Collective collective() const override { return kind_.collective; }

  Result<Inferred> infer(const Attrs& attrs, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 1, weights, 0));
    WEFT_TRY(check_movable(0, in[0].desc));
    if (attrs.over.size < 1)
      return Status(Code::invalid, "axis_name is not set, expected an axis of the model");
    Desc out = in[0].desc;
    WEFT_TRY(kind_.infer(attrs, in[0], out));
    return Inferred{.out = out, .stash = {}, .scratch = 0};
  }

  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc&) const override {
    return {};
  }
  Status forward(const Call&) const override { return no_kernel(); }
  Status input_grad(const Call&) const override { return no_kernel(); }

 private:
  Status no_kernel() const { return Status(Code::internal, cat(kind_.name, " has no kernel")); }
  Kind kind_;
};

}  // namespace

std::span<const Op* const> all_collectives() {
#define WEFT_COLLECTIVE(name) \
  CollectiveOp({Collective::name, #name, reads_of(Collective::name), &name}),
  static const CollectiveOp ops[] = {
#include "ops/collectives.def"
  };
#undef WEFT_COLLECTIVE
#define WEFT_COLLECTIVE(name) &ops[static_cast<size_t>(Collective::name) - 1],
  static const std::array<const Op*, std::size(ops)> table = {
#include "ops/collectives.def"
  };
#undef WEFT_COLLECTIVE
  return table;
}

}  // namespace weft
