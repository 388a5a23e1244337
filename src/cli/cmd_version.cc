// weft version
#include <memory>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/kernels.h"
#include "weft.h"

namespace weft::cli {

namespace {

Outcome show_version(bool json) {
  if (json) {
    uint32_t slow = 0;
    weft_kernels(nullptr, 0, &slow);
    print_line(JsonObject()
                   .add("version", weft_version())
                   .add("kernels", kernels_text())
                   .add("slow", slow != 0)
                   .text());
    return {};
  }
  print_line(std::string("weft ") + weft_version());
  print_line(kernels_text());
  warn_of_slow_kernels("version");
  return {};
}

}  // namespace

Action add_version(Parser& parser) {
  auto json = std::make_shared<bool>(false);
  parser.add("--json", *json, "Print one JSON object");
  return [json] { return show_version(*json); };
}

}  // namespace weft::cli
