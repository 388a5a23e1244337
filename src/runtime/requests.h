// What rank 0 asks of the ranks in other processes. Several requests may be under way at once, of
// several ranks; each rank answers in the order in which it was asked.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "loop/loop.h"
#include "runtime/rpc.h"

namespace weft {

class Requests {
 public:
  // One request, and its answer.
  struct Slot {
    int32_t rank = 0;
    uint32_t type = 0;
    rpc::Request request;
    std::vector<std::byte> bytes;  // what the rank answered
    Status status;
    size_t lane = 0, tensor = 0;  // used only by the caller
  };
  // Both are called on the loop thread.
  using Send = std::function<void(int32_t rank, uint32_t type, std::span<const std::byte> bytes)>;
  using Late = std::function<void(int32_t rank)>;  // it did not answer in time: ends the run

  Requests(Loop& loop, const Plan& plan, int64_t answer_timeout_ms, Send send, Late late);

  // --- any thread but the loop's, one at a time
  // The slot is in use until take() has returned it or forget() was called.
  Status ask(Slot& slot);
  // The answer that came first; null: none is there yet, if `wait` is false. Fails with the run.
  Result<Slot*> take(bool wait);
  bool all_answered() const;  // though not all may have been taken
  // The slots that are under way are not used any more. Answers that are still to come could not be
  // told from those to later requests, so there are none.
  void forget();

  // --- loop thread
  void answered(int32_t rank, uint32_t type, std::span<const std::byte> bytes);
  void fail(const Status& status);
  // What the rank has not answered yet, to be added to a message about it; empty: nothing.
  std::string asked_of(int32_t rank) const;

 private:
  bool has_news() const { return !answered_.empty() || !failure_.ok(); }
  Status end_late(std::unique_lock<std::mutex>& lock);

  Loop& loop_;
  const Plan& plan_;
  const int64_t answer_timeout_ms_;
  const Send send_;
  const Late late_;
  mutable std::mutex mutex_;  // all below
  std::condition_variable there_;
  std::vector<Slot*> asked_, answered_;  // oldest first
  Status abandoned_;                     // made before memory can be short
  Status failure_;
};

}  // namespace weft
