#include "io/checkpoint_names.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "io/file.h"

namespace weft {

namespace {

constexpr std::string_view kPrefix = "step-";
constexpr size_t kDigits = 8;

}  // namespace

std::string step_directory(uint64_t step) {
  std::string digits = cat(step);
  if (digits.size() < kDigits) digits.insert(0, kDigits - digits.size(), '0');
  return cat(kPrefix, digits);
}

std::optional<uint64_t> step_of_directory(std::string_view name) {
  if (!name.starts_with(kPrefix)) return {};
  const std::string_view digits = name.substr(kPrefix.size());
  uint64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || step_directory(step) != name) return {};
  return step;
}

std::string hidden_directory(uint64_t step, std::string_view purpose) { return cat('.', step_directory(step), '.', purpose); }

bool is_hidden_directory(std::string_view name) { return name.starts_with('.') && name.substr(1).starts_with(kPrefix); }

Result<std::vector<uint64_t>> list_steps(const std::string& directory) {
  WEFT_TRY_ASSIGN(const auto names, list_directory(directory));
  std::vector<uint64_t> steps;
  for (const std::string& name : names)
    if (const auto step = step_of_directory(name)) steps.push_back(*step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

}  // namespace weft
