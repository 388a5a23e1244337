#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>

#include "base/text.h"
#include "jinja/functions.h"
#include "jinja/print.h"
#include "jinja/python_text.h"
#include "text/unicode.h"

namespace weft::jinja {

namespace {

using Filter = Result<Value> (*)(const Value& value, const Arguments& arguments, Budget& budget);

Status spend_items(const Items& items, Budget& budget) { return budget.spend(32 * items.size()); }

Result<Value> no_change(const Value& value, const Arguments&, Budget&) { return value; }

Result<Value> trim(const Value& value, const Arguments& arguments, Budget& budget) {
  WEFT_TRY_ASSIGN(const BoundArguments bound, BoundArguments::bind("trim", arguments, {"chars"}));
  WEFT_TRY_ASSIGN(const std::string text, text_of(value, budget));
  if (!bound.has(0) || bound[0]->is(Kind::none)) return Value(stripped(text, Side::both));
  if (!bound[0]->is(Kind::text)) return mismatch("a text of characters to trim", *bound[0]);
  WEFT_TRY(budget.spend(text.size() * bound[0]->text().size()));
  return Value(stripped(text, Side::both, bound[0]->text()));
}

Result<Value> length(const Value& value, const Arguments& arguments, Budget&) {
  WEFT_TRY(BoundArguments::bind("length", arguments, {}).status());
  WEFT_TRY_ASSIGN(const int64_t n, length_of(value));
  return Value(n);
}

Status read_separator(const Value& value, std::string& out) {
  if (!value.is(Kind::text) || value.text().size() > 16)
    return mismatch("a separator of at most 16 bytes", value);
  out = value.text();
  return {};
}

Result<Value> to_json(const Value& value, const Arguments& arguments, Budget& budget) {
  WEFT_TRY_ASSIGN(const BoundArguments bound,
                  BoundArguments::bind("tojson", arguments,
                                       {"ensure_ascii", "indent", "separators", "sort_keys"}));
  if (bound.truth(0) || bound.truth(3))
    return fault("'tojson' with 'ensure_ascii' or 'sort_keys' true is not supported");
  JsonStyle style;
  if (bound.has(1) && !bound[1]->is(Kind::none)) {
    if (!bound[1]->is_whole() || bound[1]->whole() < 0 || bound[1]->whole() > 64)
      return mismatch("an 'indent' from 0 to 64", *bound[1]);
    style.indent = std::string(static_cast<size_t>(bound[1]->whole()), ' ');
    style.item_separator = ",";
  }
  if (bound.has(2) && !bound[2]->is(Kind::none)) {
    if (!bound[2]->is_sequence() || bound[2]->items().size() != 2)
      return mismatch("two 'separators'", *bound[2]);
    WEFT_TRY(read_separator(bound[2]->items()[0], style.item_separator));
    WEFT_TRY(read_separator(bound[2]->items()[1], style.key_separator));
  }
  WEFT_TRY_ASSIGN(std::string text, json_of(value, style, budget));
  return Value(std::move(text));
}

Result<Value> with_default(const Value& value, const Arguments& arguments, Budget&) {
  WEFT_TRY_ASSIGN(const BoundArguments bound,
                  BoundArguments::bind("default", arguments, {"default_value", "boolean"}));
  const bool keeps = bound.truth(1) ? value.truth() : !value.is(Kind::undefined);
  if (keeps) return value;
  return bound.has(0) ? *bound[0] : Value("");
}

template <Result<Value> (*change)(const std::string&)>
Result<Value> change_text(const Value& value, const Arguments& arguments, Budget& budget) {
  WEFT_TRY(BoundArguments::bind("a filter of letters", arguments, {}).status());
  WEFT_TRY_ASSIGN(const std::string text, text_of(value, budget));
  return change(text);
}

Result<Value> lower_text(const std::string& text) { return Value(lower_case(text)); }
Result<Value> same_text(const std::string& text) { return Value(text); }

Result<Value> attribute_of(const Value& value, const Value& path, Budget& budget) {
  if (path.is_whole()) {
    const bool inside = value.is_sequence() && path.whole() >= 0 &&
                        static_cast<uint64_t>(path.whole()) < value.items().size();
    return inside ? value.items()[static_cast<size_t>(path.whole())] : Value::undefined("an item");
  }
  if (!path.is(Kind::text)) return mismatch("the name of an attribute", path);
  WEFT_TRY(budget.spend(path.bytes()));
  Value out = value;
  std::string_view rest = path.text();
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find('.'));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    if (out.is(Kind::undefined)) return mismatch("a dict", out);
    const Value* found = nullptr;
    if (out.is(Kind::dict)) {
      WEFT_TRY_ASSIGN(found, out.find(Value(name), budget));
    }
    const Value next = found != nullptr ? *found : Value::undefined(shown(name));
    out = next;
  }
  return out;
}

