// A JSON value. The library for reading and printing has one too, but its destructor allocates,
// which ends the process if there is not enough memory.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object =
      std::map<std::string, Json, std::less<>>;  // ordered by key, so a value has one text

  Json() = default;  // null
  Json(std::nullptr_t) {}
  Json(bool value) : kind_(Kind::boolean), whole_(value) {}
  Json(double value) : kind_(Kind::fraction), fraction_(value) {}
  template <typename T>
  requires std::is_integral_v<T> &&(!std::is_same_v<T, bool>)Json(T value)
      : kind_(std::is_signed_v<T> ? Kind::integer : Kind::whole),
        whole_(static_cast<uint64_t>(value)),
        fraction_(static_cast<double>(value)) {}
  Json(const char* text) : kind_(Kind::string), text_(text) {}
  Json(std::string text) : kind_(Kind::string), text_(std::move(text)) {}
  Json(const std::vector<std::string>& texts)
      : kind_(Kind::array), items_(texts.begin(), texts.end()) {}
  static Json array() { return Json(Kind::array); }
  static Json object(std::initializer_list<std::pair<const char*, Json>> members = {});

  bool is_null() const { return kind_ == Kind::null; }
  bool is_boolean() const { return kind_ == Kind::boolean; }
  bool is_number_unsigned() const { return kind_ == Kind::whole; }
  bool is_number() const {
    return kind_ == Kind::whole || kind_ == Kind::integer || kind_ == Kind::fraction;
  }
  bool is_string() const { return kind_ == Kind::string; }
  bool is_array() const { return kind_ == Kind::array; }
  bool is_object() const { return kind_ == Kind::object; }
  const char* type_name() const;

  // Valid for values of this kind.
  bool boolean() const { return whole_ != 0; }
  uint64_t whole() const { return whole_; }
  double number() const { return fraction_; }  // of any number
  const std::string& text() const { return text_; }
  const Array& items() const { return items_; }
  Array& items() { return items_; }
  const Object& members() const { return members_; }
  Object& members() { return members_; }

  void push_back(Json value) { items().push_back(std::move(value)); }
  Json& operator[](const std::string& key) { return members()[key]; }

  // `indent` spaces per level on separate lines; -1: one line. Bytes that are not UTF-8 are
  // replaced.
  std::string dump(int indent = -1) const;

 private:
  enum class Kind : uint8_t { null, boolean, whole, integer, fraction, string, array, object };
  explicit Json(Kind kind) : kind_(kind) {}
  std::string scalar() const;
  void print(std::string& out, int indent, int depth) const;

  Kind kind_ = Kind::null;
  uint64_t whole_ = 0;  // two's complement of an integer below 0
  double fraction_ = 0;
  std::string text_;
  Array items_;
  Object members_;
};

}  // namespace weft
