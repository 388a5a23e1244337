// The parts of an SPMD program: its axes, and the tensors that are cut over them.
#pragma once

#include "graph/model.h"

namespace weft {

// The part of Model::hash() for a model with axes.
void hash_axes(const Model& model, Hasher& hasher);

}  // namespace weft
