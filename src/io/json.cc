#include "io/json.h"

#include <nlohmann/json.hpp>

namespace weft {

namespace {

void new_line(std::string& out, int indent, int depth) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<size_t>(indent) * static_cast<size_t>(depth), ' ');
}

template <typename T>
std::string text_of(const T& value) {
  return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Json Json::object(std::initializer_list<std::pair<const char*, Json>> members) {
  Json out;
  Object& object = out.value_.emplace<Object>();
  for (const auto& [key, value] : members) object.emplace(key, value);
  return out;
}

const char* Json::type_name() const {
  constexpr const char* kNames[] = {"null",   "boolean", "number", "number",
                                    "number", "string",  "array",  "object"};
  return kNames[value_.index()];
}

bool Json::is_off() const {
  return is_null() || (is_boolean() && !boolean()) || (is_array() && items().empty()) ||
         (is_object() && members().empty());
}

double Json::number() const {
  if (const auto* whole = std::get_if<uint64_t>(&value_)) return static_cast<double>(*whole);
  if (const auto* integer = std::get_if<int64_t>(&value_)) return static_cast<double>(*integer);
  return std::get<double>(value_);
}

// The text of a value without parts.
std::string Json::scalar() const {
  return std::visit(
      [](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, Array> || std::is_same_v<T, Object> ||
                      std::is_same_v<T, std::monostate>)
          return text_of(nullptr);
        else
          return text_of(value);
      },
      value_);
}

std::string Json::dump(int indent) const {
  std::string out;
  print(out, indent, 0);
  return out;
}

void Json::print(std::string& out, int indent, int depth) const {
  const auto separate = [&, first = true]() mutable {
    if (!first) out += ',';
    first = false;
    new_line(out, indent, depth + 1);
  };
  const auto close = [&](bool empty, char end) {
    if (!empty) new_line(out, indent, depth);
    out += end;
  };
  if (is_array()) {
    out += '[';
    auto next = separate;
    for (const Json& item : items()) {
      next();
      item.print(out, indent, depth + 1);
    }
    return close(items().empty(), ']');
  }
  if (is_object()) {
    out += '{';
    auto next = separate;
    for (const auto& [key, value] : members()) {
      next();
      out += text_of(key);
      out += indent < 0 ? ":" : ": ";
      value.print(out, indent, depth + 1);
    }
    return close(members().empty(), '}');
  }
  out += scalar();
}

}  // namespace weft
