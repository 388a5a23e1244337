// What the events and log lines of a run say about its processes.
#pragma once

#include <string>

#include "weft.h"

namespace weft::cli {

// The lines for a person.
class MeshEvents {
 public:
  // A line about a process that was refused or left, or an empty string. Refused connections have a
  // line each time their number has doubled.
  std::string text(const weft_event& event);

 private:
  uint64_t reported_ = 0;  // refused connections
};

// Prints the log lines of a run to standard error. `command` must outlive the run.
void log_to_stderr(weft_run_config& config, const char* command);

}  // namespace weft::cli
