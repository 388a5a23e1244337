#include "cli/kernels.h"

#include "cli/console.h"
#include "weft.h"

namespace weft::cli {

std::string kernels_text() {
  std::string text(weft_kernels(nullptr, 0, nullptr), 0);
  weft_kernels(text.data(), text.size(), nullptr);
  text.resize(text.empty() ? 0 : text.size() - 1);
  return text;
}

void warn_of_slow_kernels(std::string_view command) {
  uint32_t slow = 0;
  weft_kernels(nullptr, 0, &slow);
  if (slow)
    complain(command, "matrix products are slow: " + kernels_text(),
             "BLIS_ARCH_TYPE chooses the kernels, if it is set; see weft(1)");
}

}  // namespace weft::cli
