// What a command is: options on a parser, and something to do once they are read. One file per command, one row in commands.def.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "cli/outcome.h"

namespace weft::cli {

using Action = std::function<Outcome()>;

#define WEFT_COMMAND(name, group, about) Action add_##name(CLI::App& app);
#include "cli/commands.def"
#undef WEFT_COMMAND

}  // namespace weft::cli
