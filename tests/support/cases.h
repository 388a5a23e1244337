// How many cases a test of many takes in this build.
#pragma once

namespace weft::test {

// Every one, or with sanitizers, which make them several times slower, every seventh: seven has
// no common factor with the two to six settings that tests take in turn.
#ifdef WEFT_SANITIZED
constexpr int kEvery = 7;
#else
constexpr int kEvery = 1;
#endif

}  // namespace weft::test
