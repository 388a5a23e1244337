#include <algorithm>
#include <cassert>
#include <iterator>
#include <optional>

#include "base/text.h"
#include "jinja/functions.h"
#include "jinja/python_text.h"
#include "text/unicode.h"

namespace weft::jinja {

namespace {

// Methods of Python that templates cannot use; a key of a dict with such a name would be hidden.
constexpr std::string_view kTextMethods[] = {
    "casefold",   "center",       "count",        "encode",   "expandtabs", "find",
    "format",     "format_map",   "index",        "isalnum",  "isalpha",    "isascii",
    "isdecimal",  "isdigit",      "isidentifier", "islower",  "isnumeric",  "isprintable",
    "isspace",    "istitle",      "isupper",      "join",     "ljust",      "maketrans",
    "partition",  "removeprefix", "removesuffix", "rfind",    "rindex",     "rjust",
    "rpartition", "rsplit",       "splitlines",   "swapcase", "translate",  "zfill"};
constexpr std::string_view kDictMethods[] = {"clear",   "copy",       "fromkeys", "pop",
                                             "popitem", "setdefault", "update"};
constexpr std::string_view kListMethods[] = {"append", "clear",   "copy",   "count",
                                             "extend", "index",   "insert", "pop",
                                             "remove", "reverse", "sort"};

template <size_t n>
bool has(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

struct TextCall {
  const std::string& text;
  const Arguments& arguments;
  Budget& budget;
};

Status expect_text(const Value* value, std::string_view what) {
  if (value != nullptr && value->is(Kind::text)) return {};
  return value != nullptr ? mismatch(what, *value) : fault(cat("expected ", what));
}

Result<Value> stripped_text(const TextCall& call, Side side) {
  WEFT_TRY_ASSIGN(const BoundArguments bound,
                  BoundArguments::bind("strip", call.arguments, {"chars"}));
  if (!bound.has(0) || bound[0]->is(Kind::none)) return Value(stripped(call.text, side));
  WEFT_TRY(expect_text(bound[0], "a text of characters to strip"));
  WEFT_TRY(call.budget.spend(call.text.size() * bound[0]->text().size()));
  return Value(stripped(call.text, side, bound[0]->text()));
}

template <Side side>
Result<Value> strip(const TextCall& call) {
  return stripped_text(call, side);
}

// str.split() at white space.
Items words_of(std::string_view text, int64_t most) {
  Items out;
  for (;;) {
    text = stripped(text, Side::left);
    if (text.empty()) return out;
    if (most >= 0 && static_cast<int64_t>(out.size()) == most) {
      out.emplace_back(stripped(text, Side::right));
      return out;
    }
    std::string_view rest = text;
    while (!rest.empty()) {
      std::string_view next = rest;
      if (is_space(take_code_point(next))) break;
      rest = next;
    }
    const size_t size = text.size() - rest.size();
    out.emplace_back(text.substr(0, size));
    text.remove_prefix(size);
  }
}

Result<Value> split(const TextCall& call) {
  WEFT_TRY_ASSIGN(const BoundArguments bound,
                  BoundArguments::bind("split", call.arguments, {"sep", "maxsplit"}));
  int64_t most = -1;
  if (bound.has(1)) {
    if (!bound[1]->is_whole()) return mismatch("a number of splits", *bound[1]);
    most = bound[1]->whole();
  }
  WEFT_TRY(call.budget.spend(32 * call.text.size()));
  if (!bound.has(0) || bound[0]->is(Kind::none)) return Value::sequence(words_of(call.text, most));
  WEFT_TRY(expect_text(bound[0], "a text as separator"));
  const std::string& separator = bound[0]->text();
  if (separator.empty()) return fault("'split' expects a separator that is not empty");
  Items out;
  size_t begin = 0;
  while (most < 0 || static_cast<int64_t>(out.size()) < most) {
    const size_t end = find_text(call.text, separator, begin);
    if (end == std::string::npos) break;
    out.emplace_back(call.text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  out.emplace_back(call.text.substr(begin));
  return Value::sequence(std::move(out));
}

Result<Value> matches_at(const TextCall& call, bool at_begin) {
  WEFT_TRY_ASSIGN(const BoundArguments bound,
                  BoundArguments::bind("startswith and endswith", call.arguments, {"text"}));
  const auto matches = [&](const std::string& part) -> Result<bool> {
    WEFT_TRY(call.budget.spend(part.size()));
    return at_begin ? call.text.starts_with(part) : call.text.ends_with(part);
  };
  if (bound.has(0) && bound[0]->is(Kind::tuple)) {
    bool found = false;
    for (const Value& part : bound[0]->items()) {
      WEFT_TRY(call.budget.step());
      WEFT_TRY(expect_text(&part, "a text"));
      WEFT_TRY_ASSIGN(const bool here, matches(part.text()));
      found = found || here;
    }
    return Value(found);
  }
  WEFT_TRY(expect_text(bound[0], "a text or a tuple of texts"));
  WEFT_TRY_ASSIGN(const bool found, matches(bound[0]->text()));
  return Value(found);
}

template <bool at_begin>
Result<Value> has_end(const TextCall& call) {
  return matches_at(call, at_begin);
}

template <Result<Value> (*change)(const std::string&)>
Result<Value> change_text(const TextCall& call) {
  WEFT_TRY(BoundArguments::bind("a method of letters", call.arguments, {}).status());
  return change(call.text);
}

Result<Value> lower_text(const std::string& text) { return Value(lower_case(text)); }

Result<Value> replace(const TextCall& call) {
  WEFT_TRY_ASSIGN(const BoundArguments bound,
                  BoundArguments::bind("replace", call.arguments, {"old", "new", "count"}));
  WEFT_TRY(expect_text(bound[0], "a text to replace"));
  WEFT_TRY(expect_text(bound[1], "a text as replacement"));
  if (bound.has(2) && !bound[2]->is_whole()) return mismatch("a count", *bound[2]);
  const int64_t most = bound.has(2) ? bound[2]->whole() : -1;
  return replaced(call.text, bound[0]->text(), bound[1]->text(), most, call.budget);
}

struct TextMethod {
  std::string_view name;
  Result<Value> (*call)(const TextCall& call);
};
constexpr TextMethod kSupported[] = {
    {"capitalize", change_text<capital_text>},
    {"endswith", has_end<false>},
    {"lower", change_text<lower_text>},
    {"lstrip", strip<Side::left>},
    {"replace", replace},
    {"rstrip", strip<Side::right>},
    {"split", split},
    {"startswith", has_end<true>},
    {"strip", strip<Side::both>},
    {"title", change_text<title_text>},
    {"upper", change_text<upper_text>},
};

const TextMethod* find_text_method(std::string_view name) {
  const auto at = std::find_if(std::begin(kSupported), std::end(kSupported),
                               [&](const TextMethod& method) { return method.name == name; });
  return at == std::end(kSupported) ? nullptr : at;
}

bool is_supported_of_dict(std::string_view name) {
  return name == "get" || name == "items" || name == "keys" || name == "values";
}

Result<Value> call_dict(const Value& dict, std::string_view name, const Arguments& arguments,
                        Budget& budget) {
  WEFT_TRY(budget.spend(32 * dict.pairs().size()));
  if (name == "get") {
    WEFT_TRY_ASSIGN(const BoundArguments bound,
                    BoundArguments::bind("get", arguments, {"key", "default"}));
    if (!bound.has(0)) return fault("'get' expects a key");
    WEFT_TRY_ASSIGN(const Value* found, dict.find(*bound[0], budget));
    if (found != nullptr) return *found;
    return bound.has(1) ? *bound[1] : Value();
  }
  WEFT_TRY(BoundArguments::bind(name, arguments, {}).status());
  if (name == "items") return pairs_of(dict, Kind::list, budget);
  Items out;
  for (const auto& [key, value] : dict.pairs()) out.push_back(name == "keys" ? key : value);
  return Value::sequence(std::move(out));
}

Status expect_ascii(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  return plain ? Status() : fault("capital letters of a text outside of ASCII are not supported");
}

bool is_small(char c) { return c >= 'a' && c <= 'z'; }
bool is_letter(char c) { return is_small(c) || (c >= 'A' && c <= 'Z'); }
char capital(char c) { return is_small(c) ? static_cast<char>(c - 0x20) : c; }

}  // namespace

Result<BoundArguments> BoundArguments::bind(std::string_view function, const Arguments& arguments,
                                            std::initializer_list<std::string_view> parameters) {
  BoundArguments out;
  if (arguments.positional.size() > parameters.size())
    return fault(cat("'", function, "' expects at most ", parameters.size(), " arguments, has ",
                     arguments.positional.size()));
  assert(parameters.size() <= kMost);
  for (size_t i = 0; i < arguments.positional.size(); ++i)
    out.values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find(parameters.begin(), parameters.end(), name);
    if (at == parameters.end() || out.values_[static_cast<size_t>(at - parameters.begin())])
      return fault(cat("'", function, "': the argument ", shown(name), " is not expected"));
    out.values_[static_cast<size_t>(at - parameters.begin())] = &value;
  }
  return out;
}

Status spend_texts(const Value& value, const Arguments& arguments, Budget& budget) {
  const auto spend = [&](const Value& of) {
    return of.is(Kind::text) ? budget.spend(of.bytes()) : Status();
  };
  WEFT_TRY(spend(value));
  for (const Value& argument : arguments.positional) WEFT_TRY(spend(argument));
  for (const auto& [name, argument] : arguments.named) WEFT_TRY(spend(argument));
  return {};
}

bool is_method(const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::text: return find_text_method(name) != nullptr || has(kTextMethods, name);
    case Kind::dict: return is_supported_of_dict(name) || has(kDictMethods, name);
    case Kind::list: return has(kListMethods, name);
    case Kind::tuple: return name == "count" || name == "index";
    default: return false;
  }
}

Result<Value> call_method(const Value& value, std::string_view name, const Arguments& arguments,
                          Budget& budget) {
  WEFT_TRY(spend_texts(value, arguments, budget));
  if (value.is(Kind::dict) && is_supported_of_dict(name))
    return call_dict(value, name, arguments, budget);
  const TextMethod* method = value.is(Kind::text) ? find_text_method(name) : nullptr;
  if (method == nullptr)
    return fault(cat("the method ", shown(name), " of ", value.type(), " is not supported"));
  return method->call({value.text(), arguments, budget});
}

Result<Value> upper_text(const std::string& text) {
  WEFT_TRY(expect_ascii(text));
  std::string out = text;
  std::transform(out.begin(), out.end(), out.begin(), capital);
  return Value(std::move(out));
}

Result<Value> capital_text(const std::string& text) {
  WEFT_TRY(expect_ascii(text));
  std::string out = lower_case(text);
  if (!out.empty()) out[0] = capital(out[0]);
  return Value(std::move(out));
}

Result<Value> title_text(const std::string& text) {
  WEFT_TRY(expect_ascii(text));
  std::string out = lower_case(text);
  bool in_word = false;
  for (char& c : out) {
    if (!in_word) c = capital(c);
    in_word = is_letter(c);
  }
  return Value(std::move(out));
}

Result<Value> replaced(const std::string& text, const std::string& from, const std::string& to,
                       int64_t most, Budget& budget) {
  WEFT_TRY(budget.spend(text.size()));
  std::string out;
  size_t begin = 0;
  for (int64_t n = 0; most < 0 || n < most; ++n) {
    // An empty text is before each character and at the end.
    size_t end = begin;
    if (!from.empty()) {
      end = find_text(text, from, begin);
    } else if (n > 0) {
      end = begin < text.size() ? begin + utf8_bytes(std::string_view(text).substr(begin))
                                : std::string::npos;
    }
    if (end == std::string::npos) break;
    WEFT_TRY(budget.spend(to.size() + end - begin + 1));
    out.append(text, begin, end - begin);
    out += to;
    begin = end + from.size();
  }
  out.append(text, std::min(begin, text.size()));
  return Value(std::move(out));
}

Result<Value> pairs_of(const Value& dict, Kind kind, Budget& budget) {
  WEFT_TRY(budget.spend(128 * dict.pairs().size()));
  Items out;
  for (const auto& [key, value] : dict.pairs()) {
    WEFT_TRY_ASSIGN(Value pair, Value::sequence({key, value}, Kind::tuple));
    out.push_back(std::move(pair));
  }
  return Value::sequence(std::move(out), kind);
}

}  // namespace weft::jinja
