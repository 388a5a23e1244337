#include "io/strict_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/fault.h"
#include "base/text.h"
#include "io/names.h"

namespace weft {

namespace {

// The found value: a number as it is, otherwise its kind.
std::string found(const Json& value) {
  return value.is_number() ? value.dump() : value.type_name();
}

// Builds the value, but refuses duplicate keys, which a tree would hide, and too many levels.
class StrictBuilder {
 public:
  explicit StrictBuilder(const JsonLimits& limits) : limits_(limits) {}
  Json root;
  Status status;

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string& text) {
    if (limits_.fractions == Fractions::allow) return add(value);
    if (text.find_first_of(".eE") != text.npos)
      return stop(cat("expected no fraction, found ", shown(text)));
    return stop(cat("expected whole numbers up to ", UINT64_MAX, ", found ", shown(text)));
  }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) { return stop("expected no binary data"); }
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    if (!part_ && open_.back()->members().contains(name))
      return stop(cat("duplicate key ", shown(name)));
    key_ = std::move(name);
    if (open_.size() == 1) member_ = key_;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    if (status.ok()) status = fault(cat("is not valid JSON near byte ", position));
    return false;
  }

 private:
  bool stop(std::string text) {
    status = fault(std::move(text));
    return false;
  }
  Json* place(Json value) {
    if (open_.empty()) return &(root = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.items().back();
  }
  bool add(Json value) {
    if (part_) return follow(part_->value(key_, value));
    if (++values_ > limits_.values) return stop(cat("has more than ", limits_.values, " values"));
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (open_.size() + part_levels_ >= limits_.depth)
      return stop(cat("is nested deeper than ", limits_.depth));
    if (part_) {
      ++part_levels_;
      return follow(part_->open());
    }
    if (++values_ > limits_.values) return stop(cat("has more than ", limits_.values, " values"));
    Json* placed = place(std::move(value));
    if (const auto at = limits_.parts.find(key_); at != limits_.parts.end() && open_.size() == 2 &&
                                                  member_ == limits_.parent &&
                                                  open_.back()->is_object()) {
      part_ = at->second;
      part_levels_ = 1;
      return true;
    }
    open_.push_back(placed);  // stays put: its parent grows only after it is closed
    return true;
  }
  bool close() {
    if (!part_) {
      open_.pop_back();
      return true;
    }
    if (--part_levels_ > 0) return follow(part_->close());
    part_ = nullptr;
    return true;
  }
  bool follow(Status outcome) {
    status = std::move(outcome);
    return status.ok();
  }

  const JsonLimits& limits_;
  std::vector<Json*> open_;
  std::string key_, member_;  // of the innermost object, of the root
  size_t values_ = 0;
  JsonPart* part_ = nullptr;  // the part that is being read
  size_t part_levels_ = 0;
};

}  // namespace

Result<Json> read_json(std::string_view text, const JsonLimits& limits) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return fault("is empty, expected a JSON object");
  if (text[first] != '{')
    return fault(cat("begins with ", shown(text.substr(first, 1)), ", expected a JSON object"));
  if (text.find('\0') != text.npos) return fault("is not valid JSON: it contains a NUL");
  StrictBuilder builder(limits);
  const bool read = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!builder.status.ok()) return builder.status;
  if (!read) return fault("is not valid JSON");
  return std::move(builder.root);
}

Status Fields::format(uint64_t known) {
  uint64_t found = 0;
  WEFT_TRY(number("format", found));
  return found == known
             ? Status()
             : fault(cat(where_, "'format' is ", found, ", this version of weft reads ", known));
}

Status Fields::number(const char* key, uint64_t& out) {
  WEFT_TRY_ASSIGN(const Json* value, take(key, "a whole number from 0", &Json::is_number_unsigned));
  out = value->whole();
  return {};
}

Status Fields::real(const char* key, double& out) {
  WEFT_TRY_ASSIGN(const Json* value, take(key, "a number", &Json::is_number));
  out = value->number();
  if (std::isfinite(out) && out >= 0) return {};
  return fault(cat(where_, shown(key), " is ", out, ", expected a finite number from 0"));
}

Status Fields::text(const char* key, std::string& out) {
  WEFT_TRY_ASSIGN(const Json* value, take(key, "a string", &Json::is_string));
  out = value->text();
  return {};
}

Status Fields::boolean(const char* key, bool& out) {
  WEFT_TRY_ASSIGN(const Json* value, take(key, "true or false", &Json::is_boolean));
  out = value->boolean();
  return {};
}

bool Fields::absent(const char* key) {
  const auto it = object_.members().find(key);
  if (it == object_.members().end()) return true;
  if (it->second.is_null()) taken_.insert(key);
  return it->second.is_null();
}

Status Fields::digest(const char* key, Digest& out) {
  std::string hex;
  WEFT_TRY(text(key, hex));
  constexpr std::string_view digits = "0123456789abcdef";
  if (hex.size() != 32 || hex.find_first_not_of(digits) != hex.npos)
    return fault(cat(where_, shown(key), " expects 32 hexadecimal digits, found ", shown(hex)));
  out = {};
  for (size_t i = 0; i < 32; ++i) {
    uint64_t& half = i < 16 ? out.high : out.low;
    half = half << 4 | digits.find(hex[i]);
  }
  return {};
}

Status Fields::texts(const char* key, std::map<std::string, std::string>& out) {
  WEFT_TRY_ASSIGN(const Json* value, object(key));
  for (const auto& [name, item] : value->members()) {
    if (!item.is_string())
      return fault(cat(where_, shown(key), ": ", shown(name), " expects a string, found ",
                       item.type_name()));
    out[name] = item.text();
  }
  return {};
}

Result<const Json*> Fields::list(const char* key) { return take(key, "an array", &Json::is_array); }
Result<const Json*> Fields::object(const char* key) {
  return take(key, "an object", &Json::is_object);
}

Status Fields::finish() const {
  for (const auto& [name, item] : object_.members())
    if (!taken_.contains(name)) return fault(cat(where_, "unknown key ", shown(name)));
  return {};
}

Result<const Json*> Fields::take(const char* key, const char* expected, bool (Json::*is)() const) {
  const auto it = object_.members().find(key);
  if (it == object_.members().end()) return fault(cat(where_, "has no ", shown(key)));
  const Json& value = it->second;
  if (!(value.*is)())
    return fault(cat(where_, shown(key), " expects ", expected, ", found ", found(value)));
  taken_.insert(key);
  return &value;
}

Status read_texts(const Json& list, const std::string& where, std::vector<std::string>& out) {
  for (const Json& item : list.items()) {
    if (!item.is_string()) return fault(cat(where, " expects strings, found ", item.type_name()));
    out.push_back(item.text());
  }
  return {};
}

}  // namespace weft
