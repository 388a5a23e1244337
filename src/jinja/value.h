// The values of a chat template: what Python's None, bool, int, float, str, list, tuple and dict
// are to a Jinja template, and Jinja's undefined value, namespace and loop.
//
// Values are immutable, except namespaces, which belong to the interpreter. Lists and dicts know
// what depends on all their items, so that a template cannot make values whose use takes unbounded
// time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "jinja/budget.h"

namespace weft::jinja {

class Value;
struct Macro;
using Items = std::vector<Value>;
using Pairs = std::vector<std::pair<Value, Value>>;
using Namespace = std::map<std::string, Value, std::less<>>;

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  text,
  list,
  tuple,
  generator,  // the result of a filter, which can only be iterated
  dict,
  name_space,
  loop,
  macro
};

struct Sequence {
  Items items;
  uint32_t depth;
  uint64_t bytes;
  bool hashable;  // as a tuple, it can be a key of a dict
};

struct Dict {
  Pairs pairs;  // in the order of insertion
  uint32_t depth;
  uint64_t bytes;
};

// The variable `loop` in one iteration.
struct Loop {
  std::shared_ptr<const Sequence> items;
  size_t index;
  uint32_t level;  // 1: a loop that is in no other loop
};

class Value {
 public:
  static constexpr uint32_t kMostDepth = 64;  // levels of lists and dicts

  Value() : Value(Kind::none) {}
  Value(bool value) : kind_(Kind::boolean), whole_(value) {}
  Value(int64_t value) : kind_(Kind::integer), whole_(value) {}
  Value(double value) : kind_(Kind::real), real_(value) {}
  Value(std::string text);
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(Namespace* space) : kind_(Kind::name_space), space_(space) {}
  Value(const Macro* macro) : kind_(Kind::macro), macro_(macro) {}
  Value(std::shared_ptr<const Loop> loop);
  // Out of line, because every expression copies values.
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;
  ~Value();
  // `what` says in a message which value is undefined.
  static Value undefined(std::string what);
  // A list, tuple or generator. Fails if it has too many levels.
  static Result<Value> sequence(Items items, Kind kind = Kind::list);
  // A later value of an equal key replaces an earlier one. Fails for a key that Python cannot hash.
  static Result<Value> dict(Pairs pairs, Budget& budget);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_sequence() const {
    return kind_ == Kind::list || kind_ == Kind::tuple || kind_ == Kind::generator;
  }
  bool is_number() const {
    return kind_ == Kind::boolean || kind_ == Kind::integer || kind_ == Kind::real;
  }
  bool is_whole() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }

  // Valid for values of this kind.
  bool boolean() const { return whole_ != 0; }
  int64_t whole() const { return whole_; }  // of a boolean or an integer
  double number() const;                    // of any number
  const std::string& text() const { return shared<std::string>(); }
  const std::string& what() const { return text(); }  // of an undefined value
  const Items& items() const { return shared<Sequence>().items; }
  std::shared_ptr<const Sequence> sequence_data() const;
  const Pairs& pairs() const { return shared<Dict>().pairs; }
  Namespace& name_space() const { return *space_; }
  const Loop& loop() const { return shared<Loop>(); }
  const Macro& macro() const { return *macro_; }

  // The value of a key of a dict, or null.
  Result<const Value*> find(const Value& key, Budget& budget) const;

  bool truth() const;
  uint64_t bytes() const;  // about the memory it takes, also where values share it
  uint32_t depth() const;
  bool hashable() const;  // it can be a key of a dict
  // For messages: "a text", "undefined", ...
  std::string_view type() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  template <typename T>
  const T& shared() const {
    return *static_cast<const T*>(shared_.get());
  }

  Kind kind_;
  union {
    int64_t whole_ = 0;
    double real_;
    Namespace* space_;
    const Macro* macro_;
  };
  std::shared_ptr<const void> shared_;  // a text, Sequence, Dict or Loop
};

// The time of a comparison is in proportion to what it takes from the budget.
// Python's ==.
Result<bool> equal(const Value& a, const Value& b, Budget& budget);
// Python's <. Fails for values that have no order.
Result<bool> less(const Value& a, const Value& b, Budget& budget);
// Python's `item in container`.
Result<bool> contains(const Value& container, const Value& item, Budget& budget);
// The items that a `for` iterates over: also the characters of a text and the keys of a dict.
Result<std::shared_ptr<const Sequence>> iterated(const Value& value, Budget& budget);
// len() of a text, a list, a dict or an undefined value.
Result<int64_t> length_of(const Value& value);

// "'name' is undefined", or "expected EXPECTED, found a list".
Status mismatch(std::string_view expected, const Value& found);

}  // namespace weft::jinja
