// matmul: a b for matrices in the last two axes, one product for each index of the axes before
// them: [.., m, k] x [.., k, n].
#include <algorithm>

#include "kernels/gemm.h"
#include "kernels/ranges.h"
#include "ops/check.h"

namespace weft {

namespace {

struct Sizes {
  int64_t count, m, k, n;

  Sizes(const Shape& a, const Shape& b)
      : count(a.elements(0, a.rank - 2)), m(a[a.rank - 2]), k(a.last()), n(b.last()) {}
};

// Multiply-adds that a tile of small products has at least.
constexpr int64_t kTileWork = 2'000'000;

// `product` and its neighbours: operand x of product i begins at x + i * step.
struct Products {
  Gemm first;
  int64_t count, step_a, step_b, step_c;
};

// A large product is cut itself; small ones are dealt out whole, several to a tile.
void multiply(const Products& p, Tiles& tiles) {
  const auto product = [&](int64_t i) {
    Gemm g = p.first;
    g.a.data += i * p.step_a;
    g.b.data += i * p.step_b;
    g.c += i * p.step_c;
    return g;
  };
  const Gemm& f = p.first;
  if (p.count == 1 || gemm_split(f, tiles.threads()).count > 1) {
    for (int64_t i = 0; i < p.count; ++i) gemm(product(i), tiles);
    return;
  }
  const int64_t work = std::max<int64_t>(1, f.m * f.n * f.k);
  for_ranges(tiles, p.count, std::max<int64_t>(1, kTileWork / work),
             [&](int64_t begin, int64_t end) {
               for (int64_t i = begin; i < end; ++i) gemm_tile(product(i));
             });
}

class Matmul final : public Op {
 public:
  std::string_view name() const override { return "matmul"; }

  Result<Inferred> infer(const Attrs&, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    WEFT_TRY(check_counts(in, 2, weights, 0));
    for (int port = 0; port < 2; ++port) {
      const Operand& operand = in[static_cast<size_t>(port)];
      WEFT_TRY(check_dtype(port, operand.desc, DType::f32));
      WEFT_TRY(check_last_axes(port, operand, 2));
    }
    const Shape &a = in[0].desc.shape, &b = in[1].desc.shape;
    Shape wanted = a;  // of b, but for its last axis
    wanted[a.rank - 2] = a.last();
    wanted[a.rank - 1] = b.last();
    if (b != wanted) {
      std::string text = "f32[";
      for (int i = 0; i + 1 < a.rank; ++i) text += cat(wanted[i], ",");
      return Status(Code::invalid, cat("input 1 expects ", text, "?] for input 0 ",
                                       in[0].desc.text(), ", got ", in[1].desc.text()));
    }
    if (in[0].batched != in[1].batched)
      return Status(Code::invalid,
                    cat("input 1 expects ", in[0].batched ? "a batched" : "an unbatched",
                        " tensor as input 0, got ", in[1].batched ? "a batched" : "an unbatched",
                        " ", in[1].desc.text()));
    Inferred inferred{.out = in[0].desc, .stash = {}, .scratch = 0};
    inferred.out.shape[a.rank - 1] = b.last();
    return inferred;
  }

  Uses uses_input(const Attrs&) const override {
    return {.in = 0b11, .out = false, .stash = false};
  }

  Cost cost(const Attrs&, std::span<const Desc> in, std::span<const Desc>,
            const Desc& out) const override {
    const double product =
        2.0 * static_cast<double>(out.elements()) * static_cast<double>(in[0].shape.last());
    return {.forward_flops = product, .input_flops = 2 * product, .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    const Sizes s(call.in[0].desc.shape, call.in[1].desc.shape);
    const Factor a{call.in[0].f32(), s.k}, b{call.in[1].f32(), s.n};
    multiply({{s.m, s.n, s.k, a, b, call.out.f32(), s.n}, s.count, s.m * s.k, s.k * s.n, s.m * s.n},
             *call.tiles);
    return {};
  }

  Status input_grad(const Call& call) const override {
    const Sizes s(call.in[0].desc.shape, call.in[1].desc.shape);
    const int64_t a = s.m * s.k, b = s.k * s.n, c = s.m * s.n;
    const Factor dout{call.dout.f32(), s.n};
    if (call.din[0])  // dout b^T
      multiply({{s.m, s.k, s.n, dout, {call.in[1].f32(), s.n, kTransposed}, call.din[0].f32(), s.k},
                s.count,
                c,
                b,
                a},
               *call.tiles);
    if (call.din[1])  // a^T dout
      multiply({{s.k, s.n, s.m, {call.in[0].f32(), s.k, kTransposed}, dout, call.din[1].f32(), s.n},
                s.count,
                a,
                c,
                b},
               *call.tiles);
    return {};
  }
};

}  // namespace

const Op& matmul_op() {
  static const Matmul op;
  return op;
}

}  // namespace weft
