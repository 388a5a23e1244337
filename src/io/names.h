// Checks of the names of tensors and files, and comparison of two lists.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tensor/shape.h"

namespace weft {

struct TensorSpec {
  std::string name;
  Desc desc;
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// "a, b, c", and the number of further items of a longer list.
std::string listed(const std::vector<std::string>& items);

// A file name that stays in its directory: letters, digits, '.', '_', '-', not starting with a dot.
bool plain_file_name(std::string_view name);

// 1 to 512 bytes of UTF-8 without NUL, and not the name that safetensors reserves.
Status check_tensor_name(std::string_view name);

// The same names, each with the same dtype and shape, in any order. Otherwise a failure with the
// numbers of missing, surplus and different tensors, and the first names of each.
Status compare_tensors(const std::string& where, const std::vector<TensorSpec>& expected,
                       const std::vector<TensorSpec>& found);

}  // namespace weft
