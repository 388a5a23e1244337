#include "jinja/value.h"

#include <algorithm>

#include "base/text.h"
#include "jinja/python_text.h"
#include "text/unicode.h"

namespace weft::jinja {

namespace {

constexpr uint64_t kValueBytes = 32;
constexpr uint64_t kMostBytes = uint64_t{1} << 60;  // what is shared often is not counted further
constexpr size_t kMostKeys = 1024;                  // of a dict, which is searched from its begin

Status too_deep() {
  return fault(cat("a list or dict has more than ", Value::kMostDepth, " levels, the limit"));
}

// The place of the pair with this key, or the number of pairs.
Result<size_t> place_of(const Value& key, const Pairs& pairs, Budget& budget) {
  WEFT_TRY(budget.spend(pairs.size()));
  for (size_t i = 0; i < pairs.size(); ++i) {
    WEFT_TRY_ASSIGN(const bool same, equal(pairs[i].first, key, budget));
    if (same) return i;
  }
  return pairs.size();
}

// The first place at which the items of two lists differ, or the size of the shorter list.
Result<size_t> first_difference(const Items& a, const Items& b, Budget& budget) {
  const size_t n = std::min(a.size(), b.size());
  for (size_t i = 0; i < n; ++i) {
    WEFT_TRY(budget.spend(kValueBytes));
    WEFT_TRY_ASSIGN(const bool same, equal(a[i], b[i], budget));
    if (!same) return i;
  }
  return n;
}

Result<bool> equal_pairs(const Value& a, const Value& b, Budget& budget) {
  if (a.pairs().size() != b.pairs().size()) return false;
  for (const auto& [key, value] : a.pairs()) {
    WEFT_TRY_ASSIGN(const Value* other, b.find(key, budget));
    if (other == nullptr) return false;
    WEFT_TRY_ASSIGN(const bool same, equal(value, *other, budget));
    if (!same) return false;
  }
  return true;
}

}  // namespace

Status fault(std::string_view text) { return Status(Code::data, std::string(text)); }

Value::Value(std::string text)
    : kind_(Kind::text), shared_(std::make_shared<const std::string>(std::move(text))) {}
Value::Value(std::shared_ptr<const Loop> loop) : kind_(Kind::loop), shared_(std::move(loop)) {}
Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;
Value::~Value() = default;

Value Value::undefined(std::string what) {
  Value out(Kind::undefined);
  out.shared_ = std::make_shared<const std::string>(std::move(what));
  return out;
}

Result<Value> Value::sequence(Items items, Kind kind) {
  Sequence data{std::move(items), 1, kValueBytes, true};
  for (const Value& item : data.items) {
    data.depth = std::max(data.depth, item.depth() + 1);
    data.bytes = std::min(data.bytes + item.bytes(), kMostBytes);
    data.hashable = data.hashable && item.hashable();
  }
  if (data.depth > kMostDepth) return too_deep();
  Value out(kind);
  out.shared_ = std::make_shared<const Sequence>(std::move(data));
  return out;
}

Result<Value> Value::dict(Pairs pairs, Budget& budget) {
  if (pairs.size() > kMostKeys)
    return fault(cat("a dict has ", pairs.size(), " keys, the limit is ", kMostKeys));
  Dict data{{}, 1, kValueBytes};
  for (auto& [key, value] : pairs) {
    if (!key.hashable()) return mismatch("a key of a dict", key);
    data.depth = std::max({data.depth, key.depth() + 1, value.depth() + 1});
    data.bytes = std::min(data.bytes + key.bytes() + value.bytes(), kMostBytes);
    WEFT_TRY_ASSIGN(const size_t at, place_of(key, data.pairs, budget));
    if (at < data.pairs.size())
      data.pairs[at].second = std::move(value);
    else
      data.pairs.emplace_back(std::move(key), std::move(value));
  }
  if (data.depth > kMostDepth) return too_deep();
  Value out(Kind::dict);
  out.shared_ = std::make_shared<const Dict>(std::move(data));
  return out;
}

double Value::number() const { return kind_ == Kind::real ? real_ : static_cast<double>(whole_); }

std::shared_ptr<const Sequence> Value::sequence_data() const {
  return std::static_pointer_cast<const Sequence>(shared_);
}

Result<const Value*> Value::find(const Value& key, Budget& budget) const {
  WEFT_TRY_ASSIGN(const size_t at, place_of(key, pairs(), budget));
  return at < pairs().size() ? &pairs()[at].second : nullptr;
}

bool Value::truth() const {
  switch (kind_) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean:
    case Kind::integer: return whole() != 0;
    case Kind::real: return number() != 0;
    case Kind::text: return !text().empty();
    case Kind::list:
    case Kind::tuple: return !items().empty();
    case Kind::dict: return !pairs().empty();
    case Kind::generator:
    case Kind::name_space:
    case Kind::loop:
    case Kind::macro: return true;
  }
  return true;
}

uint64_t Value::bytes() const {
  switch (kind_) {
    case Kind::text: return kValueBytes + text().size();
    case Kind::list:
    case Kind::tuple:
    case Kind::generator: return shared<Sequence>().bytes;
    case Kind::dict: return shared<Dict>().bytes;
    case Kind::loop: return kValueBytes + loop().items->bytes;
    default: return kValueBytes;
  }
}

