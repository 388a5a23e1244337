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
  Json out(Kind::object);
  for (const auto& [key, value] : members) out.members_.emplace(key, value);
  return out;
}

const char* Json::type_name() const {
  constexpr const char* kNames[] = {"null",   "boolean", "number", "number",
                                    "number", "string",  "array",  "object"};
  return kNames[static_cast<size_t>(kind_)];
}

// The text of a value without parts.
std::string Json::scalar() const {
  switch (kind_) {
    case Kind::boolean: return text_of(boolean());
    case Kind::whole: return text_of(whole_);
    case Kind::integer: return text_of(static_cast<int64_t>(whole_));
    case Kind::fraction: return text_of(fraction_);
    case Kind::string: return text_of(text_);
    default: return text_of(nullptr);
  }
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
