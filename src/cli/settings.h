// Options by name that a checkpoint keeps as text, and gives back where the command line says nothing.
#pragma once

#include <utility>

#include "cli/parser.h"

namespace weft::cli {

class Settings {
 public:
  explicit Settings(Parser& parser) : parser_(parser) {}

  void section(const std::string& title) { parser_.section(title); }

  // The first of the names is the one that a checkpoint keeps.
  template <typename T>
  Option add(const std::string& names, T& value, const std::string& about) {
    const Option option = parser_.add(names, value, about);
    rows_.push_back({names.substr(2, names.find(',') - 2), option, &value});
    return option;
  }

  std::vector<std::pair<std::string, std::string>> texts() const;
  bool given(const std::string& name) const;
  // Takes what the command line did not give.
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
