// Update rules, as in PyTorch: SGD (momentum, weight decay added to the gradient), Adam (L2 decay
// added to the gradient), AdamW (decoupled decay). Pure functions of the bits of one parameter; one
// call updates a whole parameter.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "kernels/packed_elements.h"
#include "kernels/tiles.h"

namespace weft {

enum class Rule : uint8_t { sgd = 1, adam = 2, adamw = 3 };
enum class RateCurve : uint8_t { constant = 1, cosine = 2, linear = 3 };

// The names in files and options: "adamw", "cosine".
std::string_view rule_name(Rule rule);
std::string_view curve_name(RateCurve curve);
// The error lists the known names.
Result<Rule> rule_named(std::string_view name);
Result<RateCurve> curve_named(std::string_view name);

// Settings of a run; part of the plan's hash.
struct OptimSettings {
  Rule rule = Rule::adamw;
  double rate = 1e-3;
  double momentum = 0;  // sgd
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;
  bool decay_all = false;  // false: only parameters of 2 or more dimensions decay
  RateCurve curve = RateCurve::constant;
  uint64_t warmup = 0;  // steps of linear warm-up: step s (from 0) has rate * (s+1)/warmup
  uint64_t total = 0;   // cosine, linear: steps until the rate reaches min_rate
  double min_rate = 0;
  double clip = 0;  // global norm; 0 = no clipping
};

bool is_amount(double value);                 // a finite float of 0 or more, as updates use it
Status check(const OptimSettings& settings);  // names the field, what was expected, what was found
int slots(const OptimSettings&
              settings);  // optimizer tensors per parameter: sgd 0 or 1, adam and adamw 2
std::string_view slot_name(const OptimSettings& settings,
                           int slot);  // "momentum", "exp_avg", "exp_avg_sq"
double rate_at(const OptimSettings& settings, uint64_t step);  // step counts from 0
// The factor of the gradient: 1 if norm <= clip or without clipping, otherwise clip / norm; 0 if
// the norm is not finite, so that update() changes nothing.
double clip_scale(const OptimSettings& settings, double norm);

// Sum of squares of n floats: blocks of kNormBlock elements from the start, each summed in double
// in a fixed tree, folded ascending. `partials` has one sum per block, so that threads can divide
// the blocks.
constexpr int64_t kNormBlock = 4096;
constexpr int64_t norm_blocks(int64_t n) { return (n + kNormBlock - 1) / kNormBlock; }
// `begin` is a multiple of kNormBlock.
void square_blocks(const float* x, int64_t begin, int64_t end, double* partials);
double sum_of_blocks(const double* partials, int64_t n);

// Of one parameter, on the rate and the weight decay of the settings.
struct UpdateFactors {
  double rate = 1, decay = 1;
};

// weight, slot0, slot1: n floats, updated in place. grad: n floats, read. `rate` is that of the
// step, `made` the number of updates before this one. The new weight is also written to `copies`,
// while its rows are in a cache. With grad_scale 0 the weight and the slots keep their bits.
void update(const OptimSettings& settings, double rate, uint64_t made, double grad_scale,
            const UpdateFactors& factors, int64_t n, float* weight, const float* grad, float* slot0,
            float* slot1, const kernels::WeightCopies& copies, Tiles& tiles);

// Moves n values by that share towards the mean of `count` contributions, whose sums are given.
void average(double share, double count, int64_t n, float* value, const float* sum);

}  // namespace weft
