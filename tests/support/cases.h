// How many cases a test of many takes in this build.
#pragma once

namespace weft::test {

// Every one, or with sanitizers, which make them several times slower, every third.
#ifdef WEFT_SANITIZED
constexpr int kEvery = 3;
#else
constexpr int kEvery = 1;
#endif

}  // namespace weft::test
