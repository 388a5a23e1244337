// Times, bytes and numbers as text for people.
#pragma once

#include <cstdint>
#include <string>

namespace weft::cli {

std::string fixed_text(double value, int digits);
std::string short_text(double value);       // 3 significant digits
std::string time_text(double seconds);      // 1.23 s, 45.6 ms, 7.8 us
std::string about_text(double seconds);     // 7 min 3 s, 1.2 s, 170 ms
std::string duration_text(double seconds);  // 40 s, 3 min 20 s, 2 h 5 min
std::string bytes_text(int64_t bytes);      // 12.3 GiB, 45.6 MiB, 7.8 KiB

}  // namespace weft::cli
