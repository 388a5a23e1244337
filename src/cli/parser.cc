#include "cli/parser.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <sstream>

#include "cli/json.h"
#include "cli/lists.h"

namespace weft::cli {

namespace {

// Prints options as "--lr X (0.001)", without the text that CLI11 adds for the checks.
constexpr const char* kCommon = "Common options";

class HelpFormatter final : public CLI::Formatter {
 public:
  explicit HelpFormatter(const std::string& example) : example_(example) {
    column_width(32);
    label("Positionals", "Arguments");
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    const std::string type = option->get_type_name();
    std::string out = " " + type.substr(0, type.find(':'));
    if (option->get_required()) out += " (required)";
    if (!option->get_default_str().empty()) out += " (" + option->get_default_str() + ")";
    return out;
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    return CLI::Formatter::make_usage(app, name) + "\nExample: " + example_ + "\n";
  }
  // The common options first.
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    std::vector<std::string> groups = app->get_groups();
    std::stable_partition(groups.begin(), groups.end(),
                          [](const std::string& group) { return group == kCommon; });
    std::string out =
        make_description(app) + make_usage(app, app->get_name()) + make_positionals(app);
    for (const std::string& group : groups) {
      const auto options = app->get_options([&group](const CLI::Option* option) {
        return option->get_group() == group && option->nonpositional();
      });
      if (!options.empty()) out += make_group(group, false, options) + "\n";
    }
    return out;
  }

 private:
  const std::string example_;
};

// The edit distance: the number of letters to change, add or remove.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) out.push_back("--" + name);
  return out;
}

std::string unexpected(const std::string& found, const std::string& expected) {
  return "'" + found + "', expected " + expected;
}

std::string out_of_range(const std::string& found, const std::string& expected) {
  return "'" + found + "' is out of range, expected " + expected;
}

// Success only if the whole text is a number. A number that the type cannot hold is
// std::errc::result_out_of_range.
template <typename Number>
std::errc read_number(const std::string& text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  return at == end ? error : std::errc::invalid_argument;
}

constexpr double kMostNumber = std::numeric_limits<double>::max();

// Name of the check for the type, which a check for a range replaces.
constexpr const char* kTypeCheck = "type";

// Name of the check that refuses an empty value.
constexpr const char* kEmptyCheck = "empty";

// An empty value is an error, because it usually comes from a shell variable that is not set.
std::string check_text(const std::string& text) {
  return text.empty() ? "its value is missing" : "";
}

// Name of the check whose description lists the values that completion offers.
constexpr const char* kChoices = "choices";

std::vector<std::string> choices_of(CLI::Option* option) {
  std::vector<std::string> out;
  try {
    std::istringstream words(option->get_validator(kChoices)->get_description());
    for (std::string word; words >> word;) out.push_back(word);
  } catch (const CLI::OptionNotFound&) {}
  return out;
}

template <typename Number>
void expect(CLI::Option* option, const std::string& expected,
            const std::function<bool(Number)>& fits, const char* name = "") {
  const auto check = [expected, fits](const std::string& text) {
    if (text.empty()) return check_text(text);
    Number number = 0;
    const std::errc error = read_number(text, number);
    if (error == std::errc::invalid_argument) return unexpected(text, expected);
    if (error == std::errc() && !std::isfinite(static_cast<double>(number)))
      return unexpected(text, "a finite number");
    return error == std::errc() && fits(number) ? std::string() : out_of_range(text, expected);
  };
  option->check(CLI::Validator(check, "", name));
}

template <typename Number>
void expect_instead(CLI::Option* option, const std::string& expected,
                    const std::function<bool(Number)>& fits) {
  option->get_validator(kTypeCheck)->active(false);
  expect<Number>(option, expected, fits);
}

// The power of 1024 of a unit such as "M", "mb" or "MiB"; -1 if it is not a unit.
int power_of(std::string unit) {
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const char* const units[] = {"", "k", "m", "g", "t"};
  for (int power = 0; power < 5; ++power)
    for (const char* ending : {"", "b", "i", "ib"})
      if (unit == std::string(units[power]) + ending) return power;
  return -1;
}

// Replaces "64M", "64MB" or "64MiB" by the number of bytes.
std::string as_bytes(std::string& text) {
  if (text.empty()) return check_text(text);
  constexpr uint64_t most = INT64_MAX;
  uint64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, count);
  const int power = power_of(std::string(at, end));
  if (error == std::errc::invalid_argument || power < 0)
    return unexpected(text, "bytes, such as 1500000, 64M or 2G");
  if (error == std::errc::result_out_of_range || count > most >> (10 * power))
    return out_of_range(text, "0 to " + std::to_string(most) + " bytes");
  text = std::to_string(count << (10 * power));
  return "";
}

