#include "io/window_config.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace weft {

namespace {

constexpr const char *kWindow = "sliding_window", *kTypes = "layer_types",
                     *kUsed = "use_sliding_window", *kFirst = "max_window_layers",
                     *kPeriod = "sliding_window_pattern", *kNewPeriod = "_sliding_window_pattern";
constexpr std::string_view kFull = R"("full_attention")", kSliding = R"("sliding_attention")";
constexpr double kMostBlocks = 1000;  // of a preset
constexpr double kFirstDefault = 28;  // of Transformers if the field is missing

// Sets the last window of every period to 0.
Status read_period(ConfigFields& config, const Architecture& architecture,
                   std::vector<double>& windows) {
  double period = architecture.period;
  if (architecture.has_period)
    for (const char* field : {kNewPeriod, kPeriod})
      WEFT_TRY(config.number({.field = field, .key = "window", .value = period}, period));
  if (period < 1)
    return Status(Code::data, cat("'", kPeriod, "' is ", period, ", expected at least 1"));
  const auto step = static_cast<size_t>(period);
  for (size_t i = step - 1; i < windows.size(); i += step) windows[i] = 0;
  return {};
}

// Sets the windows to 0 or `window` as the list says.
Status read_types(ConfigFields& config, double window, std::vector<double>& windows) {
  const Json* list = config.find(kTypes);
  if (!list || list->is_null()) return {};
  if (!list->is_array() || list->items().size() != windows.size())
    return config.unexpected(kTypes, *list, cat("a list of ", windows.size(), " types"));
  for (size_t i = 0; i < windows.size(); ++i) {
    const std::string type = list->items()[i].dump();
    if (type != kFull && (type != kSliding || window == 0))
      return config.unexpected(
          kTypes, *list, cat(kFull, window > 0 ? cat(" or ", kSliding) : "", " for each layer"),
          Code::unsupported);
    windows[i] = type == kFull ? 0 : window;
  }
  return {};
}

std::vector<double> numbers_of(std::string_view list) {
  std::vector<double> out;
  while (!list.empty()) {
    const std::string_view item = take_item(list, '/');
    std::from_chars(item.data(), item.data() + item.size(), out.emplace_back());
  }
  return out;
}

// The windows of all blocks.
Result<std::vector<double>> windows_of(std::string_view keys) {
  WEFT_TRY_ASSIGN(const std::string blocks, preset_value(keys, "blocks"));
  WEFT_TRY_ASSIGN(const std::string list, preset_value(keys, "window"));
  std::vector<double> turns = numbers_of(list), out;
  if (turns.empty()) turns.push_back(0);
  const std::vector<double> count = numbers_of(blocks);
  if (count.size() != 1 || !(count[0] >= 1 && count[0] <= kMostBlocks))
    return Status(Code::data, cat("key blocks is '", blocks, "', expected 1 to ", kMostBlocks));
  for (size_t i = 0; i < static_cast<size_t>(count[0]); ++i) out.push_back(turns[i % turns.size()]);
  return out;
}

// To the fewest of which the others are repetitions.
void shorten(std::vector<double>& windows) {
  auto rest = windows.begin() + 1;
  while (!std::equal(rest, windows.end(), windows.begin())) ++rest;
  windows.erase(rest, windows.end());
}

std::string types_of(const std::vector<double>& windows) {
  std::string out;
  for (const double window : windows)
    out += cat(out.empty() ? "[" : ", ", window > 0 ? kSliding : kFull);
  return out + "]";
}

}  // namespace

Status read_windows(ConfigFields& config, const Architecture& architecture, PresetKeys& keys) {
  const bool some = architecture.windows == Windows::some_layers;
  double window = 0, first = 0;
  bool used = true;
  if (architecture.windows != Windows::none)
    WEFT_TRY(config.number(
        {.field = kWindow, .key = "window", .value = architecture.window, .nullable = true},
        window));
  if (some) {
    WEFT_TRY_ASSIGN(used, config.flag(kUsed));  // other models use theirs
    WEFT_TRY(config.number({.field = kFirst, .key = "window", .value = kFirstDefault}, first));
  }
  if (!used) window = 0;
  const double blocks = keys.value("blocks");
  if (blocks < 1 || blocks > kMostBlocks)
    return Status(Code::data, cat("has ", digits_of(to_text(blocks)), " layers, expected 1 to ",
                                  digits_of(to_text(kMostBlocks))));
  std::vector<double> windows(static_cast<size_t>(blocks), window);
  std::fill_n(windows.begin(), std::min(windows.size(), static_cast<size_t>(first)), 0.0);
  if (architecture.windows == Windows::periodic)
    WEFT_TRY(read_period(config, architecture, windows));
  WEFT_TRY(read_types(config, window, windows));
  shorten(windows);
  if (windows[0] == 0 && windows.size() == 1) windows.clear();
  // GPT-NeoX has no such key.
  if (architecture.windows != Windows::none || !windows.empty())
    keys.set("window", std::move(windows));
  return {};
}

Result<WindowFields> print_windows(std::string_view keys, const Architecture& architecture) {
  WindowFields out;
  if (architecture.windows == Windows::none) return out;
  WEFT_TRY_ASSIGN(const std::vector<double> windows, windows_of(keys));
  const double window = *std::max_element(windows.begin(), windows.end());
  const auto agrees = [window](double each) { return each == 0 || each == window; };
  const bool all = std::count(windows.begin(), windows.end(), window) ==
                   static_cast<std::ptrdiff_t>(windows.size());
  const bool some = architecture.windows == Windows::some_layers,
             has_types = some || architecture.windows == Windows::periodic;
  if (!std::all_of(windows.begin(), windows.end(), agrees) || (!all && !has_types))
    return Status(Code::unsupported,
                  cat("key window differs between blocks, expected one value for '",
                      architecture.type, "' of Transformers", has_types ? ", or 0" : ""));
  if (some) out.emplace_back(kUsed, window > 0 ? "true" : "false");
  if (some && window == 0) return out;
  // Gemma has a window even if no layer uses it.
  const double written = window == 0 && has_types ? architecture.window : window;
  out.emplace_back(kWindow, written > 0 ? digits_of(to_text(written)) : "null");
  if (!has_types) return out;
  const auto first = std::find(windows.begin(), windows.end(), window);
  if (some) out.emplace_back(kFirst, cat(first - windows.begin()));
  out.emplace_back(kTypes, types_of(windows));
  return out;
}

}  // namespace weft
