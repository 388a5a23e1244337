// JSON output: objects on one line, numbers in the shortest form that reads back as the same value.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

std::string number_text(double value);  // "null" if the number is not finite
std::string quoted_text(
    std::string_view text);  // with its quotes; bytes that are not UTF-8 become U+FFFD

class JsonObject {
 public:
  JsonObject& raw(std::string_view key, std::string_view json);
  JsonObject& add(std::string_view key, std::string_view value) {
    return raw(key, quoted_text(value));
  }
  JsonObject& add(std::string_view key, const char* value) { return raw(key, quoted_text(value)); }
  JsonObject& add(std::string_view key, double value) { return raw(key, number_text(value)); }
  JsonObject& add(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
  template <std::integral T>
  JsonObject& add(std::string_view key, T value) {
    return raw(key, std::to_string(value));
  }
  JsonObject& add(std::string_view key, const JsonObject& value) { return raw(key, value.text()); }
  template <typename T>
  JsonObject& add(std::string_view key, const std::vector<T>& values) {
    std::string list;
    for (const T& value : values) {
      list += list.empty() ? "[" : ",";
      if constexpr (std::is_same_v<T, double>)
        list += number_text(value);
      else if constexpr (std::is_same_v<T, JsonObject>)
        list += value.text();
      else if constexpr (std::integral<T>)
        list += std::to_string(value);
      else
        list += quoted_text(value);
    }
    return raw(key, list.empty() ? "[]" : list + "]");
  }
  std::string text() const { return text_.empty() ? "{}" : text_ + "}"; }

 private:
  std::string text_;
};

}  // namespace weft::cli
