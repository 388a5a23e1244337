// A command adds its options to a parser and returns the action to run after parsing. One file per
// command, one row in commands.def.
#pragma once

#include <functional>
#include <memory>

#include "cli/parser.h"

namespace weft::cli {

using Action = std::function<Outcome()>;

#define WEFT_COMMAND(name, group, about, example) Action add_##name(Parser& parser);
#include "cli/commands.def"
#undef WEFT_COMMAND

}  // namespace weft::cli
