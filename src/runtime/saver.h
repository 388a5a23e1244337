// Saves of a run, one at a time, on a thread of their own: steps go on as soon as the checkpoint's
// bytes have left the ranks, while files are still written and synced.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "loop/thread.h"
#include "runtime/run.h"

namespace weft {

class Saver {
 public:
  // `wake` is called from any thread after has_left() or take_done() has changed.
  Saver(Run& run, std::function<void()> wake) : run_(run), wake_(std::move(wake)) {}

  // --- loop thread
  // Starts the save of a step that is one; while there is no other.
  void begin(Step& step);
  const Step* step() const { return step_; }  // whose save is under way, or null
  // What it saves has left the ranks: the next step may begin.
  bool has_left() const;
  // The step whose save has ended, with its status; null: none.
  Step* take_done(Status& status);
  // Nothing begins from here on; what is being written is given up.
  void stop() { stop_ = true; }

  // Any thread but the loop's, after stop().
  void join() { thread_.reset(); }

 private:
  void save();
  void tell(bool done, Status status);

  Run& run_;
  const std::function<void()> wake_;
  Step* step_ = nullptr;
  std::unique_ptr<Thread> thread_;
  std::atomic<bool> stop_ = false;
  mutable std::mutex mutex_;  // all below
  bool left_ = false, done_ = false;
  Status status_;
};

}  // namespace weft