Result<Value> join(const Value& value, const Arguments& arguments, Budget& budget) {
  WEFT_TRY_ASSIGN(const BoundArguments bound,
                  BoundArguments::bind("join", arguments, {"d", "attribute"}));
  std::string separator;
  if (bound.has(0)) {
    WEFT_TRY_ASSIGN(separator, text_of(*bound[0], budget));
  }
  WEFT_TRY_ASSIGN(const auto items, iterated(value, budget));
  std::string out;
  for (const Value& item : items->items) {
    if (&item != &items->items[0]) out += separator;
    Value part = item;
    if (bound.has(1)) {
      WEFT_TRY_ASSIGN(part, attribute_of(item, *bound[1], budget));
    }
    WEFT_TRY(budget.spend(separator.size()));
    WEFT_TRY_ASSIGN(const std::string text, text_of(part, budget));
    out += text;
  }
  return Value(std::move(out));
}

Result<Value> first(const Value& value, const Arguments& arguments, Budget& budget) {
  WEFT_TRY(BoundArguments::bind("first", arguments, {}).status());
  WEFT_TRY_ASSIGN(const auto items, iterated(value, budget));
  return items->items.empty() ? Value::undefined("the first item") : items->items.front();
}

Result<Value> last(const Value& value, const Arguments& arguments, Budget& budget) {
  WEFT_TRY(BoundArguments::bind("last", arguments, {}).status());
  if (value.is(Kind::generator)) return mismatch("a list", value);
  WEFT_TRY_ASSIGN(const auto items, iterated(value, budget));
  return items->items.empty() ? Value::undefined("the last item") : items->items.back();
}

Result<Value> replace(const Value& value, const Arguments& arguments, Budget& budget) {
  WEFT_TRY_ASSIGN(const BoundArguments bound,
                  BoundArguments::bind("replace", arguments, {"old", "new", "count"}));
  if (!bound.has(0) || !bound.has(1)) return fault("'replace' expects the texts 'old' and 'new'");
  int64_t most = -1;
  if (bound.has(2) && !bound[2]->is(Kind::none)) {
    if (!bound[2]->is_whole()) return mismatch("a 'count'", *bound[2]);
    most = bound[2]->whole();
  }
  WEFT_TRY_ASSIGN(const std::string text, text_of(value, budget));
  WEFT_TRY_ASSIGN(const std::string from, text_of(*bound[0], budget));
  WEFT_TRY_ASSIGN(const std::string to, text_of(*bound[1], budget));
  return replaced(text, from, to, most, budget);
}

Result<Value> to_integer(const Value& value, const Arguments& arguments, Budget&) {
  WEFT_TRY_ASSIGN(const BoundArguments bound, BoundArguments::bind("int", arguments, {"default"}));
  const Value otherwise = bound.has(0) ? *bound[0] : Value(int64_t{0});
  if (value.is(Kind::undefined)) return mismatch("a number", value);
  if (value.is_whole()) return Value(value.whole());
  double real = 0;
  if (value.is(Kind::text)) {
    std::string_view text = stripped(value.text(), Side::both);
    if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
    int64_t whole = 0;
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, whole);
    if (read.ec == std::errc() && read.ptr == end) return Value(whole);
    const auto fraction = std::from_chars(text.data(), end, real);
    if (fraction.ec != std::errc() || fraction.ptr != end) return otherwise;
  } else if (value.is(Kind::real)) {
    real = value.number();
  } else {
    return otherwise;
  }
  if (!std::isfinite(real)) return otherwise;
  if (std::fabs(real) >= 9e18) return fault("the result of 'int' is out of range");
  return Value(static_cast<int64_t>(real));
}

Result<Value> to_list(const Value& value, const Arguments& arguments, Budget& budget) {
  WEFT_TRY(BoundArguments::bind("list", arguments, {}).status());
  WEFT_TRY_ASSIGN(const auto items, iterated(value, budget));
  WEFT_TRY(spend_items(items->items, budget));
  return Value::sequence(items->items);
}

Result<Value> items(const Value& value, const Arguments& arguments, Budget& budget) {
  WEFT_TRY(BoundArguments::bind("items", arguments, {}).status());
  if (value.is(Kind::undefined)) return Value::sequence({}, Kind::generator);
  if (!value.is(Kind::dict)) return mismatch("a dict", value);
  return pairs_of(value, Kind::generator, budget);
}

// Ordered by their keys in small letters.
Result<Value> sorted_items(const Value& value, const Arguments& arguments, Budget& budget) {
  WEFT_TRY(BoundArguments::bind("dictsort", arguments, {}).status());
  if (!value.is(Kind::dict)) return mismatch("a dict", value);
  WEFT_TRY_ASSIGN(const Value pairs, pairs_of(value, Kind::list, budget));
  std::multimap<std::string, Value> sorted;
  for (const Value& pair : pairs.items()) {
    const Value& key = pair.items()[0];
    if (!key.is(Kind::text)) return mismatch("a text as key to sort", key);
    WEFT_TRY(budget.spend(key.bytes()));
    sorted.emplace(lower_case(key.text()), pair);
  }
  Items out;
  for (auto& [key, pair] : sorted) out.push_back(std::move(pair));
  return Value::sequence(std::move(out));
}

