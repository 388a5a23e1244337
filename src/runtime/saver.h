// Saves of a run, one at a time, on a separate thread: steps continue as soon as the bytes of the
// checkpoint have left the ranks, while files are still written and synced.
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
  // Starts the save of such an entry; no other save may be in progress.
  void begin(Step& step);
  const Step* step() const { return step_; }  // the entry whose save is in progress, or null
  // Its data has left the ranks: the next step may begin.
  bool has_left() const;
  // The entry whose save has ended, with its status; null: none.
  Step* take_done(Status& status);
  // No save begins after this call; the save in progress is canceled.
  void stop() { stop_ = true; }

  // Any thread except the loop's, after stop().
  void join() { thread_.reset(); }

 private:
  void save();
  void report(bool done, Status status);

  Run& run_;
  const std::function<void()> wake_;
  Step* step_ = nullptr;
  std::unique_ptr<Thread> thread_;
  std::atomic<bool> stop_ = false;
  mutable std::mutex mutex_;  // of all members below
  bool left_ = false, done_ = false;
  Status status_;
};

}  // namespace weft
