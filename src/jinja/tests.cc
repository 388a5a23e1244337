#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "jinja/functions.h"

namespace weft::jinja {

namespace {

struct Named {
  std::string_view name;
  bool has_argument;
  Result<bool> (*test)(const Value& value, const Value& argument, Budget& budget);
};

bool is_iterable(const Value& value) {
  return value.is_sequence() || value.is(Kind::text) || value.is(Kind::dict) ||
         value.is(Kind::undefined) || value.is(Kind::loop);
}

// len() and [] are possible, which is also so for a dict.
bool is_sequence(const Value& value) {
  return is_iterable(value) && !value.is(Kind::generator) && !value.is(Kind::loop);
}

Result<int64_t> whole_of(const Value& value) {
  if (!value.is_whole()) return mismatch("an integer", value);
  return value.whole();
}

constexpr Named kTests[] = {
    {"boolean", false,
     [](const Value& x, const Value&, Budget&) -> Result<bool> { return x.is(Kind::boolean); }},
    {"callable", false,
     [](const Value& x, const Value&, Budget&) -> Result<bool> { return x.is(Kind::macro); }},
    {"defined", false,
     [](const Value& x, const Value&, Budget&) -> Result<bool> { return !x.is(Kind::undefined); }},
    {"divisibleby", true,
     [](const Value& x, const Value& y, Budget&) -> Result<bool> {
       WEFT_TRY_ASSIGN(const int64_t number, whole_of(x));
       WEFT_TRY_ASSIGN(const int64_t divisor, whole_of(y));
       if (divisor == 0) return fault("division by 0");
       return divisor == -1 || number % divisor == 0;
     }},
    {"eq", true, equal},
    {"==", true, equal},
    {"equalto", true, equal},
    {"even", false,
     [](const Value& x, const Value&, Budget&) -> Result<bool> {
       WEFT_TRY_ASSIGN(const int64_t number, whole_of(x));
       return number % 2 == 0;
     }},
    {"false", false,
     [](const Value& x, const Value&, Budget&) -> Result<bool> {
       return x.is(Kind::boolean) && !x.boolean();
     }},
    {"float", false,
     [](const Value& x, const Value&, Budget&) -> Result<bool> { return x.is(Kind::real); }},
    {"ge", true,
     [](const Value& x, const Value& y, Budget& budget) -> Result<bool> {
       WEFT_TRY_ASSIGN(const bool below, less(x, y, budget));
       return !below;
     }},
    {"gt", true, [](const Value& x, const Value& y, Budget& budget) { return less(y, x, budget); }},
    {"in", true,
     [](const Value& x, const Value& y, Budget& budget) { return contains(y, x, budget); }},
    {"integer", false,
     [](const Value& x, const Value&, Budget&) -> Result<bool> { return x.is(Kind::integer); }},
    {"iterable", false,
     [](const Value& x, const Value&, Budget&) -> Result<bool> { return is_iterable(x); }},
    {"le", true,
     [](const Value& x, const Value& y, Budget& budget) -> Result<bool> {
       WEFT_TRY_ASSIGN(const bool above, less(y, x, budget));
       return !above;
     }},
    {"lt", true, less},
    {"mapping", false,
     [](const Value& x, const Value&, Budget&) -> Result<bool> { return x.is(Kind::dict); }},
    {"ne", true,
     [](const Value& x, const Value& y, Budget& budget) -> Result<bool> {
       WEFT_TRY_ASSIGN(const bool same, equal(x, y, budget));
       return !same;
     }},
    {"none", false,
     [](const Value& x, const Value&, Budget&) -> Result<bool> { return x.is(Kind::none); }},
    {"number", false,
     [](const Value& x, const Value&, Budget&) -> Result<bool> { return x.is_number(); }},
    {"odd", false,
     [](const Value& x, const Value&, Budget&) -> Result<bool> {
       WEFT_TRY_ASSIGN(const int64_t number, whole_of(x));
       return number % 2 != 0;
     }},
    {"sequence", false,
     [](const Value& x, const Value&, Budget&) -> Result<bool> { return is_sequence(x); }},
    {"string", false,
     [](const Value& x, const Value&, Budget&) -> Result<bool> { return x.is(Kind::text); }},
    {"true", false,
     [](const Value& x, const Value&, Budget&) -> Result<bool> {
       return x.is(Kind::boolean) && x.boolean();
     }},
    {"undefined", false,
     [](const Value& x, const Value&, Budget&) -> Result<bool> { return x.is(Kind::undefined); }},
};

const Named* find_test(std::string_view name) {
  const auto at = std::find_if(std::begin(kTests), std::end(kTests),
                               [&](const Named& test) { return test.name == name; });
  return at == std::end(kTests) ? nullptr : at;
}

}  // namespace

bool has_test(std::string_view name) { return find_test(name) != nullptr; }

Result<bool> apply_test(std::string_view name, const Value& value, const Arguments& arguments,
                        Budget& budget) {
  const Named& test = *find_test(name);
  const size_t expected = test.has_argument ? 1 : 0;
  if (arguments.positional.size() != expected || !arguments.named.empty())
    return fault(cat("the test ", shown(name), " expects ", expected, " arguments, has ",
                     arguments.positional.size() + arguments.named.size()));
  if (!test.has_argument) return test.test(value, Value(), budget);
  return test.test(value, arguments.positional[0], budget);
}

}  // namespace weft::jinja
