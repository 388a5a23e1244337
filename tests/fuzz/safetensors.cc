// The reader of safetensors headers: any file is either refused, or each byte after its header
// belongs to one tensor, and the header that weft prints for it reads back as the same.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "io/safetensors.h"

namespace {

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const weft::SafetensorsLimits limits;
  if (size < 8) return 0;
  const auto count = weft::safetensors_header_bytes(data, size, limits);
  if (!count.ok()) return 0;
  const std::string_view json(reinterpret_cast<const char*>(data) + 8,
                              static_cast<size_t>(count.value()));
  const uint64_t data_bytes = size - 8 - count.value();
  const auto first = weft::parse_safetensors_header(json, data_bytes, limits);
  if (!first.ok()) return 0;
  uint64_t next = 0;
  for (const weft::SafetensorsEntry& entry : first.value().entries) {
    if (entry.begin != next || entry.end < entry.begin)
      give_up("tensor '" + entry.name + "' is out of place");
    if (const auto spec = entry.spec();
        spec.ok() && spec.value().desc.bytes() != entry.end - entry.begin)
      give_up("tensor '" + entry.name + "' has not the size of its shape");
    next = entry.end;
  }
  if (next != data_bytes) give_up("bytes without a tensor");
  const std::string printed = weft::print_safetensors_header(first.value());
  const auto second =
      weft::parse_safetensors_header(std::string_view(printed).substr(8), data_bytes, limits);
  if (!second.ok())
    give_up("printed as\n" + printed.substr(8) + "\nwhich is refused: " + second.status().text());
  if (weft::print_safetensors_header(second.value()) != printed)
    give_up("reads back as another:\n" + printed.substr(8));
  return 0;
}
