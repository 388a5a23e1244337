// The filters, tests and methods that templates may use.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/budget.h"
#include "jinja/value.h"

namespace weft::jinja {

struct Arguments {
  Items positional;
  std::vector<std::pair<std::string, Value>> named;
};

// The arguments of one call in the order of its parameters.
class BoundArguments {
 public:
  // Fails for an argument without a parameter; `function` is its name for the message.
  static Result<BoundArguments> bind(std::string_view function, const Arguments& arguments,
                                     std::initializer_list<std::string_view> parameters);
  // Null if it was not given.
  const Value* operator[](size_t i) const { return values_[i]; }
  bool has(size_t i) const { return values_[i] != nullptr; }
  bool truth(size_t i) const { return has(i) && values_[i]->truth(); }

 private:
  static constexpr size_t kMost = 4;

  std::array<const Value*, kMost> values_ = {};
};

// A call may read the texts that it gets.
Status spend_texts(const Value& value, const Arguments& arguments, Budget& budget);

bool has_filter(std::string_view name);
// `value | name(arguments)`, of a name that has_filter() knows.
Result<Value> apply_filter(std::string_view name, const Value& value, const Arguments& arguments,
                           Budget& budget);

bool has_test(std::string_view name);
// `value is name(arguments)`, of a name that has_test() knows.
Result<bool> apply_test(std::string_view name, const Value& value, const Arguments& arguments,
                        Budget& budget);

// Whether `value.name` is a method in Python.
bool is_method(const Value& value, std::string_view name);
// `value.name(arguments)` of such a name.
Result<Value> call_method(const Value& value, std::string_view name, const Arguments& arguments,
                          Budget& budget);

// Parts that filters and methods share.
Result<Value> upper_text(const std::string& text);
Result<Value> capital_text(const std::string& text);
Result<Value> title_text(const std::string& text);
Result<Value> replaced(const std::string& text, const std::string& from, const std::string& to,
                       int64_t most, Budget& budget);
// The pairs of a dict as a list of tuples.
Result<Value> pairs_of(const Value& dict, Kind kind, Budget& budget);

}  // namespace weft::jinja
