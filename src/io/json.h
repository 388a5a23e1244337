// A JSON value. The library for reading and printing has one too, but its destructor allocates,
// which ends the process if there is not enough memory.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace weft {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object =
      std::map<std::string, Json, std::less<>>;  // ordered by key, so a value has one text

  Json() = default;  // null
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(double value) : value_(value) {}
  template <typename T>
  requires std::is_integral_v<T> &&(!std::is_same_v<T, bool>)Json(T value)
      : value_(std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>(value)) {}
  Json(const char* text) : value_(std::string(text)) {}
  Json(std::string text) : value_(std::move(text)) {}
  Json(const std::vector<std::string>& texts) : value_(Array(texts.begin(), texts.end())) {}
  static Json array() { return Json(Array()); }
  static Json object(std::initializer_list<std::pair<const char*, Json>> members = {});

  bool is_null() const { return is<std::monostate>(); }
  bool is_boolean() const { return is<bool>(); }
  bool is_number_unsigned() const { return is<uint64_t>(); }
  bool is_number() const { return is<uint64_t>() || is<int64_t>() || is<double>(); }
  bool is_string() const { return is<std::string>(); }
  bool is_array() const { return is<Array>(); }
  bool is_object() const { return is<Object>(); }
  const char* type_name() const;
  // Null, false, or an empty list or object.
  bool is_off() const;

  // Valid for values of this kind.
  bool boolean() const { return std::get<bool>(value_); }
  uint64_t whole() const { return std::get<uint64_t>(value_); }
  double number() const;  // of any number
  const std::string& text() const { return std::get<std::string>(value_); }
  const Array& items() const { return std::get<Array>(value_); }
  Array& items() { return std::get<Array>(value_); }
  const Object& members() const { return std::get<Object>(value_); }
  Object& members() { return std::get<Object>(value_); }

  void push_back(Json value) { items().push_back(std::move(value)); }
  Json& operator[](const std::string& key) { return members()[key]; }

  // `indent` spaces per level on separate lines; -1: one line. Bytes that are not UTF-8 are
  // replaced.
  std::string dump(int indent = -1) const;

 private:
  explicit Json(Array items) : value_(std::move(items)) {}
  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(value_);
  }
  std::string scalar() const;
  void print(std::string& out, int indent, int depth) const;

  // An integer of a signed type is not a uint64_t, even if it is not below 0.
  std::variant<std::monostate, bool, uint64_t, int64_t, double, std::string, Array, Object> value_;
};

}  // namespace weft
