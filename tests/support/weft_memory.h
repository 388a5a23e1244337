// Memory that weft itself takes, told from that of its libraries: weft allocates in C++, so
// operator new is replaced, and the module that called it is read from the stack. What the C++
// library allocates on weft's behalf is weft's; what ZeroMQ allocates is not.
#pragma once

#include <cstdint>

namespace test::memory {

// Of weft's own, in all threads.
int64_t live();  // allocated and not freed yet

// From the n-th allocation on, counted from here from 0, `count` of them fail.
void fail(int64_t n, int64_t count);
// Ends that; says whether one failed.
bool stop_failing();

}  // namespace test::memory
