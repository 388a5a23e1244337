// The name of the kernels of matrix products.
#pragma once

#include <string>
#include <string_view>

namespace weft::cli {

std::string kernels_text();
// Prints a warning if the processor could run faster kernels.
void warn_of_slow_kernels(std::string_view command);

}  // namespace weft::cli
