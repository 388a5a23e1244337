// Requests of rank 0 to the ranks in other processes. Several requests to several ranks may be in
// progress at once; each rank answers in the order of its requests.
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
    std::vector<std::byte> bytes;  // the answer of the rank
    Status status;
    size_t lane = 0, tensor = 0;  // for the caller only
  };
  // Both are called on the loop thread.
  using Send = std::function<void(int32_t rank, uint32_t type, std::span<const std::byte> bytes)>;
  using Late = std::function<void(int32_t rank)>;  // it did not answer in time: ends the run

  Requests(Loop& loop, const Plan& plan, int64_t answer_timeout_ms, Send send, Late late);

  // --- any thread but the loop's, one at a time
  // The slot is in use until take() returns it or forget() is called.
  Status ask(Slot& slot);
  // The oldest answer; null if there is none and `wait` is false. Fails when the run fails.
  Result<Slot*> take(bool wait);
  bool all_answered() const;  // some may not have been taken yet
  // Abandons all slots in use. No requests can follow, because outstanding answers could not be
  // told from the answers to new requests.
  void forget();

  // --- loop thread
  void answered(int32_t rank, uint32_t type, std::span<const std::byte> bytes);
  void fail(const Status& status);
  // What the rank has not yet answered, as a text for a message; empty: nothing.
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
  Status abandoned_;                     // made in advance, because memory may be short
  Status failure_;
};

}  // namespace weft
