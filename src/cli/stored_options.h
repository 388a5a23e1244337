// Options that a checkpoint stores as text, and that are the defaults when a run resumes.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cli/parser.h"

namespace weft::cli {

class StoredOptions {
 public:
  // `resets`: an empty value resets an option that has no default.
  explicit StoredOptions(Parser& parser, bool resets = false) : parser_(parser), resets_(resets) {}

  void section(const std::string& title) { parser_.section(title); }

  // A checkpoint stores the first of the names.
  template <typename T>
  Option add(const std::string& names, T& value, const std::string& about) {
    const Option option = parser_.add(names, value, about);
    if constexpr (std::is_same_v<T, std::string>)
      if (resets_ && value.empty()) option.may_be_empty();
    rows_.push_back({name_of(names), option, &value});
    return option;
  }
  static std::string name_of(const std::string& names) {
    return names.substr(2, names.find(',') - 2);
  }

  std::vector<std::pair<std::string, std::string>> texts() const;
  // Checks before the work that a checkpoint can store all values.
  Outcome check_storable() const;
  bool given(const std::string& name) const;
  // Fails if one of the options is on the command line.
  Outcome check_not_combined(const std::vector<std::string>& names, const std::string& other) const;
  // Fails if an option is reset: there is no checkpoint that has set it.
  Outcome check_no_resets() const;
  // Sets the options that are not on the command line.
  Outcome restore(const std::vector<std::pair<std::string, std::string>>& texts);

 private:
  struct Row {
    std::string name;
    Option option;
    Target value;
  };
  Parser& parser_;
  const bool resets_;
  std::vector<Row> rows_;
};

}  // namespace weft::cli
