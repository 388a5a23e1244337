// The options and arguments of a command. Only parser.cc knows CLI11, whose header takes seconds to compile wherever it is used.
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

// Where the value of an option goes; what is there before is its default. A bool makes it a flag.
using Target = std::variant<bool*, uint32_t*, uint64_t*, int64_t*, double*, std::string*, std::vector<std::string>*>;

// Whether the whole text is a value of that type.
bool read_value(const std::string& text, Target target);
std::string value_text(Target target);

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option type(const char* name) const;  // as help shows it: "N", "FILE"; "" for none
  Option required() const;
  Option range(uint32_t least, uint32_t most) const;  // both are in it
  Option number(const std::string& expected, bool (*fits)(double)) const;
  Option not_negative() const;
  Option positive() const;
  Option one_of(const std::vector<std::string>& names) const;
  Option bytes() const;                                          // "64M" and the like, in powers of 1024
  Option check(std::string (*fault)(const std::string&)) const;  // empty if it is good
  Option excludes(const char* other) const;
  bool given() const;

 private:
  CLI::Option* option_;
};

class Parser {
 public:
  Parser(const std::string& command, const std::string& about);
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

  // An option that is given twice has the last of its values. `help` is the text to print if it was asked for, otherwise empty.
  Outcome parse(std::vector<std::string> arguments, std::string& help);

 private:
  std::unique_ptr<CLI::App> app_;
  std::string section_ = "Options";
};

// The known name that is meant, if one is near: "did you mean train?"
std::string meant(std::string_view found, const std::vector<std::string>& known);

}  // namespace weft::cli
