// A thread of weft: it has a name, blocks all signals except those of its own faults, and has a
// lower priority if requested. Its destructor joins it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"

namespace weft {

class Thread {
 public:
  // `niceness` is added to that of the process; the system may refuse it. A name is truncated to 15
  // bytes.
  static Result<std::unique_ptr<Thread>> start(const std::string& name, int niceness,
                                               std::function<void()> body);
  ~Thread();
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

 private:
  struct State;
  explicit Thread(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The additional niceness of compute threads. If all processors are busy, a loop or transport
// thread would otherwise wait a whole scheduling slice (3 ms) for them; with it, a round trip takes
// 0.2 ms.
constexpr int kComputeNice = 10;

}  // namespace weft
