// Text without locale: numbers print the same whatever the host process has set.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace weft {

// Shortest decimal form that reads back as the same double.
std::string to_text(double value);

namespace detail {
inline void append(std::string& out, std::string_view text) { out.append(text); }
inline void append(std::string& out, char c) { out.push_back(c); }
inline void append(std::string& out, double value) { out += to_text(value); }
template <std::integral T>
void append(std::string& out, T value) {
  char buffer[24];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  out.append(buffer, end);
}
}  // namespace detail

// Onto what is there; allocates nothing while the capacity suffices (numbers with a point aside).
template <typename... Parts>
void append(std::string& out, const Parts&... parts) {
  (detail::append(out, parts), ...);
}

// cat("node '", name, "': port ", 0) -> std::string
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  append(out, parts...);
  return out;
}

// Bytes of unknown origin for a person: the first ones in quotes, those that are no letters as "\\x16".
std::string quoted(std::string_view bytes, size_t most = 16);

}  // namespace weft
