// cross_entropy_of_parts: softmax_cross_entropy, from what cross_entropy_part made of each part of
// the columns. Input 0 holds the targets i32 [..], the others [.., 3] each, in the order of
// columns.
#include <algorithm>

#include "kernels/ranges.h"
#include "kernels/softmax.h"
#include "ops/check.h"
#include "ops/targets.h"

namespace weft {

namespace {

class CrossEntropyOfParts final : public Op {
 public:
  std::string_view name() const override { return "cross_entropy_of_parts"; }

  Result<Inferred> infer(const Attrs&, std::span<const Operand> in,
                         std::span<const Desc> weights) const override {
    if (in.size() < 2 || in.size() > kMaxInputs + 1)
      return Status(Code::invalid,
                    cat("expected 2 to ", kMaxInputs + 1, " inputs, got ", in.size()));
    WEFT_TRY(check_counts(in, in.size(), weights, 0));
    WEFT_TRY(check_dtype(0, in[0].desc, DType::i32));
    Operand part{{DType::f32, in[0].desc.shape}, in[0].batched};
    if (part.desc.shape.rank == kMaxRank)
      return Status(Code::invalid, cat("input 0 expects ", kMaxRank - 1,
                                       " or fewer dimensions, got ", in[0].desc.text()));
    part.desc.shape[part.desc.shape.rank++] = kCrossEntropyFields;
    for (size_t i = 1; i < in.size(); ++i)
      WEFT_TRY(check_same_as(part, in[i], static_cast<int>(i)));
    // A row of logs for each target, the largest of them, and two numbers (softmax.h).
    const int64_t floats = in[0].desc.elements() * (static_cast<int64_t>(in.size()) + 2);
    return Inferred{.out = {DType::f64, {1}},
                    .stash = {},
                    .scratch = static_cast<size_t>(floats) * sizeof(float)};
  }

  bool differentiable(int port) const override { return port != 0; }
  bool is_loss() const override { return true; }
  int target_port() const override { return 0; }
  double count(const View& targets) const override { return count_targets(targets); }
  Uses uses_input(const Attrs&) const override { return {.in = ~0u, .out = false, .stash = false}; }

  Cost cost(const Attrs&, std::span<const Desc> in, std::span<const Desc>,
            const Desc&) const override {
    const double n = static_cast<double>(in[0].elements()) * static_cast<double>(in.size() - 1);
    return {.forward_flops = 20 * n, .input_flops = 20 * n, .weight_flops = 0};
  }

  Status forward(const Call& call) const override {
    const int32_t* targets = call.in[0].i32();
    const int64_t rows = call.in[0].desc.elements(), n = parts(call);
    float* logs = static_cast<float*>(call.scratch);
    float* largest = logs + rows * n;
    float* top = largest + rows;
    float* log = top + rows;
    for_ranges(*call.tiles, rows, tile_rows(n), [&](int64_t begin, int64_t end) {
      gather(call, begin, end, logs, largest);
      kernels::log_sum_exp(logs + begin * n, end - begin, n, top + begin, log + begin);
    });
    double sum = 0;
    for (int64_t row = 0; row < rows; ++row) {
      if (targets[row] < 0) continue;
      double logit = 0;  // of the one part that has the target
      for (int64_t p = 0; p < n; ++p) logit += double{fields(call.in, p, row)[2]};
      sum += (double{largest[row]} - logit) + (double{top[row]} + double{log[row]});
    }
    *call.out.as<double>() = sum;
    return {};
  }

  Status input_grad(const Call& call) const override {
    const int64_t n = parts(call);
    const float factor = static_cast<float>(1 / call.denominator);
    const int64_t rows = call.in[0].desc.elements();
    float* shares = static_cast<float*>(call.scratch);
    for_ranges(*call.tiles, rows, tile_rows(n), [&](int64_t begin, int64_t end) {
      gather(call, begin, end, shares, shares + rows * n);
      kernels::softmax(shares + begin * n, end - begin, n, shares + begin * n);
      for (int64_t p = 0; p < n; ++p) {
        if (!part(call.din, p)) continue;
        for (int64_t row = begin; row < end; ++row) {
          const bool counted = call.in[0].i32()[row] >= 0;
          float* din = fields(call.din, p, row);
          din[0] = counted ? shares[row * n + p] * factor : 0;
          din[1] = din[0];
          din[2] = counted ? -factor : 0;
        }
      }
    });
    return {};
  }

 private:
  static constexpr size_t kMaxInputs = 16;

  static int64_t parts(const Call& call) { return static_cast<int64_t>(call.in.size()) - 1; }
  static const View& part(std::span<const View> views, int64_t p) {
    return views[static_cast<size_t>(p) + 1];
  }
  static float* fields(std::span<const View> views, int64_t p, int64_t row) {
    return part(views, p).f32() + kCrossEntropyFields * row;
  }
  // The largest log of the parts of each row, and the logs less it.
  static void gather(const Call& call, int64_t begin, int64_t end, float* logs, float* largest) {
    const int64_t n = parts(call);
    for (int64_t row = begin; row < end; ++row) {
      largest[row] = fields(call.in, 0, row)[0];
      for (int64_t p = 1; p < n; ++p)
        largest[row] = std::max(largest[row], fields(call.in, p, row)[0]);
      for (int64_t p = 0; p < n; ++p) {
        const float* log = fields(call.in, p, row);
        logs[row * n + p] = (log[0] - largest[row]) + log[1];
      }
    }
  }
};

}  // namespace

const Op& cross_entropy_of_parts_op() {
  static const CrossEntropyOfParts op;
  return op;
}

}  // namespace weft
