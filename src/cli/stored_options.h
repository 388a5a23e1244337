// Options that a checkpoint stores as text, and that are the defaults when a run resumes.
#pragma once

#include <utility>

#include "cli/parser.h"

namespace weft::cli {

class StoredOptions {
 public:
  explicit StoredOptions(Parser& parser) : parser_(parser) {}

  void section(const std::string& title) { parser_.section(title); }

  // A checkpoint stores the first of the names.
  template <typename T>
  Option add(const std::string& names, T& value, const std::string& about) {
    const Option option = parser_.add(names, value, about);
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
  // Sets the options that are not on the command line.
  Outcome restore(const std::vector<std::pair<std::string, std::string>>& texts);

 private:
  struct Row {
    std::string name;
    Option option;
    Target value;
  };
  Parser& parser_;
  std::vector<Row> rows_;
};

}  // namespace weft::cli
