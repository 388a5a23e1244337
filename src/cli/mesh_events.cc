#include "cli/mesh_events.h"

#include "cli/console.h"

namespace weft::cli {

std::string MeshEvents::text(const weft_event& event) {
  if (event.kind == WEFT_EVENT_LEFT)
    return "the process of rank " + std::to_string(event.rank) +
           " left before all ranks had joined";
  if (event.kind != WEFT_EVENT_REFUSED || event.count < 2 * reported_) return "";
  reported_ = event.count;
  return "refused " + std::string(event.text) +
         (event.count > 1 ? " (" + std::to_string(event.count) + " in all)" : "");
}

void log_to_stderr(weft_run_config& config, const char* command) {
  config.log_level = WEFT_LOG_DEBUG;
  config.log_payload = const_cast<char*>(command);
  config.log = [](weft_log_level, const char* text, void* payload) {
    complain(static_cast<const char*>(payload), text);
  };
}

}  // namespace weft::cli