// Reader and Writer convert between a value and its text.
struct Reader {
  const std::string& text;
  bool operator()(std::string* value) const {
    *value = text;
    return true;
  }
  bool operator()(std::vector<std::string>* value) const {
    value->push_back(text);
    return true;
  }
  bool operator()(bool* value) const {
    *value = text == "1";
    return text == "0" || text == "1";
  }
  template <typename Number>
  bool operator()(Number* value) const {
    return read_number(text, *value) == std::errc();
  }
};

struct Writer {
  std::string operator()(const std::string* value) const { return *value; }
  std::string operator()(const double* value) const { return number_text(*value); }
  std::string operator()(const std::vector<std::string>*) const { return ""; }
  template <std::integral T>
  std::string operator()(const T* value) const {
    return std::to_string(*value);
  }
};

// Adds an option of each type.
struct Adder {
  CLI::App& app;
  const std::string &names, &about;
  CLI::Option* operator()(bool* value) const {
    return app.add_flag(names, *value, about)->disable_flag_override();
  }
  CLI::Option* operator()(std::vector<std::string>* value) const {
    return app.add_option(names, *value, about)->allow_extra_args();
  }
  CLI::Option* operator()(std::string* value) const {
    return app.add_option(names, *value, about)
        ->capture_default_str()
        ->take_last()
        ->check(CLI::Validator(check_text, "", kEmptyCheck));
  }
  template <typename Number>
  CLI::Option* operator()(Number* value) const {
    const std::function<void(const std::string&)> take = [value](const std::string& text) {
      read_value(text, value);
    };
    CLI::Option* const option =
        app.add_option_function(names, take, about)->default_str(value_text(value))->take_last();
    std::string expected = "a number";
    if constexpr (std::is_integral_v<Number>) {
      using Limits = std::numeric_limits<Number>;
      expected = "a whole number from " + std::to_string(Limits::min()) + " to " +
                 std::to_string(Limits::max());
    }
    expect<Number>(
        option, expected, [](Number) { return true; }, kTypeCheck);
    return option;
  }
};

// CLI11's message is about an option without its value, or about a flag with one.
std::string misplaced_value(const std::string& message) {
  const std::string name = message.substr(0, message.find_first_of(": "));
  return message.ends_with("missing") ? name + ": its value is missing"
                                      : "--" + name + " takes no value";
}

std::string one_blank_line_between_sections(std::string help) {
  while (help.find("\n\n\n") != std::string::npos) help.erase(help.find("\n\n\n"), 1);
  while (help.ends_with("\n\n")) help.pop_back();
  return help;
}

// Whether the argument is an option of the command: "--steps", "--steps=2", "-q".
bool is_option(const CLI::App& app, const std::string& argument) {
  return argument.starts_with('-') &&
         app.get_option_no_throw(argument.substr(0, argument.find('=')));
}

// Whether the argument is an option of the command that takes a value.
bool takes_value(const CLI::App& app, const std::string& name) {
  const CLI::Option* option = name.starts_with('-') ? app.get_option_no_throw(name) : nullptr;
  return option && option->get_items_expected_min() > 0;
}

// CLI11 takes the next argument as the value of "--name=", but not as that of "--name" and "".
std::vector<std::string> with_empty_values(const CLI::App& app,
                                           const std::vector<std::string>& arguments) {
  std::vector<std::string> out;
  bool are_options = true;
  for (const std::string& argument : arguments) {
    are_options = are_options && argument != "--";
    const std::string name = argument.substr(0, argument.size() - argument.ends_with('='));
    const bool is_empty = are_options && name != argument && takes_value(app, name);
    out.push_back(is_empty ? name : argument);
    if (is_empty) out.emplace_back();
  }
  return out;
}

// Refuses an option whose value would be the next option.
Outcome check_values(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& name = arguments[i];
    if (i + 1 == arguments.size() || !takes_value(app, name)) continue;
    const std::string& next = arguments[i + 1];
    if (is_option(app, next))
      return {kUsage, name + ": its value is missing",
              "if " + next + " is the value: " + name + "=" + next};
  }
  return {};
}

}  // namespace

bool read_value(const std::string& text, Target target) { return std::visit(Reader{text}, target); }
std::string value_text(Target target) { return std::visit(Writer(), target); }

Option Option::type(const char* name) const {
  option_->type_name(name);
  return *this;
}
Option Option::required() const {
  option_->required();
  return *this;
}

Option Option::range(uint32_t least, uint32_t most) const {
  const std::string expected =
      "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  expect_instead<uint64_t>(option_, expected,
                           [least, most](uint64_t n) { return n >= least && n <= most; });
  return *this;
}

Option Option::number(const std::string& expected, bool (*fits)(double)) const {
  expect_instead<double>(option_, expected, fits);
  return *this;
}
Option Option::not_negative() const {
  return number("a number from 0 to " + number_text(kMostNumber), [](double x) { return x >= 0; });
}
Option Option::positive() const {
  return number("a number above 0 and at most " + number_text(kMostNumber),
                [](double x) { return x > 0; });
}

