// A row of cases.cc with numbers in it.
#pragma once

#include "ops/cases.h"
#include "ops/runner.h"

namespace weft::test {

// The same numbers each time. A row that the op refuses is a failure of the test and leaves `op`
// null.
Problem problem_of(const OpCase& c);

}  // namespace weft::test
