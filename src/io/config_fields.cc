#include "io/config_fields.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace weft {

bool ConfigFields::has(const char* field) const {
  const auto it = object_.members().find(field);
  return it != object_.members().end() && !it->second.is_null();
}

const Json* ConfigFields::find(const char* field) {
  read_.insert(field);
  const auto it = object_.members().find(field);
  return it == object_.members().end() ? nullptr : &it->second;
}

Status ConfigFields::number(const Number& n, double& out) {
  WEFT_TRY_ASSIGN(out, read(n));
  numbers_[n.field] = out;
  return {};
}

Status ConfigFields::fixed(const Fixed& fixed) {
  const Json* value = find(fixed.field);
  if (!value) return {};
  const std::string found = value->dump();
  std::string_view left = fixed.values;
  while (!left.empty()) {
    const size_t end = std::min(left.find(kOr), left.size());
    if (left.substr(0, end) == found) return {};
    left.remove_prefix(std::min(end + kOr.size(), left.size()));
  }
  return unexpected(fixed.field, *value, fixed.values, Code::unsupported);
}

Result<bool> ConfigFields::flag(const char* field, bool missing) {
  const Json* value = find(field);
  if (!value) return missing;
  if (value->is_boolean()) return value->boolean();
  return unexpected(field, *value, "true or false");
}

Status ConfigFields::list(const char* field, std::vector<double>& out) {
  const Json* value = find(field);
  if (!value) return Status(Code::data, cat("has no ", shown(where_ + field)));
  if (!value->is_array()) return unexpected(field, *value, "a list of numbers");
  for (const Json& item : value->items()) {
    if (!item.is_number()) return unexpected(field, *value, "a list of numbers");
    out.push_back(item.number());
  }
  return {};
}

Status ConfigFields::unexpected(const char* field, const Json& value, std::string_view expected,
                                Code code) const {
  constexpr size_t kShown = 60;
  std::string found = value.dump();
  if (found.size() > kShown) found = cat(head_of(found, kShown), "...");
  return Status(code, cat(shown(where_ + field), " is ", found, ", expected ", expected));
}

Status ConfigFields::finish() const {
  size_t count = 0;
  std::string unknown;
  for (const auto& [name, value] : object_.members()) {
    if (read_.contains(name) || value.is_off()) continue;
    unknown += cat(count > 0 ? ", " : "", shown(where_ + name));
    ++count;
  }
  if (count == 0) return {};
  return Status(Code::unsupported,
                cat(count == 1 ? "field " : "fields ", unknown, count == 1 ? " is" : " are",
                    " not known, and may affect results"));
}

Result<double> ConfigFields::read(const Number& n) {
  const Json* value = find(n.field);
  if (value && value->is_null()) {
    if (n.nullable) return 0.0;
    if (n.like) value = nullptr;
  }
  if (!value) return n.like ? like(n) : n.value;
  const bool fits =
      n.whole ? value->is_number_unsigned() && value->whole() <= kMostWhole : value->is_number();
  if (fits) return value->number();
  return unexpected(n.field, *value,
                    n.whole ? cat("a whole number from 0 to ", kMostWhole) : "a number");
}

Result<double> ConfigFields::like(const Number& n) const {
  const double value = numbers_.at(n.like), parts = n.over ? numbers_.at(n.over) : 1;
  if (!n.over || (parts > 0 && std::fmod(value, parts) == 0)) return value / parts;
  return Status(Code::unsupported, cat("'", n.like, "' is ", value, ", expected a multiple of '",
                                       n.over, "', which is ", parts));
}

void PresetKeys::set(std::string_view key, std::vector<double> values) {
  const auto at = std::find_if(all_.begin(), all_.end(),
                               [key](const auto& known) { return known.first == key; });
  if (at == all_.end())
    all_.emplace_back(key, std::move(values));
  else
    at->second = std::move(values);
}

double PresetKeys::value(std::string_view key) const {
  return std::find_if(all_.begin(), all_.end(),
                      [key](const auto& known) { return known.first == key; })
      ->second.front();
}

std::string PresetKeys::text() const {
  std::string out;
  for (const auto& [key, values] : all_) {
    out += cat(out.empty() ? "" : ",", key, "=");
    for (size_t i = 0; i < values.size(); ++i) out += cat(i ? "/" : "", values[i]);
  }
  return out;
}

// "key=value,..." of a model's text.
Result<std::string> preset_value(std::string_view keys, std::string_view wanted) {
  while (!keys.empty()) {
    const std::string_view item = take_item(keys, ',');
    const size_t equals = item.find('=');
    if (item.substr(0, equals) == wanted && equals != item.npos)
      return std::string(item.substr(equals + 1));
  }
  return Status(Code::data, cat("the model has no key ", shown(wanted)));
}

std::string digits_of(std::string_view text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value >= 0 && value <= double{kMostWhole} ? cat(static_cast<uint64_t>(value))
                                                   : std::string(text);
}

std::string fraction_of(std::string text) {
  return text.find_first_of(".e") == text.npos ? text + ".0" : text;
}

}  // namespace weft
