// A model as bytes, for processes that have no model. Decoding uses the same checked functions as
// programs; bytes that are not valid are refused and cause no harm.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "graph/model.h"

namespace weft {

std::vector<std::byte> encode_model(const Model& model);

// Finds an op that is not built in, or null. The op lives as long as the model.
using OpFinder = std::function<const Op*(std::string_view name)>;

// A finished model with the same hash. Errors contain the position of the problem, or the op and
// version that this process does not have.
Result<std::shared_ptr<Model>> decode_model(std::span<const std::byte> bytes,
                                            const OpFinder& find_user_op);

}  // namespace weft
