#include "graph/rotation.h"

#include <algorithm>
#include <cmath>

#include "base/plain_math.h"
#include "base/text.h"

namespace weft {

namespace {

constexpr double kTurn = 6.28318530717958647692;

// A frequency, of which the part that is not divided is `kept`.
double divided(double frequency, double factor, double kept) {
  return frequency * ((1 - kept) / factor + kept);
}

// What scaling leaves of the i-th frequency of `pairs`.
class Scaling {
 public:
  Scaling(const std::vector<Key>& keys, int64_t columns, int64_t length)
      : factor_(value_of(keys, "rope_factor")),
        low_(value_of(keys, "rope_low")),
        high_(value_of(keys, "rope_high")),
        fast_(value_of(keys, "rope_fast")),
        context_(value_of(keys, "rope_context")),
        divisors_(
            list_of(keys, static_cast<double>(length) > context_ ? "rope_long" : "rope_short")) {
    if (fast_ == 0) return;
    const double all = static_cast<double>(columns), base = plain_log(value_of(keys, "theta"));
    // The column that makes so many turns in the original context.
    const auto column = [&](double turns) {
      return all * plain_log(context_ / (turns * kTurn)) / (2 * base);
    };
    begin_ = std::max(std::floor(column(fast_)), 0.0);
    end_ = std::min(std::ceil(column(value_of(keys, "rope_slow"))), all - 1);
    if (begin_ == end_) end_ += 0.001;
  }

  double operator()(size_t i, double frequency) const {
    if (!divisors_.empty()) return frequency / divisors_[i];
    if (fast_ > 0)
      return divided(frequency, factor_,
                     1 - std::clamp((static_cast<double>(i) - begin_) / (end_ - begin_), 0.0, 1.0));
    const double turns = context_ * frequency / kTurn;
    if (high_ <= low_ || turns < low_) return frequency / factor_;
    if (turns > high_) return frequency;
    return divided(frequency, factor_, (turns - low_) / (high_ - low_));
  }

 private:
  const double factor_, low_, high_, fast_, context_;
  const std::vector<double>& divisors_;
  double begin_ = 0, end_ = 0;  // between these columns of yarn, a part is divided
};

Status check_divisors(std::string_view name, const std::vector<Key>& keys, int64_t columns) {
  const auto found = [&keys](std::string_view key) {
    return static_cast<int64_t>(list_of(keys, key).size());
  };
  if (found("rope_short") == 0 && found("rope_long") == 0) return {};
  for (const std::string_view key : {"rope_short", "rope_long"})
    if (found(key) != columns / 2)
      return Status(Code::invalid,
                    cat("model '", name, "': ", key, " has ", found(key), " numbers, expected ",
                        columns / 2, ", one per pair of columns that rotates"));
  return {};
}

Status check_yarn(std::string_view name, const std::vector<Key>& keys) {
  const double fast = value_of(keys, "rope_fast"), slow = value_of(keys, "rope_slow");
  if (fast == 0 || (slow > 0 && slow < fast && value_of(keys, "rope_context") > 0 &&
                    value_of(keys, "theta") > 1))
    return {};
  return Status(Code::invalid, cat("model '", name, "': rope_fast is ", fast, ", rope_slow ", slow,
                                   ", expected rope_slow above 0 and below rope_fast, and a "
                                   "rope_context above 0 and a theta above 1"));
}

}  // namespace

std::vector<Key> rotation_keys(double theta, double rotary) {
  constexpr double kMostRows = 1 << 24;
  return {{"theta", theta, 1, 1e12, false},
          {"rope_factor", 1, 1e-6, 1e6, false},
          {"rope_low", 0, 0, 1e6, false},
          {"rope_high", 0, 0, 1e6, false},
          {"rope_context", 0, 0, kMostRows},
          {"rope_fast", 0, 0, 1e6, false},
          {"rope_slow", 0, 0, 1e6, false},
          {"rope_attention", 1, 1e-6, 1e6, false},
          {"rope_short", 0, 1e-6, 1e6, false, true},
          {"rope_long", 0, 1e-6, 1e6, false, true},
          {"rotary", rotary, 0, 1, false}};
}

Result<Rotation> rotation_of(std::string_view name, const std::vector<Key>& keys, int64_t size,
                             int64_t length) {
  const auto columns = static_cast<int64_t>(static_cast<double>(size) * value_of(keys, "rotary"));
  if (columns % 2)
    return Status(Code::invalid, cat("model '", name, "': ", columns, " of ", size,
                                     " columns of a head rotate, expected an even number"));
  WEFT_TRY(check_divisors(name, keys, columns));
  WEFT_TRY(check_yarn(name, keys));
  const Scaling scale(keys, columns, length);
  const double attention = value_of(keys, "rope_attention"),
               base = plain_log(value_of(keys, "theta"));
  Rotation out;
  if (attention != 1) out.factor = attention;
  for (int64_t i = 0; i < columns; i += 2) {
    const double part = static_cast<double>(i) / static_cast<double>(columns);
    const double frequency = scale(static_cast<size_t>(i / 2), 1 / plain_exp(base * part));
    out.frequencies.push_back(static_cast<float>(frequency));
  }
  return out;
}

}  // namespace weft
