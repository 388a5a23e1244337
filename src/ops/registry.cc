// The table of built-in ops. There is no other registration: every op is a row of ops.def.
#include <array>

#include "ops/op.h"

namespace weft {

#define WEFT_OP(name) const Op& name##_op();
#include "ops/ops.def"
#undef WEFT_OP

std::span<const Op* const> all_ops() {
  static const std::array table = {
#define WEFT_OP(name) &name##_op(),
#include "ops/ops.def"
#undef WEFT_OP
  };
  return table;
}

const Op* find_op(std::string_view name) {
  for (const Op* op : all_ops())
    if (op->name() == name) return op;
  for (const Op* op : all_collectives())
    if (op->name() == name) return op;
  return nullptr;
}

}  // namespace weft
