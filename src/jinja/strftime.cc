#include "jinja/strftime.h"

#include <chrono>

#include "base/text.h"

namespace weft::jinja {

namespace {

constexpr std::string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                      "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};

}  // namespace

Result<std::string> time_text(int64_t seconds, std::string_view format) {
  using std::chrono::floor;
  const std::chrono::sys_seconds time{std::chrono::seconds(seconds)};
  const std::chrono::sys_days day = floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  const int64_t year = int(date.year()), hour = clock.hours().count();
  const int64_t day_of_year =
      (day - std::chrono::sys_days(date.year() / std::chrono::January / 1)).count() + 1;
  const std::string_view month = kMonths[unsigned(date.month()) - 1];
  const std::string_view weekday = kDays[std::chrono::weekday(day).c_encoding()];
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    switch (format[++i]) {
      case '%': out += '%'; break;
      case 'A': out += weekday; break;
      case 'a': out += weekday.substr(0, 3); break;
      case 'B': out += month; break;
      case 'b': out += month.substr(0, 3); break;
      case 'd': out += zero_padded(unsigned(date.day()), 2); break;
      case 'H': out += zero_padded(hour, 2); break;
      case 'I': out += zero_padded((hour + 11) % 12 + 1, 2); break;
      case 'j': out += zero_padded(day_of_year, 3); break;
      case 'M': out += zero_padded(clock.minutes().count(), 2); break;
      case 'm': out += zero_padded(unsigned(date.month()), 2); break;
      case 'p': out += hour < 12 ? "AM" : "PM"; break;
      case 'S': out += zero_padded(clock.seconds().count(), 2); break;
      case 'Y': out += cat(year); break;
      case 'y': out += zero_padded(year % 100, 2); break;
      default:
        return Status(Code::data, cat("'strftime_now': the directive ",
                                      quoted(format.substr(i - 1, 2)), " is not supported"));
    }
  }
  return out;
}

}  // namespace weft::jinja
