// The files that `weft report` shows: logs, plans and traces, as JSON for the page.
#pragma once

#include <string>
#include <vector>

#include "cli/outcome.h"

namespace weft::cli {

// Adds the JSON object of a file to `out`: {"name", "kind": "log", "plan", "prediction" or "trace",
// "data"}. Of a trace, only one training step is kept.
Outcome read_report_input(const std::string& path, std::vector<std::string>& out);

}  // namespace weft::cli