Option Option::one_of(const std::vector<std::string>& names) const {
  option_->check(CLI::Validator(
      [names](const std::string& text) {
        if (std::find(names.begin(), names.end(), text) != names.end()) return std::string();
        return unexpected(text, "one of " + joined(names));
      },
      ""));
  return offers(names);
}

Option Option::offers(const std::vector<std::string>& names) const {
  const auto accept = [](const std::string&) { return std::string(); };
  option_->check(CLI::Validator(accept, joined(names, " "), kChoices));
  return *this;
}

Option Option::may_be_empty() const {
  option_->get_validator(kEmptyCheck)->active(false);
  return *this;
}
Option Option::bytes() const {
  option_->transform(CLI::Validator(as_bytes, ""));
  return *this;
}
Option Option::check(std::string (*fault)(const std::string&)) const {
  option_->check(fault);
  return *this;
}
Option Option::excludes(const char* other) const {
  option_->excludes(other);
  return *this;
}
bool Option::given() const { return option_->count() > 0; }

Parser::Parser(const std::string& command, const std::string& about, const std::string& example)
    : app_(std::make_unique<CLI::App>(about, "weft " + command)) {
  app_->set_help_flag();  // parse() adds it, so that it is the last one
  app_->formatter(std::make_shared<HelpFormatter>(example));
}

Parser::~Parser() = default;

Option Parser::add(const std::string& names, Target target, const std::string& about) {
  CLI::Option* const option = std::visit(Adder{*app_, names, about}, target);
  return Option(option->group(section_));
}

void Parser::common(const std::vector<std::string>& names) {
  for (const std::string& name : names) app_->get_option(name)->group(kCommon);
}

bool OptionRow::takes_files() const {
  return argument || type.find("FILE") != type.npos || type.find("DIR") != type.npos;
}

std::vector<OptionRow> Parser::rows() const {
  std::vector<OptionRow> out;
  for (CLI::Option* option : app_->get_options()) {
    OptionRow& row = out.emplace_back();
    row.argument = option->get_positional();
    if (row.argument) row.names = {option->get_name(true)};
    for (const std::string& name : option->get_lnames()) row.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) row.names.push_back("-" + name);
    row.list = option->get_items_expected_max() > 1;
    if (option->get_type_size() > 0) {
      const std::string type = option->get_type_name();
      row.type = type.substr(0, type.find(':'));
    }
    row.about = option->get_description();
    row.choices = choices_of(option);
  }
  return out;
}

namespace {

// Options of Transformers and TRL with another name.
constexpr std::pair<std::string_view, const char*> kOtherNames[] = {
    {"--gradient-accumulation-steps", "--micro-batches"},
    {"--learning-rate", "--lr"},
    {"--max-length", "--seq-len"},
    {"--max-seq-length", "--seq-len"},
    {"--max-steps", "--steps"},
    {"--num-train-epochs", "--epochs"},
    {"--per-device-train-batch-size", "--micro-batch-size"},
    {"--warmup-ratio", "--warmup"},
    {"--warmup-steps", "--warmup"}};

Outcome unknown_argument(const CLI::App& app) {
  const std::string found = app.remaining().front();
  const std::vector<std::string> known = option_names(app);
  std::string name = found.substr(0, found.find('='));
  std::replace(name.begin(), name.end(), '_', '-');
  std::string hint = meant(found, known);
  for (const auto& [other, option] : kOtherNames)
    if (name == other && std::find(known.begin(), known.end(), option) != known.end())
      hint = "did you mean " + std::string(option) + "?";
  return {kUsage, "unknown argument '" + found + "'", hint};
}

}  // namespace

Outcome Parser::parse(std::vector<std::string> arguments, std::string& help) {
  app_->set_help_flag("-h,--help", "Show this help")->group(section_);
  CLI_TRY(check_values(*app_, arguments));
  arguments = with_empty_values(*app_, arguments);
  std::reverse(arguments.begin(), arguments.end());
  try {
    app_->parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    help = one_blank_line_between_sections(app_->help());
  } catch (const CLI::ExtrasError&) {
    return unknown_argument(*app_);
  } catch (const CLI::RequiredError& error) {
    if (!app_->remaining().empty()) return unknown_argument(*app_);  // it may be misspelled
    return {kUsage, error.what(), ""};
  } catch (const CLI::ArgumentMismatch& error) {
    return {kUsage, misplaced_value(error.what()), ""};
  } catch (const CLI::ParseError& error) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    return {kUsage, text, ""};
  }
  return {};
}

std::string meant(std::string_view found, const std::vector<std::string>& known) {
  std::string best;
  size_t least = (found.size() - std::min(found.find_first_not_of('-'), found.size())) / 2 + 1;
  for (const std::string& name : known)
    if (const size_t d = distance(found, name); d < least) {
      best = name;
      least = d;
    }
  return best.empty() ? "" : "did you mean " + best + "?";
}

}  // namespace weft::cli
