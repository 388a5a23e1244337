// SIGINT, SIGTERM and SIGHUP: the first signal asks to stop after the step, the second stops at
// once, unless it is SIGHUP: the shell and the kernel both send one when a terminal hangs up.
#pragma once

#include <span>
#include <string>

#include "weft.h"

namespace weft::cli {

void watch_signals();
bool parent_ended();  // see CancelOnSignal::watch_parent()
int stop_signal();    // 0, or the number of the signal that asked to stop
// For work during which stop_signal() is not read: the first signal prints this text, which must
// outlive the work. Null: it prints nothing.
void answer_signal_with(const char* text);

// While an object of this class exists, the second signal removes the socket of the mesh, if the
// library has made a directory for it. Without that signal, the library removes it. There may be
// only one object at a time.
class SocketFiles {
 public:
  explicit SocketFiles(const weft_mesh* mesh);
  ~SocketFiles();
  void remove() const;  // in a signal handler
  SocketFiles(const SocketFiles&) = delete;
  SocketFiles& operator=(const SocketFiles&) = delete;

 private:
  std::string directory_, socket_, lock_;
};

// While an object of this class exists, the first signal cancels the mesh, and so does the end of a
// watched process. Other children of this process are ignored. There may be only one object at a
// time.
class CancelOnSignal {
 public:
  explicit CancelOnSignal(weft_mesh* mesh);
  ~CancelOnSignal();
  // Watches these processes, of which some may have ended already; 0 is none. The list must outlive
  // this object and must not change.
  void watch(std::span<const int> pids);
  // Watches the parent of this process, which may have ended already.
  void watch_parent(int pid) const;
  // From now on: all ranks get the same signals from their launcher, and the first one ends the run
  // at rank 0, and here only if the run has not ended 30 s later.
  void leave_to_rank_zero() const;
  CancelOnSignal(const CancelOnSignal&) = delete;
  CancelOnSignal& operator=(const CancelOnSignal&) = delete;
};

}  // namespace weft::cli