// The arguments of the filter or test that another filter names.
Arguments inner_arguments(const Arguments& arguments, size_t used) {
  Arguments out;
  out.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(used),
                        arguments.positional.end());
  out.named = arguments.named;
  return out;
}

Result<Value> map(const Value& value, const Arguments& arguments, Budget& budget) {
  WEFT_TRY_ASSIGN(const auto list, iterated(value, budget));
  WEFT_TRY(spend_items(list->items, budget));
  Items out;
  if (arguments.positional.empty()) {
    WEFT_TRY_ASSIGN(const BoundArguments bound,
                    BoundArguments::bind("map", arguments, {"attribute", "default"}));
    if (!bound.has(0)) return fault("'map' expects a filter or an attribute");
    for (const Value& item : list->items) {
      WEFT_TRY_ASSIGN(Value found, attribute_of(item, *bound[0], budget));
      const bool missing = found.is(Kind::undefined) && bound.has(1);
      out.push_back(missing ? *bound[1] : std::move(found));
    }
    return Value::sequence(std::move(out), Kind::generator);
  }
  const Value& name = arguments.positional[0];
  // 'map' of 'map' could take any number of levels.
  if (!name.is(Kind::text) || !has_filter(name.text()) || name.text() == "map")
    return fault("'map' expects the name of a filter that is supported");
  const Arguments inner = inner_arguments(arguments, 1);
  for (const Value& item : list->items) {
    WEFT_TRY(budget.step());
    WEFT_TRY_ASSIGN(Value result, apply_filter(name.text(), item, inner, budget));
    out.push_back(std::move(result));
  }
  return Value::sequence(std::move(out), Kind::generator);
}

Result<Value> filtered(const Value& value, const Arguments& arguments, Budget& budget,
                       bool by_attribute, bool keeps) {
  const size_t used = by_attribute ? 1 : 0;
  if (arguments.positional.size() < used)
    return fault("'selectattr' and 'rejectattr' expect the name of an attribute");
  const bool tests = arguments.positional.size() > used;
  if (tests &&
      (!arguments.positional[used].is(Kind::text) || !has_test(arguments.positional[used].text())))
    return fault("expected the name of a test that is supported");
  const Arguments inner = tests ? inner_arguments(arguments, used + 1) : Arguments();
  WEFT_TRY_ASSIGN(const auto list, iterated(value, budget));
  WEFT_TRY(spend_items(list->items, budget));
  Items out;
  for (const Value& item : list->items) {
    WEFT_TRY(budget.step());
    Value tested = item;
    if (by_attribute) {
      WEFT_TRY_ASSIGN(tested, attribute_of(item, arguments.positional[0], budget));
    }
    bool passes = tested.truth();
    if (tests) {
      WEFT_TRY_ASSIGN(passes, apply_test(arguments.positional[used].text(), tested, inner, budget));
    }
    if (passes == keeps) out.push_back(item);
  }
  return Value::sequence(std::move(out), Kind::generator);
}

template <bool by_attribute, bool keeps>
Result<Value> select(const Value& value, const Arguments& arguments, Budget& budget) {
  return filtered(value, arguments, budget, by_attribute, keeps);
}

struct Named {
  std::string_view name;
  Filter filter;
};
constexpr Named kFilters[] = {
    {"capitalize", change_text<capital_text>},
    {"count", length},
    {"d", with_default},
    {"default", with_default},
    {"dictsort", sorted_items},
    {"first", first},
    {"int", to_integer},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", to_list},
    {"lower", change_text<lower_text>},
    {"map", map},
    {"reject", select<false, false>},
    {"rejectattr", select<true, false>},
    {"replace", replace},
    {"safe", no_change},
    {"select", select<false, true>},
    {"selectattr", select<true, true>},
    {"string", change_text<same_text>},
    {"title", change_text<title_text>},
    {"tojson", to_json},
    {"trim", trim},
    {"upper", change_text<upper_text>},
};

const Named* find_filter(std::string_view name) {
  const auto at = std::find_if(std::begin(kFilters), std::end(kFilters),
                               [&](const Named& filter) { return filter.name == name; });
  return at == std::end(kFilters) ? nullptr : at;
}

}  // namespace

bool has_filter(std::string_view name) { return find_filter(name) != nullptr; }

Result<Value> apply_filter(std::string_view name, const Value& value, const Arguments& arguments,
                           Budget& budget) {
  WEFT_TRY(spend_texts(value, arguments, budget));
  return find_filter(name)->filter(value, arguments, budget);
}

}  // namespace weft::jinja
