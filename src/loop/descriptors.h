// A library that ends the process where it finds no descriptor is asked for nothing before this has looked.
#pragma once

#include <string>

#include "base/result.h"

namespace weft {

// Whether the process may open that many descriptors now. `what` begins the text of the failure.
Status spare_descriptors(int count, const std::string& what);

}  // namespace weft
