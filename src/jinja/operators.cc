// Operators with the results of Python.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "jinja/interpreter.h"
#include "text/unicode.h"

namespace weft::jinja {

namespace {

Status out_of_range() { return fault("the result of an operator is out of range"); }

Result<Value> whole_arithmetic(char symbol, int64_t a, int64_t b) {
  int64_t out = 0;
  bool overflows = false;
  switch (symbol) {
    case '+': overflows = __builtin_add_overflow(a, b, &out); break;
    case '-': overflows = __builtin_sub_overflow(a, b, &out); break;
    case '*': overflows = __builtin_mul_overflow(a, b, &out); break;
    default:
      if (b == 0) return fault("division by 0");
      if (b == -1) {
        overflows = symbol == '/' && __builtin_sub_overflow(int64_t{0}, a, &out);
        break;
      }
      const bool rounds_down = a % b != 0 && (a < 0) != (b < 0);
      out = symbol == '/' ? a / b - (rounds_down ? 1 : 0) : a % b + (rounds_down ? b : 0);
  }
  if (overflows) return out_of_range();
  return Value(out);
}

Result<Value> real_arithmetic(const std::string& symbol, double a, double b) {
  if (symbol == "+") return Value(a + b);
  if (symbol == "-") return Value(a - b);
  if (symbol == "*") return Value(a * b);
  if (b == 0) return fault("division by 0");
  if (symbol == "/") return Value(a / b);
  return fault(cat("the operator '", symbol, "' of floats is not supported"));
}

Result<Value> repeated(const std::string& text, int64_t count, Budget& budget) {
  if (count <= 0 || text.empty()) return Value("");
  if (static_cast<uint64_t>(count) > (uint64_t{1} << 40) / text.size()) return out_of_range();
  WEFT_TRY(budget.spend(static_cast<uint64_t>(count) * text.size()));
  std::string out;
  for (int64_t i = 0; i < count; ++i) out += text;
  return Value(std::move(out));
}

Result<Value> joined(const Value& a, const Value& b, Budget& budget) {
  WEFT_TRY(budget.spend(32 * (a.items().size() + b.items().size())));
  Items out = a.items();
  out.insert(out.end(), b.items().begin(), b.items().end());
  return Value::sequence(std::move(out), a.kind());
}

// The attributes of the variable `loop`.
Result<Value> loop_attribute(const Loop& loop, const std::string& name) {
  const Items& items = loop.items->items;
  const auto whole = [](size_t value) { return Value(static_cast<int64_t>(value)); };
  if (name == "index") return whole(loop.index + 1);
  if (name == "index0") return whole(loop.index);
  if (name == "revindex") return whole(items.size() - loop.index);
  if (name == "revindex0") return whole(items.size() - loop.index - 1);
  if (name == "first") return Value(loop.index == 0);
  if (name == "last") return Value(loop.index + 1 == items.size());
  if (name == "length") return whole(items.size());
  if (name == "depth") return whole(loop.level);
  if (name == "depth0") return whole(loop.level - 1);
  if (name == "previtem")
    return loop.index == 0 ? Value::undefined("'loop.previtem'") : items[loop.index - 1];
  if (name == "nextitem")
    return loop.index + 1 == items.size() ? Value::undefined("'loop.nextitem'")
                                          : items[loop.index + 1];
  if (name == "cycle" || name == "changed") return fault(cat("'loop.", name, "' is not supported"));
  return Value::undefined(shown(cat("loop.", name)));
}

// The byte at which each character of the text begins, and the end.
std::vector<size_t> slots_of(std::string_view text) {
  std::vector<size_t> out;
  size_t at = 0;
  while (at < text.size()) {
    out.push_back(at);
    at += utf8_bytes(text.substr(at));
  }
  out.push_back(at);
  return out;
}

Value no_item(const Value& value) { return Value::undefined(cat("an item of ", value.type())); }

}  // namespace

Result<Value> arithmetic(const std::string& symbol, const Value& a, const Value& b,
                         Budget& budget) {
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole() && symbol != "/")
      return whole_arithmetic(symbol[0], a.whole(), b.whole());
    return real_arithmetic(symbol, a.number(), b.number());
  }
  if (symbol == "+") {
    if (a.is(Kind::text) && b.is(Kind::text)) {
      WEFT_TRY(budget.spend(a.text().size() + b.text().size()));
      return Value(a.text() + b.text());
    }
    if (a.kind() == b.kind() && (a.is(Kind::list) || a.is(Kind::tuple)))
      return joined(a, b, budget);
  }
  if (symbol == "*" && a.is(Kind::text) && b.is_whole())
    return repeated(a.text(), b.whole(), budget);
  if (symbol == "*" && a.is_whole() && b.is(Kind::text))
    return repeated(b.text(), a.whole(), budget);
  if (a.is(Kind::undefined)) return mismatch("a value", a);
  return mismatch(cat("a value for the operator '", symbol, "' with ", a.type()), b);
}

