// weft: the command. It uses only <weft.h>.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/console.h"

namespace weft::cli {

namespace {

struct Row {
  const char *name, *group, *about, *example;
  Action (*add)(Parser&);
};

constexpr Row kCommands[] = {
#define WEFT_COMMAND(name, group, about, example) {#name, group, about, example, add_##name},
#include "cli/commands.def"
#undef WEFT_COMMAND
};

std::string overview() {
  std::string out =
      "weft trains and runs neural networks in parallel on CPUs, across threads, processes and "
      "machines.\n"
      "\n"
      "  weft train gpt-nano --data book.txt --ranks 2 --checkpoint out\n"
      "  weft generate out --prompt 'Call me' --tokens 200\n";
  const char* group = "";
  for (const Row& row : kCommands) {
    if (std::string_view(group) != row.group) {
      group = row.group;
      out += std::string("\n") + group + ":\n";
    }
    std::string name = row.name;
    name.resize(12, ' ');
    out += "  " + name + row.about + "\n";
  }
  return out +
         "\n'weft help COMMAND' lists the options of a command, and 'man weft-COMMAND' describes "
         "them.\n";
}

int end(const std::string& command, const Outcome& outcome) {
  if (!outcome.text.empty()) complain(command, outcome.text, outcome.hint);
  if (outcome.ok() && stdout_failed()) {
    complain(command, stdout_fault());
    return kFailed;
  }
  return outcome.exit;
}

int usage(const std::string& command, const std::string& text, const std::string& hint) {
  return end(command, {kUsage, text,
                       hint.empty() ? "see weft " + (command.empty() ? "help" : command + " --help")
                                    : hint});
}

int run_command(const Row& row, std::vector<std::string> arguments) {
  Parser parser(row.name, row.about, row.example);
  const Action action = row.add(parser);
  std::string help;
  if (const Outcome parsed = parser.parse(std::move(arguments), help); !parsed.ok())
    return usage(row.name, parsed.text, parsed.hint);
  if (help.empty()) return end(row.name, action());
  print_text(help);
  return end(row.name, {});
}

const Row* find_command(std::string_view name) {
  for (const Row& row : kCommands)
    if (name == row.name) return &row;
  return nullptr;
}

int run(std::vector<std::string> arguments) {
  // Options may precede the command.
  const auto at = std::find_if(arguments.begin(), arguments.end(),
                               [](const std::string& a) { return a.empty() || a[0] != '-'; });
  if (at == arguments.end()) {
    if (arguments.size() == 1 && arguments[0] == "--version")
      return run_command(*find_command("version"), {});
    if (!arguments.empty() && arguments[0] != "-h" && arguments[0] != "--help")
      return usage("", "expected a command, found '" + arguments[0] + "'", "");
    print_text(overview());
    return end("", {});
  }
  const std::string name = *at;
  if (arguments[0] == "--version")
    return usage("", "--version takes no command, found '" + name + "'", "");
  arguments.erase(at);
  if (name == "help") {
    if (arguments.empty()) return run({});
    if (arguments.size() > 1)
      return usage("", "help takes one command, found also '" + arguments[1] + "'", "");
    arguments.push_back("--help");
    return run(std::move(arguments));
  }
  if (const Row* row = find_command(name)) return run_command(*row, std::move(arguments));
  std::vector<std::string> known;
  for (const Row& row : kCommands) known.push_back(row.name);
  return usage("", "unknown command '" + name + "'", meant(name, known));
}

// If the command starts without a standard descriptor, the next socket would take its number and
// receive the output. /dev/null is opened for reading only, so that writing fails.
void fill_standard_descriptors() {
  int fd = open("/dev/null", O_RDONLY);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDONLY);
  if (fd >= 0) close(fd);
}

// Each rank needs sockets. The default limit is for programs that call select(), which this one
// does not.
void allow_open_files() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int start(int argc, char** argv) {
  fill_standard_descriptors();
  allow_open_files();
  return run({argv + 1, argv + argc});
}

}  // namespace weft::cli

int main(int argc, char** argv) {
  // write() then reports a closed pipe or a file too large, so that a checkpoint can still be
  // saved.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return weft::cli::start(argc, argv);
  } catch (const std::bad_alloc&) {
    weft::cli::complain("", "out of memory");
    return weft::cli::kResource;
  } catch (const std::exception& error) {
    weft::cli::complain("", std::string("internal error: ") + error.what());
    return weft::cli::kFailed;
  }
}
