// The reader of saved plans: any text is either refused or read, and what was read prints and reads
// back as the same.
#include "io/plan_file.h"

#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto first = weft::parse_plan({reinterpret_cast<const char*>(data), size});
  if (!first.ok()) return 0;
  const auto printed = weft::print_plan(first.value());
  const auto second = printed.ok() ? weft::parse_plan(printed.value())
                                   : weft::Result<weft::PlanFile>(printed.status());
  if (!second.ok() || second.value() != first.value()) {
    std::fprintf(stderr, "printed as\n%s\nbut that reads as %s\n",
                 printed.ok() ? printed.value().c_str() : "nothing",
                 second.ok() ? "another plan" : second.status().text().c_str());
    std::abort();
  }
  return 0;
}
