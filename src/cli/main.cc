// weft: the command. Written against <weft.h> alone.
#include <algorithm>
#include <csignal>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/console.h"

namespace weft::cli {

namespace {

struct Row {
  const char *name, *group, *about;
  Action (*add)(CLI::App&);
};

constexpr Row kCommands[] = {
#define WEFT_COMMAND(name, group, about) {#name, group, about, add_##name},
#include "cli/commands.def"
#undef WEFT_COMMAND
};

std::string overview() {
  std::string out =
      "weft trains and runs neural networks pipeline-parallel, across threads, processes and machines.\n"
      "\n"
      "  weft train gpt-nano --data book.txt --ranks 2 --checkpoint out\n"
      "  weft generate out --prompt 'Call me' --tokens 200\n";
  const char* group = "";
  for (const Row& row : kCommands) {
    if (std::string_view(group) != row.group) ((out += "\n") += group = row.group) += ":\n";
    std::string name = row.name;
    name.resize(10, ' ');
    out += "  " + name + row.about + "\n";
  }
  return out + "\nweft help COMMAND, or weft COMMAND --help, lists the options; man weft-COMMAND tells more.\n";
}

// Letters to change, add or remove to make one of the other.
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

// The known name that is meant, if one is near.
std::string meant(std::string_view found, const std::vector<std::string>& known) {
  std::string best;
  size_t least = found.size() / 2 + 1;
  for (const std::string& name : known)
    if (const size_t d = distance(found, name); d < least) best = name, least = d;
  return best.empty() ? "" : "did you mean " + best + "?";
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) out.push_back("--" + name);
  return out;
}

int end(const std::string& command, const Outcome& outcome) {
  if (!outcome.text.empty()) complain(command, outcome.text, outcome.hint);
  if (outcome.ok() && stdout_failed()) {
    complain(command, "standard output could not be written");
    return kFailed;
  }
  return outcome.exit;
}

int usage(const std::string& command, const std::string& text, const std::string& hint) {
  return end(command, {kUsage, text, hint.empty() ? "see weft " + (command.empty() ? "help" : command + " --help") : hint});
}

// Options as "--lr X" and their default, without what CLI11 adds for the checks.
class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(32); }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    const std::string type = option->get_type_name();
    std::string out = " " + type.substr(0, type.find(':'));
    if (option->get_required()) out += " (required)";
    if (!option->get_default_str().empty()) out += " (" + option->get_default_str() + ")";
    return out;
  }
};

int run_command(const Row& row, std::vector<std::string> arguments) {
  CLI::App app(row.about, std::string("weft ") + row.name);
  app.set_help_flag("-h,--help", "Show this help");
  app.formatter(std::make_shared<HelpFormatter>());
  const Action action = row.add(app);
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    print_text(app.help());
    return end(row.name, {});
  } catch (const CLI::ExtrasError& error) {
    const std::string text = error.what(), found = text.substr(text.rfind(' ') + 1);
    return usage(row.name, "unknown argument '" + found + "'", meant(found, option_names(app)));
  } catch (const CLI::ParseError& error) {
    std::string text = error.what();
    for (char& c : text)
      if (c == '\n') c = ' ';
    return usage(row.name, text, "");
  }
  return end(row.name, action());
}

const Row* find_command(std::string_view name) {
  for (const Row& row : kCommands)
    if (name == row.name) return &row;
  return nullptr;
}

int run(std::vector<std::string> arguments) {
  // Options before the command are as good as behind it.
  const auto at = std::find_if(arguments.begin(), arguments.end(), [](const std::string& a) { return a.empty() || a[0] != '-'; });
  if (at == arguments.end()) {
    if (!arguments.empty() && arguments[0] == "--version") return run_command(*find_command("version"), {});
    if (!arguments.empty() && arguments[0] != "-h" && arguments[0] != "--help") return usage("", "no command, but '" + arguments[0] + "'", "");
    print_text(overview());
    return end("", {});
  }
  const std::string name = *at;
  arguments.erase(at);
  if (name == "help") {
    if (arguments.empty()) return run({});
    arguments.push_back("--help");
    return run(std::move(arguments));
  }
  if (const Row* row = find_command(name)) return run_command(*row, std::move(arguments));
  std::vector<std::string> known;
  for (const Row& row : kCommands) known.push_back(row.name);
  return usage("", "unknown command '" + name + "'", meant(name, known));
}

}  // namespace

}  // namespace weft::cli

int main(int argc, char** argv) {
  // A reader that goes away is told by write(), so that a checkpoint can still be written.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return weft::cli::run({argv + 1, argv + argc});
  } catch (const std::bad_alloc&) {
    weft::cli::complain("", "out of memory");
    return weft::cli::kResource;
  } catch (const std::exception& error) {
    weft::cli::complain("", std::string("internal error: ") + error.what());
    return weft::cli::kFailed;
  }
}
