// The reader of model.safetensors.index.json: any text is either refused, or names files that stay
// in their directory.
#include <cstdio>
#include <cstdlib>

#include "io/weights.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto index = weft::parse_weights_index({reinterpret_cast<const char*>(data), size});
  if (!index.ok()) return 0;
  for (const auto& [tensor, file] : index.value())
    if (tensor.empty() || file.empty() || file.find('/') != file.npos || file.front() == '.') {
      std::fprintf(stderr, "tensor '%s' is in file '%s'\n", tensor.c_str(), file.c_str());
      std::abort();
    }
  return 0;
}
