// weft completion: scripts for bash and zsh, from the tables that the help is made from.
#include "cli/command.h"
#include "cli/console.h"
#include "cli/lists.h"

namespace weft::cli {

namespace {

struct Command {
  std::string name, about;
  std::vector<OptionRow> rows;
};

std::vector<Command> all_commands() {
  std::vector<Command> out;
#define WEFT_COMMAND(name, group, about, example) \
  {                                               \
    Parser parser(#name, about, example);         \
    (void)add_##name(parser);                     \
    out.push_back({#name, about, parser.rows()}); \
  }
#include "cli/commands.def"
#undef WEFT_COMMAND
  OptionRow help;
  help.names = {"--help", "-h"};
  help.about = "Show this help";
  for (Command& command : out) command.rows.push_back(help);
  return out;
}

std::string command_names(const std::vector<Command>& commands) {
  std::string out;
  for (const Command& command : commands) out += command.name + " ";
  return out + "help";
}

// A case for the values of the option before the word. An option with files falls through to the
// completion of the shell itself.
std::string bash_values(const OptionRow& row) {
  const std::string label = "        " + joined(row.names, " | ") + ") ";
  if (!row.choices.empty()) return label + "values='" + joined(row.choices, " ") + "' ;;\n";
  if (row.takes_files()) return label + "return ;;\n";
  return label + "compopt +o default +o bashdefault 2>/dev/null; return ;;\n";
}

std::string bash_command(const Command& command) {
  std::string options, values, arguments;
  for (const OptionRow& row : command.rows) {
    if (row.argument) {
      if (!row.choices.empty()) arguments += joined(row.choices, " ") + " ";
      continue;
    }
    options += joined(row.names, " ") + " ";
    if (!row.type.empty()) values += bash_values(row);
  }
  std::string out = "    " + command.name + ")\n";
  if (!values.empty()) out += "      case $before in\n" + values + "      esac\n";
  return out + "      options='" + options + "' arguments='" + arguments + "'\n      ;;\n";
}

std::string bash_script(const std::vector<Command>& commands) {
  std::string out =
      "# Completion of weft for bash, printed by 'weft completion bash'.\n"
      "_weft() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
      "  local options= arguments= values=\n"
      "  COMPREPLY=()\n"
      "  # Bash splits --option=value at the equals sign.\n"
      "  if [[ $word == = ]]; then\n"
      "    word=\n"
      "  elif [[ $before == = ]]; then\n"
      "    before=${COMP_WORDS[COMP_CWORD - 2]}\n"
      "  fi\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W '" +
      command_names(commands) +
      "' -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case ${COMP_WORDS[1]} in\n"
      "    help) values='" +
      command_names(commands) + "' ;;\n";
  for (const Command& command : commands) out += bash_command(command);
  return out +
         "  esac\n"
         "  if [[ -z $values ]]; then\n"
         "    if [[ $word == -* ]]; then values=$options; else values=$arguments; fi\n"
         "  fi\n"
         "  COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n"
         "}\n"
         "complete -o bashdefault -o default -F _weft weft\n";
}

// Text in single quotes; in the description of an option brackets and colons have a meaning.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const OptionRow& row) {
  if (row.choices.empty()) return row.takes_files() ? "_files" : " ";
  const std::string words = joined(row.choices, " ");
  return row.argument ? "{compadd -- " + words + "; _files}" : "(" + words + ")";
}

std::string zsh_command(const Command& command) {
  std::string out = "    " + command.name + ")\n      _arguments";
  for (const OptionRow& row : command.rows) {
    const std::string type = row.type.empty() ? row.names[0] : row.type;
    if (row.argument) {
      out += " \\\n        '" + std::string(row.list ? "*" : "") + ":" + zsh_text(type) + ":" +
             zsh_action(row) + "'";
      continue;
    }
    for (const std::string& name : row.names) {
      const bool value = !row.type.empty();
      out += " \\\n        '" + name + (value && name.starts_with("--") ? "=" : "") + "[" +
             zsh_text(row.about) + "]" +
             (value ? ":" + zsh_text(row.type) + ":" + zsh_action(row) : "") + "'";
    }
  }
  return out + "\n      ;;\n";
}

std::string zsh_script(const std::vector<Command>& commands) {
  std::string out =
      "#compdef weft\n"
      "# Completion of weft for zsh, printed by 'weft completion zsh'.\n"
      "_weft() {\n"
      "  local -a commands=(\n";
  for (const Command& command : commands)
    out += "    '" + command.name + ":" + zsh_text(command.about) + "'\n";
  out +=
      "    'help:show the options of a command'\n"
      "  )\n"
      "  if ((CURRENT == 2)); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  shift words\n"
      "  ((CURRENT--))\n"
      "  case $words[1] in\n"
      "    help) _describe command commands ;;\n";
  for (const Command& command : commands) out += zsh_command(command);
  return out +
         "  esac\n"
         "}\n"
         "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _weft \"$@\"; else compdef _weft "
         "weft; fi\n";
}

}  // namespace

Action add_completion(Parser& parser) {
  auto shell = std::make_shared<std::string>();
  parser.add("SHELL", *shell, "The shell: bash or zsh").required().type("").one_of({"bash", "zsh"});
  return [shell]() -> Outcome {
    const std::vector<Command> commands = all_commands();
    print_text(*shell == "bash" ? bash_script(commands) : zsh_script(commands));
    return {};
  };
}

}  // namespace weft::cli
