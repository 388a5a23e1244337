// A thread of weft: named, deaf to signals but those of its own faults (they are the host's), at a
// lower priority if asked. Joined by its destructor.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"

namespace weft {

class Thread {
 public:
  // `niceness` is added to the process's own; it is a wish, the system may refuse it. A name beyond
  // 15 bytes is cut.
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

// What compute threads add to their niceness: on a machine whose processors are all busy, a loop or
// transport thread would else wait a whole scheduling slice (3 ms) for them; so a round trip takes
// 0.2 ms.
constexpr int kComputeNice = 10;

}  // namespace weft
