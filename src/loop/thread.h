// A thread of weft: it has a name, and blocks all signals except those of its own faults. Its
// destructor joins it. It has the priority of the thread that starts it: compute threads of lower
// priority would get nearly no time beside other busy processes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"

namespace weft {

class Thread {
 public:
  // A name is truncated to 15 bytes.
  static Result<std::unique_ptr<Thread>> start(const std::string& name, std::function<void()> body);
  ~Thread();
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

 private:
  struct State;
  explicit Thread(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Whether the process can start this number of threads, for a library that would end the process.
// `what` is the beginning of the error.
Status spare_threads(int count, const std::string& what);

}  // namespace weft
