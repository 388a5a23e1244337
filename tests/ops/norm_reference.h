// The plain forward of norms.
#pragma once

#include "ops/reference.h"

namespace weft::test {

std::vector<double> ref_batch_norm(const RefCall& c);
std::vector<double> ref_layer_norm(const RefCall& c);
std::vector<double> ref_rms_norm(const RefCall& c);

}  // namespace weft::test
