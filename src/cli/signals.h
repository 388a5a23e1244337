// Ctrl-C and termination: the first asks to stop after the step, the second stops at once.
#pragma once

namespace weft::cli {

void watch_signals();
int stop_signal();   // 0, or the number of the signal that asked to stop

}  // namespace weft::cli
