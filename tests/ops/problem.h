// A row of cases.cc with numbers in it.
#pragma once

#include "ops/cases.h"
#include "ops/runner.h"

namespace weft::test {

// The built-in ops, those that only sharded models have, and one of the caller.
std::vector<const Op*> tested_ops();
// Null: there is no such op.
const Op* find_tested_op(const std::string& name);

// The same numbers each time. A row that the op refuses is a failure of the test and leaves `op`
// null.
Problem problem_of(const OpCase& c);

}  // namespace weft::test
