// The syntax tree of a Jinja template. It is immutable and does not refer to the text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace weft::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

// The arguments of a call, a filter or a test.
struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

struct Expression {
  enum class Kind : uint8_t {
    literal,    // value
    name,       // name
    attribute,  // parts[0].name
    item,       // parts[0][parts[1]]
    slice,      // parts[0][parts[1]:parts[2]:parts[3]], where each of the three may be null
    list,       // [parts...]
    tuple,      // (parts...)
    dict,       // {parts[0]: parts[1], ...}
    negative,   // -parts[0]
    positive,   // +parts[0]
    negation,   // not parts[0]
    conjunction,
    disjunction,
    condition,   // parts[0] if parts[1] else parts[2], which may be null
    arithmetic,  // parts[0] name parts[1]
    concat,      // parts[0] ~ parts[1] ~ ...
    comparison,  // parts[0] names[0] parts[1] names[1] parts[2] ...
    filter,      // parts[0] | name(arguments)
    test,        // parts[0] is name(arguments)
    call         // parts[0](arguments)
  };

  // Out of line, because the parser makes and moves many.
  Expression();
  Expression(Expression&&) noexcept;
  ~Expression();

  Kind kind = Kind::literal;
  uint32_t line = 0;
  uint32_t depth = 1;
  std::string name;
  Value value;
  std::vector<std::string> names;
  std::vector<ExpressionPtr> parts;
  ArgumentList arguments;
};

struct Statement;
using Block = std::vector<Statement>;

// What `set` and `for` assign to: names, of which several unpack a list, or one name.attribute.
struct Target {
  std::vector<std::string> names;
  bool unpacks = false;
  std::string attribute;
};

struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  std::shared_ptr<const Block> body;
};

struct Statement {
  enum class Kind : uint8_t {
    data,        // text
    print,       // value
    condition,   // the first of `branches` whose value is null or true
    loop,        // for target in value if filter; otherwise is for no items
    set,         // target = value
    set_block,   // target = body, through the filter
    macro,       // macro
    generation,  // body is an answer
    leave,       // break
    next         // continue
  };
  struct Branch {
    ExpressionPtr test;
    Block body;
  };

  Statement();
  Statement(Statement&&) noexcept;
  Statement& operator=(Statement&&) noexcept;
  ~Statement();

  Kind kind = Kind::data;
  uint32_t line = 0;
  std::string text;
  Target target;
  ExpressionPtr value;
  ExpressionPtr filter;
  std::vector<Branch> branches;
  Block body;
  Block otherwise;
  std::shared_ptr<const Macro> macro;
};

}  // namespace weft::jinja
