#include "cli/units.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace weft::cli {

namespace {

// Whether a NaN has a sign depends on the processor.
double printed(double value) { return std::isnan(value) ? std::fabs(value) : value; }

}  // namespace

std::string fixed_text(double value, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, printed(value));
  return buffer;
}

std::string short_text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3g", printed(value));
  return buffer;
}

std::string time_text(double seconds) {
  if (seconds >= 1) return fixed_text(seconds, 2) + " s";
  if (seconds >= 1e-3) return fixed_text(seconds * 1e3, 2) + " ms";
  return fixed_text(seconds * 1e6, 1) + " us";
}

std::string about_text(double seconds) {
  if (seconds >= 10) return duration_text(seconds);
  if (seconds >= 1) return fixed_text(seconds, 1) + " s";
  return seconds >= 1e-2 ? fixed_text(seconds * 1e3, 0) + " ms" : time_text(seconds);
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<uint64_t>(std::llround(std::clamp(seconds, 0.0, 1e15)));
  const auto text = [](uint64_t n, const char* unit) { return std::to_string(n) + unit; };
  if (whole >= 86400) return text(whole / 86400, " d ") + text(whole / 3600 % 24, " h");
  if (whole >= 3600) return text(whole / 3600, " h ") + text(whole / 60 % 60, " min");
  if (whole >= 60) return text(whole / 60, " min ") + text(whole % 60, " s");
  return text(std::max<uint64_t>(whole, 1), " s");
}

std::string bytes_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= int64_t{10} << 30) return fixed_text(value / 0x1p30, 1) + " GiB";
  if (bytes >= int64_t{1} << 20) return fixed_text(value / 0x1p20, 1) + " MiB";
  return fixed_text(value / 0x1p10, 1) + " KiB";
}

}  // namespace weft::cli
