#include "jinja/interpreter.h"

#include "base/text.h"
#include "jinja/lexer.h"
#include "jinja/print.h"

namespace weft::jinja {

namespace {

// A level takes about 1 KiB of stack. Templates of models need less than 20 levels.
constexpr uint32_t kMostLevels = 128;

Status in_line(const Status& status, uint32_t line) {
  // The innermost line is the most precise one.
  if (status.code() != Code::data || status.text().starts_with("line ")) return status;
  return status.within(cat("line ", line));
}

}  // namespace

Status Interpreter::Level::check() const {
  if (level_ <= kMostLevels) return {};
  return fault(cat("macros, blocks and expressions are nested more than ", kMostLevels, " levels"));
}

Interpreter::Interpreter(Variables variables, std::optional<int64_t> now, Budget budget)
    : budget_(budget), now_(now) {
  scopes_.push_back(std::move(variables));
}

Result<Rendered> Interpreter::render(const Block& block) {
  Flow flow = Flow::next_statement;
  WEFT_TRY(run(block, flow));
  return Rendered{std::move(out_), std::move(generations_)};
}

Status Interpreter::run(const Block& block, Flow& flow) {
  const Level level(level_);
  WEFT_TRY(level.check());
  for (const Statement& statement : block) {
    const Status status = run(statement, flow);
    if (!status.ok()) return in_line(status, statement.line);
    if (flow != Flow::next_statement) return {};
  }
  return {};
}

Status Interpreter::run(const Statement& statement, Flow& flow) {
  WEFT_TRY(budget_.step());
  switch (statement.kind) {
    case Statement::Kind::data: return print(statement.text);
    case Statement::Kind::print: {
      WEFT_TRY_ASSIGN(const Value value, evaluate(*statement.value));
      WEFT_TRY_ASSIGN(const std::string text, text_of(value, budget_));
      return print(text);
    }
    case Statement::Kind::condition: return run_condition(statement, flow);
    case Statement::Kind::loop: return run_loop(statement, flow);
    case Statement::Kind::set: {
      WEFT_TRY_ASSIGN(const Value value, evaluate(*statement.value));
      return assign(statement.target, value);
    }
    case Statement::Kind::set_block: {
      WEFT_TRY_ASSIGN(std::string text, captured(statement.body));
      return assign(statement.target, Value(std::move(text)));
    }
    case Statement::Kind::macro:
      assign(statement.macro->name, Value(statement.macro.get()));
      return {};
    case Statement::Kind::generation: return run_generation(statement);
    case Statement::Kind::leave: flow = Flow::end_of_loop; return {};
    case Statement::Kind::next: flow = Flow::next_iteration; return {};
  }
  return {};
}

Status Interpreter::print(std::string_view text) {
  WEFT_TRY(budget_.spend(text.size()));
  out_ += text;
  return {};
}

Status Interpreter::run_condition(const Statement& statement, Flow& flow) {
  for (const Statement::Branch& branch : statement.branches) {
    if (branch.test) {
      WEFT_TRY_ASSIGN(const Value test, evaluate(*branch.test));
      if (!test.truth()) continue;
    }
    return run(branch.body, flow);
  }
  return {};
}

Result<std::shared_ptr<const Sequence>> Interpreter::loop_items(const Statement& statement) {
  WEFT_TRY_ASSIGN(const Value value, evaluate(*statement.value));
  WEFT_TRY_ASSIGN(std::shared_ptr<const Sequence> all, iterated(value, budget_));
  if (!statement.filter) return all;
  Items kept;
  for (const Value& item : all->items) {
    WEFT_TRY(budget_.step());
    const Scope scope(scopes_);
    WEFT_TRY(assign(statement.target, item));
    WEFT_TRY_ASSIGN(const Value test, evaluate(*statement.filter));
    if (test.truth()) kept.push_back(item);
  }
  WEFT_TRY_ASSIGN(const Value list, Value::sequence(std::move(kept)));
  return list.sequence_data();
}

Status Interpreter::run_loop(const Statement& statement, Flow& flow) {
  WEFT_TRY_ASSIGN(const std::shared_ptr<const Sequence> items, loop_items(statement));
  if (items->items.empty()) {
    const Scope scope(scopes_);
    return run(statement.otherwise, flow);
  }
  const Level level(loops_);
  for (size_t i = 0; i < items->items.size(); ++i) {
    WEFT_TRY(budget_.step());
    const Scope scope(scopes_);
    scopes_.back()["loop"] = Value(std::make_shared<const Loop>(Loop{items, i, loops_}));
    WEFT_TRY(assign(statement.target, items->items[i]));
    Flow inner = Flow::next_statement;
    WEFT_TRY(run(statement.body, inner));
    if (inner == Flow::end_of_loop) break;
  }
  return {};
}

Status Interpreter::run_generation(const Statement& statement) {
  if (captures_ > 0) return fault("'generation' in a macro or in a block 'set' is not supported");
  const size_t begin = out_.size();
  const Scope scope(scopes_);
  Flow flow = Flow::next_statement;
  WEFT_TRY(run(statement.body, flow));
  generations_.emplace_back(begin, out_.size());
  return {};
}

Result<std::string> Interpreter::captured(const Block& block) {
  std::string outer = std::move(out_);
  out_.clear();
  ++captures_;
  Status status;
  {
    const Scope scope(scopes_);
    Flow flow = Flow::next_statement;
    status = run(block, flow);
  }
  --captures_;
  std::swap(out_, outer);
  if (!status.ok()) return status;
  return outer;
}

Status Interpreter::assign(const Target& target, const Value& value) {
  if (!target.attribute.empty()) {
    const Value* space = find(target.names[0]);
    if (space == nullptr || !space->is(Kind::name_space))
      return fault(cat(shown(target.names[0]), " is not a namespace"));
    space->name_space()[target.attribute] = value;
    return {};
  }
  if (!target.unpacks) {
    assign(target.names[0], value);
    return {};
  }
  WEFT_TRY_ASSIGN(const auto parts, iterated(value, budget_));
  if (parts->items.size() != target.names.size())
    return fault(
        cat("expected ", target.names.size(), " values to unpack, found ", parts->items.size()));
  WEFT_TRY(budget_.spend(32 * target.names.size()));
  for (size_t i = 0; i < target.names.size(); ++i) assign(target.names[i], parts->items[i]);
  return {};
}

void Interpreter::assign(const std::string& name, Value value) {
  scopes_.back()[name] = std::move(value);
}

const Value* Interpreter::find(std::string_view name) const {
  for (size_t i = scopes_.size(); i-- > 0;) {
    if (i > 0 && i < bottom_) i = 0;
    if (const auto at = scopes_[i].find(name); at != scopes_[i].end()) return &at->second;
  }
  return nullptr;
}

}  // namespace weft::jinja
