// What makes a model an SPMD program: its axes, and what is cut over them.
#pragma once

#include "graph/model.h"

namespace weft {

// What Model::hash() adds for a model with axes.
void hash_axes(const Model& model, Hasher& hasher);

}  // namespace weft
