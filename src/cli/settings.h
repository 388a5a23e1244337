// Options by name: parsed by CLI11, kept in a checkpoint as text, and given back by it where the command line says nothing.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/json.h"
#include "cli/outcome.h"

namespace weft::cli {

namespace detail {
inline std::string setting_text(const std::string& value) { return value; }
inline std::string setting_text(double value) { return number_text(value); }
template <std::integral T>
std::string setting_text(T value) { return std::to_string(value); }
}  // namespace detail

class Settings {
 public:
  explicit Settings(CLI::App& app) : app_(app) {}

  // `names` as CLI11 takes them, the first being the one that a checkpoint keeps. The default is the variable's value.
  template <typename T>
  CLI::Option* add(const std::string& names, T& value, const std::string& about) {
    CLI::Option* option = app_.add_option(names, value, about)->capture_default_str();
    rows_.push_back({names.substr(2, names.find(',') - 2), option, [&value] { return detail::setting_text(value); },
                     [&value](const std::string& text) { return CLI::detail::lexical_cast(text, value); }});
    return option;
  }

  CLI::Option* add_flag(const std::string& name, bool& value, const std::string& about) {
    CLI::Option* option = app_.add_flag(name, value, about);
    rows_.push_back({name.substr(2), option, [&value] { return detail::setting_text(int{value}); },
                     [&value](const std::string& text) { return CLI::detail::lexical_cast(text, value); }});
    return option;
  }

  std::vector<std::pair<std::string, std::string>> texts() const;
  bool given(const std::string& name) const;
  // Takes what the command line did not give.
  Outcome restore(const std::vector<std::pair<std::string, std::string>>& texts);

 private:
  struct Row {
    std::string name;
    CLI::Option* option;
    std::function<std::string()> text;
    std::function<bool(const std::string&)> parse;
  };
  CLI::App& app_;
  std::vector<Row> rows_;
};

}  // namespace weft::cli
