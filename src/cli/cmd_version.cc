// weft version
#include <memory>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/json.h"

namespace weft::cli {

namespace {

Outcome show_version(bool json) {
  uint32_t slow = 0;
  std::string kernels(weft_kernels(nullptr, 0, nullptr), 0);
  weft_kernels(kernels.data(), kernels.size(), &slow);
  kernels.resize(kernels.empty() ? 0 : kernels.size() - 1);
  if (json) {
    print_line(JsonObject().add("version", weft_version()).add("kernels", kernels).add("slow", slow != 0).text());
    return {};
  }
  print_line(std::string("weft ") + weft_version());
  print_line(kernels);
  if (slow) complain("version", "matrix products are slow: " + kernels, "BLIS_ARCH_TYPE chooses the kernels, if it is set; see weft(1)");
  return {};
}

}  // namespace

Action add_version(Parser& parser) {
  auto json = std::make_shared<bool>(false);
  parser.add("--json", *json, "One JSON object instead of text");
  return [json] { return show_version(*json); };
}

}  // namespace weft::cli
