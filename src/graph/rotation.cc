#include "graph/rotation.h"

#include "base/plain_math.h"
#include "base/text.h"

namespace weft {

std::vector<Key> rotation_keys(double theta, double rotary) {
  constexpr double kMostRows = 1 << 24;
  return {{"theta", theta, 1, 1e12, false},  {"rope_factor", 1, 1e-6, 1e6, false},
          {"rope_low", 0, 0, 1e6, false},    {"rope_high", 0, 0, 1e6, false},
          {"rope_context", 0, 0, kMostRows}, {"rotary", rotary, 0, 1, false}};
}

Result<std::vector<float>> frequencies_of(std::string_view name, const std::vector<Key>& keys,
                                          int64_t size) {
  constexpr double kTurn = 6.28318530717958647692;
  const double factor = value_of(keys, "rope_factor"), low = value_of(keys, "rope_low"),
               high = value_of(keys, "rope_high"), context = value_of(keys, "rope_context");
  const auto columns = static_cast<int64_t>(static_cast<double>(size) * value_of(keys, "rotary"));
  if (columns % 2)
    return Status(Code::invalid, cat("model '", name, "': ", columns, " of ", size,
                                     " columns of a head rotate, expected an even number"));
  std::vector<float> out;
  for (int64_t i = 0; i < columns; i += 2) {
    const double part = static_cast<double>(i) / static_cast<double>(columns);
    double frequency = 1 / plain_exp(plain_log(value_of(keys, "theta")) * part);
    const double turns = context * frequency / kTurn;
    if (high <= low || turns < low) {
      frequency /= factor;
    } else if (turns <= high) {
      const double kept = (turns - low) / (high - low);
      frequency *= (1 - kept) / factor + kept;
    }
    out.push_back(static_cast<float>(frequency));
  }
  return out;
}

}  // namespace weft
