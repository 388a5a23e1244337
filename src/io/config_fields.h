// The fields of config.json, and the keys of a preset that are made from them.
#pragma once

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "io/json.h"
#include "io/model_architectures.h"

namespace weft {

inline constexpr uint64_t kMostWhole = uint64_t{1} << 48;  // its digits are exact in a double

// The fields of an object, read one by one; the remaining ones are unknown. `where` precedes their
// names in messages.
class ConfigFields {
 public:
  explicit ConfigFields(const Json& object, std::string where = "")
      : object_(object), where_(std::move(where)) {}

  // Whether the field is there, and not null.
  bool has(const char* field) const;
  // Null if the field is missing.
  const Json* find(const char* field);
  // The value of a number, which later ones may refer to.
  Status number(const Number& n, double& out);
  Status fixed(const Fixed& fixed);
  // `missing`: the value if the field is missing.
  Result<bool> flag(const char* field, bool missing = false);
  // A list of numbers.
  Status list(const char* field, std::vector<double>& out);
  Status unexpected(const char* field, const Json& value, std::string_view expected,
                    Code code = Code::data) const;
  // Fails if a field was not read, unless its value is off (Json::is_off()): each version of a
  // program adds some.
  Status finish() const;

 private:
  Result<double> read(const Number& n);
  Result<double> like(const Number& n) const;

  const Json& object_;
  const std::string where_;
  std::set<std::string, std::less<>> read_;
  std::map<std::string_view, double> numbers_;
};

// The values of the keys of a preset, in the order of its architecture.
class PresetKeys {
 public:
  void set(std::string_view key, double value) { set(key, std::vector{value}); }
  void set(std::string_view key, std::vector<double> values);
  // Of a key that is set.
  double value(std::string_view key) const;
  std::string text() const;

 private:
  std::vector<std::pair<std::string_view, std::vector<double>>> all_;
};

// The text of a key's value in "key=value,...".
Result<std::string> preset_value(std::string_view keys, std::string_view wanted);
// Of a whole number, which the text of a model may contain as "1e+06".
std::string digits_of(std::string_view text);
// Transformers expects a fraction where it wrote one.
std::string fraction_of(std::string text);

}  // namespace weft
