// The reader of config.json: any text is either refused or a model, which is the same after it has
// been written and read again.
#include <cstdio>
#include <cstdlib>

#include "io/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model = weft::parse_model_config({reinterpret_cast<const char*>(data), size});
  if (!model.ok()) return 0;
  const auto written = weft::print_model_config(model.value());
  const auto again = written.ok() ? weft::parse_model_config(written.value()) : written;
  if (again.ok() && again.value() == model.value()) return 0;
  std::fprintf(stderr, "%s\n%s\n", model.value().c_str(), again.status().text().c_str());
  std::abort();
}
