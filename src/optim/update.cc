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

}  // namespace

double sum_of_squares(const float* x, int64_t n, double* partials, Tiles& tiles) {
  for_ranges(tiles, n, kTileElements, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kNormBlock)
      partials[at / kNormBlock] = kernels::sum_of_squares(x + at, std::min(kNormBlock, end - at));
  });
  double sum = 0;
  for (int64_t block = 0; block * kNormBlock < n; ++block) sum += partials[block];
  return sum;
}

void update(const OptimSettings& settings, uint64_t step, uint64_t made, double grad_scale,
            const UpdateFactors& factors, int64_t n, float* weight, const float* grad, float* slot0,
            float* slot1, Tiles& tiles) {
  const double rate = factors.rate * rate_at(settings, step),
               decay = factors.decay * settings.weight_decay;
  if (settings.rule != Rule::sgd) {
    const kernels::AdamStep shared = adam_step(settings, made, grad_scale, rate, decay);
    for_ranges(tiles, n, kTileElements, [&](int64_t begin, int64_t end) {
      kernels::adam(weight + begin, grad + begin, slot0 + begin, slot1 + begin, end - begin,
                    shared);
    });
    return;
  }
  const float scale = static_cast<float>(grad_scale), l2 = static_cast<float>(decay);
  const float size = static_cast<float>(rate), momentum = static_cast<float>(settings.momentum);
  for_ranges(tiles, n, kTileElements, [&](int64_t begin, int64_t end) {
    if (slots(settings) == 0)
      kernels::sgd(weight + begin, grad + begin, end - begin, scale, l2, size);
    else
      kernels::sgd_momentum(weight + begin, grad + begin, slot0 + begin, end - begin, scale, l2,
                            size, momentum);
  });
}

}  // namespace weft
