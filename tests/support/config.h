// Structs of the C API, ready to be used. Only <weft.h> is known here.
#pragma once

#include <weft.h>

#include <cstddef>

// A configuration with its defaults: defaults(weft_run_config_init).
template <typename T>
T defaults(void (*init)(T*, size_t)) {
  T out;
  init(&out, sizeof out);
  return out;
}

// A struct that the library fills.
template <typename T>
T sized() {
  T out = {};
  out.size = sizeof out;
  return out;
}

// The default optimizer without clipping, which asynchronous schedules do not support.
inline weft_optimizer unclipped() {
  weft_optimizer out = defaults(weft_optimizer_init);
  out.clip = 0;
  return out;
}
