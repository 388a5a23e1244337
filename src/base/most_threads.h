// The maximum number of compute threads of a rank.
#pragma once

namespace weft {

constexpr int kMostThreads = 1024;

}  // namespace weft