uint32_t Value::depth() const {
  switch (kind_) {
    case Kind::list:
    case Kind::tuple:
    case Kind::generator: return shared<Sequence>().depth;
    case Kind::dict: return shared<Dict>().depth;
    case Kind::loop: return loop().items->depth + 1;
    default: return 0;
  }
}

bool Value::hashable() const {
  if (is(Kind::tuple)) return shared<Sequence>().hashable;
  return !is(Kind::list) && !is(Kind::dict);
}

std::string_view Value::type() const {
  switch (kind_) {
    case Kind::undefined: return "an undefined value";
    case Kind::none: return "none";
    case Kind::boolean: return "a boolean";
    case Kind::integer: return "an integer";
    case Kind::real: return "a float";
    case Kind::text: return "a text";
    case Kind::list: return "a list";
    case Kind::tuple: return "a tuple";
    case Kind::generator: return "a generator";
    case Kind::dict: return "a dict";
    case Kind::name_space: return "a namespace";
    case Kind::loop: return "a loop";
    case Kind::macro: return "a macro";
  }
  return "";
}

Result<bool> equal(const Value& a, const Value& b, Budget& budget) {
  if (a.is_number() && b.is_number())
    return a.is_whole() && b.is_whole() ? a.whole() == b.whole() : a.number() == b.number();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::text:
      if (a.text().size() != b.text().size()) return false;
      WEFT_TRY(budget.spend(a.text().size()));
      return a.text() == b.text();
    case Kind::list:
    case Kind::tuple: {
      if (a.items().size() != b.items().size()) return false;
      WEFT_TRY_ASSIGN(const size_t at, first_difference(a.items(), b.items(), budget));
      return at == a.items().size();
    }
    case Kind::generator: return &a.items() == &b.items();
    case Kind::dict: return equal_pairs(a, b, budget);
    case Kind::name_space: return &a.name_space() == &b.name_space();
    case Kind::loop: return &a.loop() == &b.loop();
    case Kind::macro: return &a.macro() == &b.macro();
    default: return true;
  }
}

Result<bool> less(const Value& a, const Value& b, Budget& budget) {
  if (a.is_whole() && b.is_whole()) return a.whole() < b.whole();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.is(Kind::text) && b.is(Kind::text)) {
    WEFT_TRY(budget.spend(std::min(a.text().size(), b.text().size())));
    return a.text() < b.text();
  }
  if ((a.is(Kind::list) && b.is(Kind::list)) || (a.is(Kind::tuple) && b.is(Kind::tuple))) {
    WEFT_TRY_ASSIGN(const size_t at, first_difference(a.items(), b.items(), budget));
    if (at < std::min(a.items().size(), b.items().size()))
      return less(a.items()[at], b.items()[at], budget);
    return a.items().size() < b.items().size();
  }
  if (a.is(Kind::undefined)) return mismatch("a value to compare", a);
  return mismatch(cat("a value to compare with ", a.type()), b);
}

Result<bool> contains(const Value& container, const Value& item, Budget& budget) {
  switch (container.kind()) {
    case Kind::undefined: return false;
    case Kind::text:
      if (!item.is(Kind::text)) return mismatch("a text, because 'in' searches a text", item);
      WEFT_TRY(budget.spend(container.bytes()));
      return find_text(container.text(), item.text(), 0) != std::string::npos;
    case Kind::dict: {
      if (!item.hashable()) return mismatch("a key of a dict", item);
      WEFT_TRY_ASSIGN(const Value* found, container.find(item, budget));
      return found != nullptr;
    }
    case Kind::list:
    case Kind::tuple:
    case Kind::generator:
      for (const Value& other : container.items()) {
        WEFT_TRY(budget.spend(kValueBytes));
        WEFT_TRY_ASSIGN(const bool same, equal(other, item, budget));
        if (same) return true;
      }
      return false;
    default: return mismatch("a text, a list or a dict after 'in'", container);
  }
}

Result<std::shared_ptr<const Sequence>> iterated(const Value& value, Budget& budget) {
  if (value.is_sequence()) return value.sequence_data();
  Items items;
  if (value.is(Kind::text)) {
    WEFT_TRY(budget.spend(64 * value.bytes()));
    std::string_view rest = value.text();
    while (!rest.empty()) {
      const size_t n = utf8_bytes(rest);
      items.emplace_back(rest.substr(0, n));
      rest.remove_prefix(n);
    }
  } else if (value.is(Kind::dict)) {
    WEFT_TRY(budget.spend(kValueBytes * value.pairs().size()));
    for (const auto& pair : value.pairs()) items.push_back(pair.first);
  } else if (!value.is(Kind::undefined)) {
    return mismatch("a list", value);
  }
  WEFT_TRY_ASSIGN(const Value list, Value::sequence(std::move(items)));
  return list.sequence_data();
}

Result<int64_t> length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return int64_t{0};
    case Kind::text: return static_cast<int64_t>(count_code_points(value.text()));
    case Kind::list:
    case Kind::tuple: return static_cast<int64_t>(value.items().size());
    case Kind::dict: return static_cast<int64_t>(value.pairs().size());
    case Kind::loop: return static_cast<int64_t>(value.loop().items->items.size());
    default: return mismatch("a value that has a length", value);
  }
}

Status mismatch(std::string_view expected, const Value& found) {
  if (found.is(Kind::undefined)) return fault(cat(found.what(), " is undefined"));
  return fault(cat("expected ", expected, ", found ", found.type()));
}

}  // namespace weft::jinja
