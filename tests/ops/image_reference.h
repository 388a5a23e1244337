// The plain forward of the ops that move a window over rows or images.
#pragma once

#include "ops/reference.h"

namespace weft::test {

std::vector<double> ref_conv1d(const RefCall& c);
std::vector<double> ref_conv2d(const RefCall& c);
std::vector<double> ref_average_pool(const RefCall& c);
std::vector<double> ref_max_pool(const RefCall& c);

}  // namespace weft::test
