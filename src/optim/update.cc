// The update of a parameter: the numbers of the step in double, then kernels over fixed tiles.
#include <algorithm>
#include <cmath>

#include "base/plain_math.h"
#include "kernels/ranges.h"
#include "kernels/update.h"
#include "optim/optim.h"

namespace weft {

namespace {

kernels::AdamStep adam_step(const OptimSettings& s, uint64_t made, double grad_scale, double rate,
                            double decay) {
  const double correction1 = 1 - plain_power(s.beta1, made + 1),
               correction2 = 1 - plain_power(s.beta2, made + 1);
  const bool decoupled = s.rule == Rule::adamw;
  return {
      .scale = static_cast<float>(grad_scale),
      .l2 = static_cast<float>(decoupled ? 0 : decay),
      .keep = static_cast<float>(decoupled ? 1 - rate * decay : 1),
      .beta2 = static_cast<float>(s.beta2),
      .rest1 = static_cast<float>(1 - s.beta1),
      .rest2 = static_cast<float>(1 - s.beta2),
      .inverse_root2 = static_cast<float>(1 / std::sqrt(correction2)),
      .eps = static_cast<float>(s.eps),
      .size = static_cast<float>(rate / correction1),
  };
}

// Elements of a tile of whole rows, as many as write_packed() packs together.
int64_t tile_of_rows(const kernels::PackedMatrix& matrix) {
  const int64_t width = kernels::width_of(matrix);
  const int64_t groups = (tile_rows(width) + kernels::kPackedRows - 1) / kernels::kPackedRows;
  return std::max<int64_t>(1, groups * kernels::kPackedRows * width);
}

}  // namespace

void square_blocks(const float* x, int64_t begin, int64_t end, double* partials) {
  for (int64_t at = begin; at < end; at += kNormBlock)
    partials[at / kNormBlock] = kernels::sum_of_squares(x + at, std::min(kNormBlock, end - at));
}

double sum_of_blocks(const double* partials, int64_t n) {
  double sum = 0;
  for (int64_t block = 0; block * kNormBlock < n; ++block) sum += partials[block];
  return sum;
}

void update(const OptimSettings& settings, double rate, uint64_t made, double grad_scale,
            const UpdateFactors& factors, int64_t n, float* weight, const float* grad, float* slot0,
            float* slot1, const kernels::WeightCopies& copies, Tiles& tiles) {
  rate *= factors.rate;
  const double decay = factors.decay * settings.weight_decay;
  const int64_t tile = copies.packed.empty() ? kTileElements : tile_of_rows(copies.packed.front());
  const auto each_tile = [&](auto&& rule) {
    for_ranges(tiles, n, tile, [&](int64_t begin, int64_t end) {
      rule(begin, end - begin);
      write_packed(copies.packed, begin, {weight + begin, static_cast<size_t>(end - begin)});
      if (copies.in_order) kernels::to_bf16(weight + begin, copies.in_order + begin, end - begin);
    });
  };
  if (grad_scale == 0) return each_tile([](int64_t, int64_t) {});
  if (settings.rule != Rule::sgd) {
    const kernels::AdamStep shared = adam_step(settings, made, grad_scale, rate, decay);
    return each_tile([&](int64_t at, int64_t count) {
      kernels::adam(weight + at, grad + at, slot0 + at, slot1 + at, count, shared);
    });
  }
  const float scale = static_cast<float>(grad_scale), l2 = static_cast<float>(decay);
  const float size = static_cast<float>(rate), momentum = static_cast<float>(settings.momentum);
  if (slots(settings) == 0)
    return each_tile([&](int64_t at, int64_t count) {
      kernels::sgd(weight + at, grad + at, count, scale, l2, size);
    });
  each_tile([&](int64_t at, int64_t count) {
    kernels::sgd_momentum(weight + at, grad + at, slot0 + at, count, scale, l2, size, momentum);
  });
}

void average(double share, double count, int64_t n, float* value, const float* sum) {
  for (int64_t i = 0; i < n; ++i)
    value[i] = static_cast<float>(value[i] + share * (sum[i] / count - value[i]));
}

}  // namespace weft