Result<bool> compared(const std::string& symbol, const Value& a, const Value& b, Budget& budget) {
  if (symbol == "in" || symbol == "not in") {
    WEFT_TRY_ASSIGN(const bool found, contains(b, a, budget));
    return found == (symbol == "in");
  }
  if (symbol == "==" || symbol == "!=") {
    WEFT_TRY_ASSIGN(const bool same, equal(a, b, budget));
    return same == (symbol == "==");
  }
  if (symbol == "<") return less(a, b, budget);
  if (symbol == ">") return less(b, a, budget);
  WEFT_TRY_ASSIGN(const bool outside, symbol == "<=" ? less(b, a, budget) : less(a, b, budget));
  return !outside;
}

Result<Value> negated(const Value& value) {
  if (value.is_whole()) return whole_arithmetic('-', 0, value.whole());
  if (value.is(Kind::real)) return Value(-value.number());
  return mismatch("a number", value);
}

Result<Value> attribute(const Value& value, const std::string& name, Budget& budget) {
  if (value.is(Kind::undefined)) return mismatch("a value", value);
  if (is_method(value, name))
    return fault(cat("the method ", shown(name), " of ", value.type(), " can only be called"));
  const Value* found = nullptr;
  if (value.is(Kind::loop)) return loop_attribute(value.loop(), name);
  if (value.is(Kind::dict)) {
    WEFT_TRY_ASSIGN(found, value.find(Value(name), budget));
  } else if (value.is(Kind::name_space)) {
    const auto at = value.name_space().find(name);
    found = at == value.name_space().end() ? nullptr : &at->second;
  } else if (value.is(Kind::macro)) {
    return fault("attributes of a macro are not supported");
  }
  if (found != nullptr) return *found;
  return Value::undefined(cat(shown(name), " of ", value.type()));
}

Result<Value> item(const Value& value, const Value& key, Budget& budget) {
  if (value.is(Kind::undefined)) return mismatch("a value", value);
  if (value.is(Kind::dict) && !key.is(Kind::list) && !key.is(Kind::dict)) {
    WEFT_TRY_ASSIGN(const Value* found, value.find(key, budget));
    if (found != nullptr) return *found;
  }
  if (key.is(Kind::text)) {
    WEFT_TRY(budget.spend(key.bytes()));
    if (key.text().starts_with("__"))
      return fault(cat("the attribute ", shown(key.text()), " is not allowed"));
    return attribute(value, key.text(), budget);
  }
  if (!key.is_whole()) return no_item(value);
  const auto place = [&](size_t size) {
    const int64_t n = static_cast<int64_t>(size);
    const int64_t at = key.whole() < 0 ? key.whole() + n : key.whole();
    return at >= 0 && at < n ? static_cast<size_t>(at) : size;
  };
  if (value.is(Kind::list) || value.is(Kind::tuple)) {
    const size_t at = place(value.items().size());
    return at == value.items().size() ? no_item(value) : value.items()[at];
  }
  if (!value.is(Kind::text)) return no_item(value);
  WEFT_TRY(budget.spend(8 * value.bytes()));
  const std::vector<size_t> places = slots_of(value.text());
  const size_t at = place(places.size() - 1);
  if (at == places.size() - 1) return no_item(value);
  return Value(value.text().substr(places[at], places[at + 1] - places[at]));
}

Result<Value> slice(const Value& value, const Value& begin, const Value& end, const Value& step,
                    Budget& budget) {
  if (value.is(Kind::undefined)) return mismatch("a value", value);
  const bool is_text = value.is(Kind::text);
  for (const Value* bound : {&begin, &end, &step})
    if (!bound->is(Kind::none) && !bound->is_whole()) return no_item(value);
  if (!is_text && !value.is(Kind::list) && !value.is(Kind::tuple)) return no_item(value);
  std::vector<size_t> places;
  if (is_text) {
    WEFT_TRY(budget.spend(16 * value.bytes()));
    places = slots_of(value.text());
  }
  const int64_t n = static_cast<int64_t>(is_text ? places.size() - 1 : value.items().size());
  const int64_t stride = std::clamp(step.is(Kind::none) ? int64_t{1} : step.whole(), -n - 1, n + 1);
  if (stride == 0) return fault("a slice expects a step that is not 0");
  const int64_t lowest = stride < 0 ? -1 : 0;
  const int64_t highest = stride < 0 ? n - 1 : n;
  const auto place = [&](const Value& bound, int64_t otherwise) {
    if (bound.is(Kind::none)) return otherwise;
    const int64_t at = bound.whole() < 0 ? bound.whole() + n : bound.whole();
    return std::clamp(at, lowest, highest);
  };
  const int64_t from = place(begin, stride < 0 ? highest : lowest);
  const int64_t to = place(end, stride < 0 ? lowest : highest);
  std::string text;
  Items items;
  for (int64_t i = from; stride < 0 ? i > to : i < to; i += stride) {
    const size_t at = static_cast<size_t>(i);
    if (is_text)
      text.append(value.text(), places[at], places[at + 1] - places[at]);
    else
      items.push_back(value.items()[at]);
  }
  if (is_text) return Value(std::move(text));
  WEFT_TRY(budget.spend(32 * items.size()));
  return Value::sequence(std::move(items), value.kind());
}

}  // namespace weft::jinja
