// Renders a parsed Jinja template. What a template can take is limited: steps, bytes, levels.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jinja/budget.h"
#include "jinja/functions.h"
#include "jinja/syntax.h"

namespace weft::jinja {

using Variables = std::map<std::string, Value, std::less<>>;

struct Rendered {
  std::string text;
  // The byte ranges of the generation blocks.
  std::vector<std::pair<size_t, size_t>> generations;
};

class Interpreter {
 public:
  // `now`: the local time in seconds since 1970; without it, strftime_now is not defined.
  Interpreter(Variables variables, std::optional<int64_t> now, Budget budget);

  // Called once.
  Result<Rendered> render(const Block& block);

 private:
  enum class Flow : uint8_t { next_statement, next_iteration, end_of_loop };
  class Level;
  class Scope;

  // interpreter.cc: statements
  Status run(const Block& block, Flow& flow);
  Status run(const Statement& statement, Flow& flow);
  Status run_condition(const Statement& statement, Flow& flow);
  Status run_loop(const Statement& statement, Flow& flow);
  Status run_generation(const Statement& statement);
  Result<std::shared_ptr<const Sequence>> loop_items(const Statement& statement);
  // Runs a block in a scope of its own and returns its text.
  Result<std::string> captured(const Block& block);
  Status assign(const Target& target, const Value& value);
  void assign(const std::string& name, Value value);
  Status print(std::string_view text);

  // evaluator.cc: expressions
  Result<Value> evaluate(const Expression& expression);
  Result<Value> evaluate_kind(const Expression& expression);
  Result<Value> evaluate_name(const std::string& name);
  Result<Value> evaluate_list(const Expression& expression);
  Result<Value> evaluate_dict(const Expression& expression);
  Result<Value> evaluate_item(const Expression& expression);
  Result<Value> evaluate_slice(const Expression& expression);
  Result<Value> evaluate_condition(const Expression& expression);
  Result<Value> evaluate_logic(const Expression& expression);
  Result<Value> evaluate_concat(const Expression& expression);
  Result<Value> evaluate_comparison(const Expression& expression);
  Result<Value> evaluate_function(const Expression& expression);
  Result<Arguments> evaluate_arguments(const ArgumentList& list);

  // calls.cc: calls
  Result<Value> evaluate_call(const Expression& expression);
  Result<Value> call_global(const std::string& name, const Arguments& arguments);
  Result<Value> make_namespace(const Arguments& arguments);
  Result<Value> call_macro(const Macro& macro, const Arguments& arguments);

  const Value* find(std::string_view name) const;

  Budget budget_;
  const std::optional<int64_t> now_;
  std::string out_;
  std::vector<std::pair<size_t, size_t>> generations_;
  std::vector<Variables> scopes_;
  size_t bottom_ = 0;  // the scopes between the first one and this one are not visible
  uint32_t level_ = 0;
  uint32_t loops_ = 0;
  uint32_t captures_ = 0;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
};

// One level of the recursion of the interpreter.
class Interpreter::Level {
 public:
  explicit Level(uint32_t& level) : level_(level) { ++level_; }
  ~Level() { --level_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  Status check() const;

 private:
  uint32_t& level_;
};

// A scope for variables, removed with this object.
class Interpreter::Scope {
 public:
  explicit Scope(std::vector<Variables>& scopes) : scopes_(scopes) { scopes_.emplace_back(); }
  ~Scope() { scopes_.pop_back(); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::vector<Variables>& scopes_;
};

// Operators of two values, in operators.cc.
Result<Value> arithmetic(const std::string& symbol, const Value& a, const Value& b, Budget& budget);
Result<bool> compared(const std::string& symbol, const Value& a, const Value& b, Budget& budget);
Result<Value> negated(const Value& value);
// value.name, which is not called.
Result<Value> attribute(const Value& value, const std::string& name, Budget& budget);
// value[key]
Result<Value> item(const Value& value, const Value& key, Budget& budget);
// value[begin:end:step], where each of the three may be none.
Result<Value> slice(const Value& value, const Value& begin, const Value& end, const Value& step,
                    Budget& budget);

}  // namespace weft::jinja
