// The reader of schedule files: any text is either refused or read, and what was read prints and
// reads back as the same schedule.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "schedule/schedule.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto first = weft::parse_schedule({reinterpret_cast<const char*>(data), size});
  if (!first.ok()) return 0;
  const std::string text = first.value().text();
  const auto second = weft::parse_schedule(text);
  if (!second.ok() || second.value() != first.value()) {
    std::fprintf(stderr, "printed as\n%sbut that reads as\n%s", text.c_str(),
                 second.ok() ? second.value().text().c_str() : second.status().text().c_str());
    std::abort();
  }
  return 0;
}
