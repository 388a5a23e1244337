// What most tests read, as base/precompiled.h is for the library. Some suites see only the public
// header, so this path is relative.
#include <gtest/gtest.h>

#include "../../src/base/precompiled.h"
