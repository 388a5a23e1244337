// A model as bytes, so that a process that knows nothing can be given it. Decoding builds the model
// with the same checked calls as anyone, so bytes from a stranger can be refused but not harm.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "graph/model.h"

namespace weft {

std::vector<std::byte> encode_model(const Model& model);

// Finds an op that is not built in; null: unknown. The op lives as long as the model.
using OpFinder = std::function<const Op*(std::string_view name)>;

// A finished model with the same hash. Errors say where the bytes are wrong, or name the op (and
// version) that is missing here.
Result<std::shared_ptr<Model>> decode_model(std::span<const std::byte> bytes,
                                            const OpFinder& find_user_op);

}  // namespace weft
