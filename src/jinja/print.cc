#include "jinja/print.h"

#include "base/text.h"
#include "jinja/python_text.h"

namespace weft::jinja {

namespace {

Result<std::string> plain_text(const Value& value);

Status append_repr(std::string& out, const Value& value) {
  if (value.is(Kind::text)) {
    out += repr(value.text());
    return {};
  }
  if (value.is(Kind::undefined)) {
    out += "Undefined";
    return {};
  }
  if (value.is(Kind::list) || value.is(Kind::tuple)) {
    const bool is_list = value.is(Kind::list);
    out += is_list ? '[' : '(';
    for (const Value& item : value.items()) {
      if (&item != &value.items()[0]) out += ", ";
      WEFT_TRY(append_repr(out, item));
    }
    if (!is_list && value.items().size() == 1) out += ',';
    out += is_list ? ']' : ')';
    return {};
  }
  if (value.is(Kind::dict)) {
    out += '{';
    for (const auto& pair : value.pairs()) {
      if (&pair != &value.pairs()[0]) out += ", ";
      WEFT_TRY(append_repr(out, pair.first));
      out += ": ";
      WEFT_TRY(append_repr(out, pair.second));
    }
    out += '}';
    return {};
  }
  WEFT_TRY_ASSIGN(const std::string text, plain_text(value));
  out += text;
  return {};
}

class JsonPrinter {
 public:
  explicit JsonPrinter(const JsonStyle& style) : style_(style) {}
  Status print(const Value& value);
  std::string take() { return std::move(out_); }

 private:
  Status print_dict(const Value& value);
  Status print_key(const Value& key);
  void begin_line(size_t level) {
    if (!style_.indent) return;
    out_ += '\n';
    for (size_t i = 0; i < level; ++i) out_ += *style_.indent;
  }

  const JsonStyle& style_;
  std::string out_;
  size_t level_ = 0;
};

Status JsonPrinter::print(const Value& value) {
  switch (value.kind()) {
    case Kind::none: out_ += "null"; return {};
    case Kind::boolean: out_ += value.boolean() ? "true" : "false"; return {};
    case Kind::integer: append(out_, value.whole()); return {};
    case Kind::real: out_ += real_text(value.number()); return {};
    case Kind::text: append_json(out_, value.text()); return {};
    case Kind::dict: return print_dict(value);
    case Kind::list:
    case Kind::tuple: break;
    default: return mismatch("a value that has a JSON text", value);
  }
  out_ += '[';
  ++level_;
  for (const Value& item : value.items()) {
    if (&item != &value.items()[0]) out_ += style_.item_separator;
    begin_line(level_);
    WEFT_TRY(print(item));
  }
  --level_;
  if (!value.items().empty()) begin_line(level_);
  out_ += ']';
  return {};
}

Status JsonPrinter::print_dict(const Value& value) {
  out_ += '{';
  ++level_;
  for (const auto& pair : value.pairs()) {
    if (&pair != &value.pairs()[0]) out_ += style_.item_separator;
    begin_line(level_);
    WEFT_TRY(print_key(pair.first));
    out_ += style_.key_separator;
    WEFT_TRY(print(pair.second));
  }
  --level_;
  if (!value.pairs().empty()) begin_line(level_);
  out_ += '}';
  return {};
}

Status JsonPrinter::print_key(const Value& key) {
  if (key.is(Kind::text)) return print(key);
  if (!key.is_number() && !key.is(Kind::none)) return mismatch("a key of JSON", key);
  out_ += '"';
  WEFT_TRY(print(key));
  out_ += '"';
  return {};
}

Result<std::string> plain_text(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return std::string();
    case Kind::none: return std::string("None");
    case Kind::boolean: return std::string(value.boolean() ? "True" : "False");
    case Kind::integer: return cat(value.whole());
    case Kind::real: return real_text(value.number());
    case Kind::text: return value.text();
    case Kind::list:
    case Kind::tuple:
    case Kind::dict: {
      std::string out;
      WEFT_TRY(append_repr(out, value));
      return out;
    }
    default: return mismatch("a value that can be printed", value);
  }
}

}  // namespace

Result<std::string> text_of(const Value& value, Budget& budget) {
  WEFT_TRY(budget.spend(value.bytes()));
  return plain_text(value);
}

Result<std::string> json_of(const Value& value, const JsonStyle& style, Budget& budget) {
  // An escape has at most six bytes; a value has at most two lines.
  WEFT_TRY(budget.spend(6 * value.bytes()));
  if (style.indent)
    WEFT_TRY(budget.spend(value.bytes() / 16 * style.indent->size() * value.depth()));
  JsonPrinter printer(style);
  WEFT_TRY(printer.print(value));
  return printer.take();
}

}  // namespace weft::jinja
