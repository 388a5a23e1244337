// The options and arguments of a command. Only parser.cc knows CLI11, whose header takes seconds to
// compile wherever it is used.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "cli/outcome.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weft::cli {

// The variable for the value of an option. Its value before parsing is the default. A bool makes
// the option a flag.
using Target = std::variant<bool*, uint32_t*, uint64_t*, int64_t*, double*, std::string*,
                            std::vector<std::string>*>;

// Reads a value. Returns false if the text is not a value of that type.
bool read_value(const std::string& text, Target target);
std::string value_text(Target target);

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option type(const char* name) const;  // the argument in the help: "N", "FILE"; "" for none
  Option required() const;
  Option range(uint32_t least, uint32_t most) const;  // inclusive
  Option number(const std::string& expected, bool (*fits)(double)) const;
  Option not_negative() const;
  Option positive() const;
  Option one_of(const std::vector<std::string>& names) const;
  Option offers(const std::vector<std::string>& names) const;  // for completion; accepts others
  Option may_be_empty() const;
  Option bytes() const;  // accepts "64M" and other units, which are powers of 1024
  Option check(
      std::string (*fault)(const std::string&)) const;  // returns the fault, or an empty text
  Option excludes(const char* other) const;
  bool given() const;

 private:
  CLI::Option* option_;
};

// What completion has to know of an option or an argument.
struct OptionRow {
  std::vector<std::string> names;  // "--quiet", "-q"; of an argument, its name
  bool argument = false, list = false;
  std::string type, about;  // the type of a flag is empty
  std::vector<std::string> choices;

  bool takes_files() const;
};

class Parser {
 public:
  Parser(const std::string& command, const std::string& about, const std::string& example);
  ~Parser();
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  // Options that are added from now on are listed under this title in the help.
  void section(const std::string& title) { section_ = title; }

  // `names` is "--long,-s", or a word for an argument. `value` must outlive the parser.
  template <typename T>
  Option add(const std::string& names, T& value, const std::string& about) {
    return add(names, Target(&value), about);
  }
  Option add(const std::string& names, Target target, const std::string& about);

  // These options come first in the help.
  void common(const std::vector<std::string>& names);
  std::vector<OptionRow> rows() const;

  // If an option is given twice, the last value counts. `help` is the text to print if it was asked
  // for, otherwise empty.
  Outcome parse(std::vector<std::string> arguments, std::string& help);

 private:
  std::unique_ptr<CLI::App> app_;
  std::string section_ = "Options";
};

// A hint such as "did you mean train?" if a known name is similar; otherwise empty.
std::string meant(std::string_view found, const std::vector<std::string>& known);

}  // namespace weft::cli
