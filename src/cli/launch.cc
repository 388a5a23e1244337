#include "cli/launch.h"

namespace weft::cli {

Outcome launch(const weft_plan* plan, const LaunchOptions& options, RunPtr& out) {
  weft_error err = WEFT_ERROR_INIT;
  weft_run_config config = WEFT_RUN_INIT;
  config.threads = options.threads;
  CLI_CALL(weft_run_start(plan, nullptr, &config, Out(out), &err));
  return {};
}

}  // namespace weft::cli
