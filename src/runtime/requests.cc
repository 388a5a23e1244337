#include "runtime/requests.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/origin.h"
#include "base/text.h"
#include "runtime/loop_run.h"

namespace weft {

namespace {

std::string wanted(const Plan& plan, const Requests::Slot& slot) {
  const ParamId param = slot.request.param;
  const std::string of =
      param < 0 ? "" : cat(" of parameter '", plan.model->param(param).name, "'");
  switch (slot.type) {
    case rpc::kRead: return "a piece" + of;
    case rpc::kWrite: return "to take a piece" + of;
    case rpc::kHash: return "the digest" + of;
    case rpc::kLoad: return "to read a piece" + of;
    case rpc::kOpen: return "to open a file of weights";
    case rpc::kClose: return "to close files of weights";
    case rpc::kTrace: return "to keep a trace";
    case rpc::kSpans: return "its trace";
    default: return "its bytes in memory";
  }
}

}  // namespace

Requests::Requests(Loop& loop, const Plan& plan, int64_t answer_timeout_ms, Send send, Late late)
    : loop_(loop),
      plan_(plan),
      answer_timeout_ms_(answer_timeout_ms),
      send_(std::move(send)),
      late_(std::move(late)),
      abandoned_(Code::state, "a request was abandoned before its answer arrived") {}

Status Requests::ask(Slot& slot) {
  std::vector<std::byte> bytes = rpc::encode(slot.request);
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_;
    answered_.reserve(asked_.size() + answered_.size() + 1);  // an answer must not allocate
    asked_.push_back(&slot);
  }
  const Status posted = attempt([&] {
    auto task = [this, rank = slot.rank, type = slot.type, sent = std::move(bytes)] {
      send_(rank, type, sent);
    };
    return loop_.post(std::move(task)) ? Status() : Status(Code::state, "the loop has stopped");
  });
  if (posted.ok()) return posted;
  const std::lock_guard lock(mutex_);
  std::erase(asked_, &slot);
  return posted;
}

Result<Requests::Slot*> Requests::take(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait && !there_.wait_for(lock, std::chrono::milliseconds(answer_timeout_ms_),
                               [this] { return has_news(); }))
    WEFT_TRY(end_late(lock));
  // An answer that arrived before the run failed is valid: a save may need nothing else.
  if (answered_.empty())
    return failure_.ok() ? Result<Slot*>(static_cast<Slot*>(nullptr)) : Result<Slot*>(failure_);
  Slot* slot = answered_.front();
  answered_.erase(answered_.begin());
  return slot;
}

// Ends the run because of the oldest request, unless its answer has just arrived.
Status Requests::end_late(std::unique_lock<std::mutex>& lock) {
  const int32_t rank = asked_.front()->rank;
  lock.unlock();
  WEFT_TRY(on_loop(loop_, [&] {
    bool late = false;
    {
      const std::lock_guard again(mutex_);
      late = !has_news();
    }
    if (late) late_(rank);
  }));
  lock.lock();
  there_.wait(lock, [this] { return has_news(); });
  return {};
}

std::string Requests::asked_of(int32_t rank) const {
  const std::lock_guard lock(mutex_);
  const auto asked = std::find_if(asked_.begin(), asked_.end(),
                                  [rank](const Slot* slot) { return slot->rank == rank; });
  return asked == asked_.end() ? "" : cat("it was asked for ", wanted(plan_, **asked));
}

bool Requests::all_answered() const {
  const std::lock_guard lock(mutex_);
  return asked_.empty();
}

void Requests::forget() {
  const std::lock_guard lock(mutex_);
  if (!asked_.empty() && failure_.ok()) failure_ = std::move(abandoned_);
  asked_.clear();
  answered_.clear();
}

void Requests::answered(int32_t rank, uint32_t type, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(asked_.begin(), asked_.end(),
                               [rank](const Slot* slot) { return slot->rank == rank; });
  if (at == asked_.end()) return;
  Slot& slot = **at;
  asked_.erase(at);
  if (type == slot.type)
    slot.status = rpc::read_answer(bytes, slot.bytes).within(rank_name(rank));
  else
    slot.status = Status(Code::protocol, cat("rank ", rank, " answered a request of type ",
                                             slot.type, " with type ", type));
  answered_.push_back(&slot);
  there_.notify_one();
}

void Requests::fail(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return;
  failure_ = status;
  there_.notify_one();
}

}  // namespace weft
