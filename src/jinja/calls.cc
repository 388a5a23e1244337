// Calls of methods, macros and the functions that every template has.
#include <cstdlib>

#include "base/text.h"
#include "jinja/interpreter.h"
#include "jinja/print.h"
#include "jinja/strftime.h"

namespace weft::jinja {

namespace {

constexpr int64_t kMostRange = 100000;  // as in Jinja's sandbox

Result<Value> range(const Arguments& arguments, Budget& budget) {
  WEFT_TRY_ASSIGN(const BoundArguments bound,
                  BoundArguments::bind("range", arguments, {"start", "stop", "step"}));
  if (!arguments.named.empty() || !bound.has(0))
    return fault("'range' expects 1 to 3 integers without names");
  int64_t values[3] = {0, 0, 1};
  for (size_t i = 0; i < 3; ++i) {
    if (!bound.has(i)) continue;
    if (!bound[i]->is_whole()) return mismatch("an integer for 'range'", *bound[i]);
    values[i] = bound[i]->whole();
    if (std::abs(values[i] / 2) > kMostRange * kMostRange)
      return fault(cat("'range': ", values[i], " is out of range"));
  }
  const int64_t begin = bound.has(1) ? values[0] : 0;
  const int64_t end = bound.has(1) ? values[1] : values[0];
  const int64_t step = values[2];
  if (step == 0) return fault("'range' expects a step that is not 0");
  const int64_t span = step > 0 ? end - begin : begin - end;
  const int64_t size = span <= 0 ? 0 : (span - 1) / std::abs(step) + 1;
  if (size > kMostRange)
    return fault(cat("'range' has ", size, " values, the limit is ", kMostRange));
  WEFT_TRY(budget.spend(static_cast<uint64_t>(size) * 32));
  Items out;
  for (int64_t i = 0; i < size; ++i) out.emplace_back(begin + i * step);
  return Value::sequence(std::move(out));
}

Result<Value> make_dict(const Arguments& arguments, Budget& budget) {
  if (!arguments.positional.empty()) return fault("'dict' expects arguments with names");
  Pairs pairs;
  for (const auto& [name, value] : arguments.named) pairs.emplace_back(Value(name), value);
  return Value::dict(std::move(pairs), budget);
}

Status raise(const Arguments& arguments, Budget& budget) {
  WEFT_TRY_ASSIGN(const BoundArguments bound,
                  BoundArguments::bind("raise_exception", arguments, {"message"}));
  std::string message;
  if (bound.has(0)) {
    WEFT_TRY_ASSIGN(message, text_of(*bound[0], budget));
  }
  return Status(Code::invalid, cat("the template refuses the messages: ", message));
}

}  // namespace

Result<Value> Interpreter::evaluate_call(const Expression& expression) {
  const Expression& callee = *expression.parts[0];
  if (callee.kind == Expression::Kind::attribute) {
    WEFT_TRY_ASSIGN(const Value object, evaluate(*callee.parts[0]));
    if (is_method(object, callee.name)) {
      WEFT_TRY_ASSIGN(const Arguments arguments, evaluate_arguments(expression.arguments));
      WEFT_TRY_ASSIGN(Value out, call_method(object, callee.name, arguments, budget_));
      if (out.is(Kind::text)) WEFT_TRY(budget_.spend(out.bytes()));
      return out;
    }
    if (object.is(Kind::loop) && (callee.name == "cycle" || callee.name == "changed"))
      return fault(cat("'loop.", callee.name, "' is not supported"));
    WEFT_TRY_ASSIGN(const Value value, attribute(object, callee.name, budget_));
    if (!value.is(Kind::macro)) return mismatch("a function", value);
    WEFT_TRY_ASSIGN(const Arguments arguments, evaluate_arguments(expression.arguments));
    return call_macro(value.macro(), arguments);
  }
  const bool is_global = callee.kind == Expression::Kind::name && find(callee.name) == nullptr;
  if (is_global) {
    WEFT_TRY_ASSIGN(const Arguments arguments, evaluate_arguments(expression.arguments));
    return call_global(callee.name, arguments);
  }
  WEFT_TRY_ASSIGN(const Value value, evaluate(callee));
  if (!value.is(Kind::macro)) return mismatch("a function", value);
  WEFT_TRY_ASSIGN(const Arguments arguments, evaluate_arguments(expression.arguments));
  return call_macro(value.macro(), arguments);
}

Result<Value> Interpreter::call_global(const std::string& name, const Arguments& arguments) {
  if (name == "raise_exception") return raise(arguments, budget_);
  if (name == "range") return range(arguments, budget_);
  if (name == "namespace") return make_namespace(arguments);
  if (name == "dict") return make_dict(arguments, budget_);
  if (name == "strftime_now" && now_) {
    WEFT_TRY_ASSIGN(const BoundArguments bound, BoundArguments::bind(name, arguments, {"format"}));
    if (!bound.has(0) || !bound[0]->is(Kind::text)) return fault("'strftime_now' expects a format");
    // A directive of two bytes makes at most nine.
    WEFT_TRY(budget_.spend(8 * bound[0]->bytes()));
    WEFT_TRY_ASSIGN(std::string text, time_text(*now_, bound[0]->text()));
    return Value(std::move(text));
  }
  return fault(cat("the function ", shown(name), " is undefined"));
}

Result<Value> Interpreter::make_namespace(const Arguments& arguments) {
  // Namespaces stay until the end.
  const auto spend = [&](size_t bytes) { return budget_.spend(256 + bytes); };
  WEFT_TRY(spend(0));
  auto space = std::make_unique<Namespace>();
  for (const Value& value : arguments.positional) {
    if (!value.is(Kind::dict)) return mismatch("a dict for 'namespace'", value);
    for (const auto& [key, member] : value.pairs()) {
      if (!key.is(Kind::text)) return mismatch("a text as name of an attribute", key);
      WEFT_TRY(spend(key.bytes()));
      (*space)[key.text()] = member;
    }
  }
  for (const auto& [name, value] : arguments.named) {
    WEFT_TRY(spend(name.size()));
    (*space)[name] = value;
  }
  namespaces_.push_back(std::move(space));
  return Value(namespaces_.back().get());
}

Result<Value> Interpreter::call_macro(const Macro& macro, const Arguments& arguments) {
  const size_t n = macro.parameters.size();
  if (arguments.positional.size() > n)
    return fault(cat("the macro ", shown(macro.name), " expects at most ", n, " arguments, has ",
                     arguments.positional.size()));
  WEFT_TRY(budget_.spend(n * (32 + arguments.named.size())));
  const size_t bottom = bottom_;
  const uint32_t loops = loops_;
  const Scope scope(scopes_);
  bottom_ = scopes_.size() - 1;
  loops_ = 0;
  const auto call = [&]() -> Result<std::string> {
    for (size_t i = 0; i < arguments.positional.size(); ++i)
      assign(macro.parameters[i], arguments.positional[i]);
    for (const auto& [name, value] : arguments.named) {
      size_t i = 0;
      while (i < n && macro.parameters[i] != name) ++i;
      if (i == n || i < arguments.positional.size())
        return fault(
            cat("the macro ", shown(macro.name), " does not expect the argument ", shown(name)));
      assign(name, value);
    }
    for (size_t i = arguments.positional.size(); i < n; ++i) {
      const std::string& name = macro.parameters[i];
      if (scopes_.back().contains(name)) continue;
      const size_t required = n - macro.defaults.size();
      if (i < required) {
        assign(name, Value::undefined(shown(name)));
      } else {
        WEFT_TRY_ASSIGN(Value value, evaluate(*macro.defaults[i - required]));
        assign(name, std::move(value));
      }
    }
    return captured(*macro.body);
  };
  Result<std::string> text = call();
  bottom_ = bottom;
  loops_ = loops;
  if (!text.ok()) return text.status();
  return Value(text.take());
}

}  // namespace weft::jinja
