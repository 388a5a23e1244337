// Checks of the optimizer settings of a run, and the numbers that depend only on them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/plain_math.h"
#include "base/text.h"
#include "optim/optim.h"

namespace weft {

namespace {

constexpr std::pair<Rule, std::string_view> kRules[] = {
    {Rule::adamw, "adamw"}, {Rule::adam, "adam"}, {Rule::sgd, "sgd"}};
constexpr std::pair<RateCurve, std::string_view> kCurves[] = {{RateCurve::constant, "constant"},
                                                              {RateCurve::cosine, "cosine"},
                                                              {RateCurve::linear, "linear"}};

struct Field {
  std::string_view name;
  double value;
};

Status expect(bool holds, std::string_view field, double value, std::string_view expected) {
  if (holds) return {};
  return Status(Code::invalid, cat("optimizer ", field, " is ", value, ", expected ", expected));
}

bool at_least_zero(double value) { return std::isfinite(value) && value >= 0; }
bool fraction(double value) { return value >= 0 && value < 1; }

Status check_curve(const OptimSettings& s) {
  WEFT_TRY(expect(!curve_name(s.curve).empty(), "curve", static_cast<double>(s.curve),
                  "1 (constant), 2 (cosine) or 3 (linear)"));
  if (s.curve == RateCurve::constant) return {};
  if (s.total <= s.warmup)
    return Status(Code::invalid, cat("optimizer total is ", s.total,
                                     " steps, expected more than the ", s.warmup, " of warmup"));
  return expect(at_least_zero(s.min_rate) && s.min_rate <= s.rate, "min_rate", s.min_rate,
                cat("0 to the rate ", s.rate));
}

// A setting that the rule or the curve does not read is a mistake, or was left over from another
// rule.
Status check_reads(const OptimSettings& s) {
  const OptimSettings unset;
  const bool sgd = s.rule == Rule::sgd, falls = s.curve != RateCurve::constant;
  const std::string rule = cat("rule ", rule_name(s.rule)),
                    curve = cat("curve ", curve_name(s.curve));
  const struct {
    Field field;
    double unset;
    bool read;
    std::string_view chosen, readers;
  } all[] = {
      {{"momentum", s.momentum}, unset.momentum, sgd, rule, "rule sgd"},
      {{"beta1", s.beta1}, unset.beta1, !sgd, rule, "rules adam and adamw"},
      {{"beta2", s.beta2}, unset.beta2, !sgd, rule, "rules adam and adamw"},
      {{"eps", s.eps}, unset.eps, !sgd, rule, "rules adam and adamw"},
      {{"total", static_cast<double>(s.total)},
       static_cast<double>(unset.total),
       falls,
       curve,
       "curves cosine and linear"},
      {{"min_rate", s.min_rate}, unset.min_rate, falls, curve, "curves cosine and linear"},
  };
  for (const auto& one : all)
    if (!one.read && one.field.value != one.unset)
      return Status(Code::invalid,
                    cat("optimizer ", one.field.name, " is ", one.field.value, ", but ", one.chosen,
                        " does not read it; expected ", one.unset, ", or ", one.readers));
  return {};
}

}  // namespace

std::string_view rule_name(Rule rule) {
  for (const auto& [value, name] : kRules)
    if (value == rule) return name;
  return "";
}

std::string_view curve_name(RateCurve curve) {
  for (const auto& [value, name] : kCurves)
    if (value == curve) return name;
  return "";
}

Result<Rule> rule_named(std::string_view name) {
  for (const auto& [rule, known] : kRules)
    if (known == name) return rule;
  return Status(Code::data, cat("'rule' is '", name, "', expected adamw, adam or sgd"));
}

Result<RateCurve> curve_named(std::string_view name) {
  for (const auto& [curve, known] : kCurves)
    if (known == name) return curve;
  return Status(Code::data, cat("'curve' is '", name, "', expected constant, cosine or linear"));
}

bool is_amount(double value) {
  return at_least_zero(value) && value <= std::numeric_limits<float>::max();
}

Status check(const OptimSettings& s) {
  const bool known = s.rule == Rule::sgd || s.rule == Rule::adam || s.rule == Rule::adamw;
  WEFT_TRY(expect(known, "rule", static_cast<double>(s.rule), "1 (sgd), 2 (adam) or 3 (adamw)"));
  const Field amounts[] = {{"rate", s.rate}, {"eps", s.eps}, {"weight_decay", s.weight_decay}};
  for (const auto& [field, value] : amounts)
    WEFT_TRY(expect(is_amount(value), field, value, "a finite float of 0 or more"));
  WEFT_TRY(expect(at_least_zero(s.clip), "clip", s.clip, "a finite number of 0 or more"));
  const Field fractions[] = {{"momentum", s.momentum}, {"beta1", s.beta1}, {"beta2", s.beta2}};
  for (const auto& [field, value] : fractions)
    WEFT_TRY(expect(fraction(value), field, value, "0 or more and below 1"));
  WEFT_TRY(check_curve(s));
  return check_reads(s);
}

int slots(const OptimSettings& settings) {
  if (settings.rule == Rule::sgd) return settings.momentum != 0 ? 1 : 0;
  return 2;
}

std::string_view slot_name(const OptimSettings& settings, int slot) {
  if (settings.rule == Rule::sgd) return "momentum";
  return slot == 0 ? "exp_avg" : "exp_avg_sq";
}

double rate_at(const OptimSettings& s, uint64_t step) {
  if (step < s.warmup)
    return s.rate * (static_cast<double>(step) + 1) / static_cast<double>(s.warmup);
  if (s.curve == RateCurve::constant) return s.rate;
  if (step >= s.total) return s.min_rate;
  const double progress =
      static_cast<double>(step - s.warmup) / static_cast<double>(s.total - s.warmup);
  if (s.curve == RateCurve::linear) return s.min_rate + (s.rate - s.min_rate) * (1 - progress);
  double sine, cosine;
  plain_sincos_turn(progress / 2, sine, cosine);
  return s.min_rate + (s.rate - s.min_rate) * (1 + cosine) / 2;
}

double clip_scale(const OptimSettings& settings, double norm) {
  if (!std::isfinite(norm)) return 0;
  if (settings.clip == 0 || norm <= settings.clip) return 1;
  return std::max(settings.clip / norm, std::numeric_limits<double>::denorm_min());
}

}  // namespace weft
