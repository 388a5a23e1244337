// Ctrl-C and termination: the first asks to stop after the step, the second stops at once.
#pragma once

#include <span>

#include "weft.h"

namespace weft::cli {

void watch_signals();
int stop_signal();  // 0, or the number of the signal that asked to stop

// While it lives there is no step to finish, and the first signal ends what waits on the mesh; so does the end of a process that is watched.
// Other children of this process are not ours. One at a time.
class CancelOnSignal {
 public:
  explicit CancelOnSignal(weft_mesh* mesh);
  ~CancelOnSignal();
  // From here the end of one of these processes counts, and if it has come already; 0: none. They outlive it and do not change.
  void watch(std::span<const int> pids);
  CancelOnSignal(const CancelOnSignal&) = delete;
  CancelOnSignal& operator=(const CancelOnSignal&) = delete;
};

}  // namespace weft::cli
