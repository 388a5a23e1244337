// The kernels that multiply matrices, for a person.
#pragma once

#include <string>
#include <string_view>

namespace weft::cli {

std::string kernels_text();
// One line on standard error if this processor could do better.
void warn_of_slow_kernels(std::string_view command);

}  // namespace weft::cli
