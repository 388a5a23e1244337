// The expressions of the interpreter.
#include "base/text.h"
#include "jinja/interpreter.h"
#include "jinja/print.h"

namespace weft::jinja {

Result<Value> Interpreter::evaluate(const Expression& expression) {
  const Level level(level_);
  WEFT_TRY(level.check());
  WEFT_TRY(budget_.step());
  return evaluate_kind(expression);
}

Result<Value> Interpreter::evaluate_kind(const Expression& expression) {
  switch (expression.kind) {
    case Expression::Kind::literal: return expression.value;
    case Expression::Kind::name:
      WEFT_TRY(budget_.spend(scopes_.size()));
      return evaluate_name(expression.name);
    case Expression::Kind::item: return evaluate_item(expression);
    case Expression::Kind::slice: return evaluate_slice(expression);
    case Expression::Kind::list:
    case Expression::Kind::tuple: return evaluate_list(expression);
    case Expression::Kind::dict: return evaluate_dict(expression);
    case Expression::Kind::conjunction:
    case Expression::Kind::disjunction: return evaluate_logic(expression);
    case Expression::Kind::condition: return evaluate_condition(expression);
    case Expression::Kind::concat: return evaluate_concat(expression);
    case Expression::Kind::comparison: return evaluate_comparison(expression);
    case Expression::Kind::filter:
    case Expression::Kind::test: return evaluate_function(expression);
    case Expression::Kind::call: return evaluate_call(expression);
    default: break;
  }
  WEFT_TRY_ASSIGN(const Value value, evaluate(*expression.parts[0]));
  switch (expression.kind) {
    case Expression::Kind::attribute: return attribute(value, expression.name, budget_);
    case Expression::Kind::negation: return Value(!value.truth());
    case Expression::Kind::negative: return negated(value);
    case Expression::Kind::positive:
      if (!value.is_number()) return mismatch("a number", value);
      return value.is(Kind::boolean) ? Value(value.whole()) : value;
    default: break;
  }
  WEFT_TRY_ASSIGN(const Value right, evaluate(*expression.parts[1]));
  return arithmetic(expression.name, value, right, budget_);
}

Result<Value> Interpreter::evaluate_name(const std::string& name) {
  if (const Value* value = find(name)) return *value;
  const bool is_function = name == "raise_exception" || name == "range" || name == "namespace" ||
                           name == "dict" || (name == "strftime_now" && now_);
  // As a value, a function can only be tested whether it is defined.
  if (is_function) return Value(true);
  return Value::undefined(shown(name));
}

Result<Value> Interpreter::evaluate_list(const Expression& expression) {
  Items items;
  for (const ExpressionPtr& part : expression.parts) {
    WEFT_TRY_ASSIGN(Value item, evaluate(*part));
    items.push_back(std::move(item));
  }
  WEFT_TRY(budget_.spend(32 * items.size()));
  const bool is_list = expression.kind == Expression::Kind::list;
  return Value::sequence(std::move(items), is_list ? Kind::list : Kind::tuple);
}

Result<Value> Interpreter::evaluate_dict(const Expression& expression) {
  Pairs pairs;
  for (size_t i = 0; i < expression.parts.size(); i += 2) {
    WEFT_TRY_ASSIGN(Value key, evaluate(*expression.parts[i]));
    WEFT_TRY_ASSIGN(Value value, evaluate(*expression.parts[i + 1]));
    WEFT_TRY(budget_.spend(key.bytes()));
    pairs.emplace_back(std::move(key), std::move(value));
  }
  return Value::dict(std::move(pairs), budget_);
}

Result<Value> Interpreter::evaluate_item(const Expression& expression) {
  WEFT_TRY_ASSIGN(const Value value, evaluate(*expression.parts[0]));
  WEFT_TRY_ASSIGN(const Value key, evaluate(*expression.parts[1]));
  return item(value, key, budget_);
}

Result<Value> Interpreter::evaluate_slice(const Expression& expression) {
  WEFT_TRY_ASSIGN(const Value value, evaluate(*expression.parts[0]));
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (!expression.parts[i + 1]) continue;
    WEFT_TRY_ASSIGN(bounds[i], evaluate(*expression.parts[i + 1]));
  }
  return slice(value, bounds[0], bounds[1], bounds[2], budget_);
}

Result<Value> Interpreter::evaluate_condition(const Expression& expression) {
  WEFT_TRY_ASSIGN(const Value test, evaluate(*expression.parts[1]));
  if (test.truth()) return evaluate(*expression.parts[0]);
  if (expression.parts[2]) return evaluate(*expression.parts[2]);
  return Value::undefined("an expression with 'if' and without 'else'");
}

Result<Value> Interpreter::evaluate_logic(const Expression& expression) {
  WEFT_TRY_ASSIGN(Value left, evaluate(*expression.parts[0]));
  const bool is_conjunction = expression.kind == Expression::Kind::conjunction;
  if (left.truth() != is_conjunction) return left;
  return evaluate(*expression.parts[1]);
}

Result<Value> Interpreter::evaluate_concat(const Expression& expression) {
  std::string out;
  for (const ExpressionPtr& part : expression.parts) {
    WEFT_TRY_ASSIGN(const Value value, evaluate(*part));
    WEFT_TRY_ASSIGN(const std::string text, text_of(value, budget_));
    out += text;
  }
  return Value(std::move(out));
}

Result<Value> Interpreter::evaluate_comparison(const Expression& expression) {
  WEFT_TRY_ASSIGN(Value left, evaluate(*expression.parts[0]));
  for (size_t i = 0; i < expression.names.size(); ++i) {
    WEFT_TRY_ASSIGN(Value right, evaluate(*expression.parts[i + 1]));
    WEFT_TRY_ASSIGN(const bool holds, compared(expression.names[i], left, right, budget_));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Interpreter::evaluate_function(const Expression& expression) {
  WEFT_TRY_ASSIGN(const Value value, evaluate(*expression.parts[0]));
  WEFT_TRY_ASSIGN(const Arguments arguments, evaluate_arguments(expression.arguments));
  if (expression.kind == Expression::Kind::test) {
    WEFT_TRY_ASSIGN(const bool passes, apply_test(expression.name, value, arguments, budget_));
    return Value(passes);
  }
  return apply_filter(expression.name, value, arguments, budget_);
}

Result<Arguments> Interpreter::evaluate_arguments(const ArgumentList& list) {
  Arguments out;
  for (const ExpressionPtr& argument : list.positional) {
    WEFT_TRY_ASSIGN(Value value, evaluate(*argument));
    out.positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : list.named) {
    WEFT_TRY_ASSIGN(Value value, evaluate(*argument));
    out.named.emplace_back(name, std::move(value));
  }
  return out;
}

}  // namespace weft::jinja
