// All sockets of a transport share one look per turn of the loop: before it would sleep, all
// members send what waits, then each says whether it has more to do; after it woke, each reads and
// tells its owner. The question comes last, since a send may swallow the wake-up of what has come
// meanwhile.
#pragma once

#include <memory>
#include <vector>

#include "loop/loop.h"

namespace weft {

class PollGroup {
 public:
  class Member {
   public:
    virtual ~Member() = default;
    // No call to an owner in these two. True: do not sleep.
    virtual void send_waiting() = 0;
    virtual bool ready() = 0;
    virtual void after_wake() = 0;
    // The transport ends: closes its sockets.
    virtual void end() = 0;
  };

  PollGroup(Loop& loop, void* context)
      : loop_(loop),
        context_(context),
        turn_(
            loop, [this] { return before_sleep(); }, [this] { after_wake(); }) {}
  ~PollGroup() {
    // The youngest first: a connection before the socket it was accepted from.
    for (size_t i = members_.size(); i-- > 0;)
      if (const auto member = members_[i]) member->end();
  }

  void add(std::shared_ptr<Member> member) { members_.push_back(std::move(member)); }
  // Also from inside after_wake(): the member lives until it returns.
  void remove(Member& member) {
    for (auto& m : members_)
      if (m.get() == &member) {
        removed_ = true;
        m.reset();
        return;
      }
  }
  Loop& loop() const { return loop_; }
  void* context() const { return context_; }

 private:
  bool before_sleep() {
    for (const auto& member : members_)
      if (member) member->send_waiting();
    bool more = false;
    for (const auto& member : members_)
      if (member && member->ready()) more = true;
    return more;
  }
  void after_wake() {
    for (size_t i = 0; i < members_.size(); ++i)  // by index: members come and go meanwhile
      if (const auto member = members_[i]) member->after_wake();
    if (!removed_) return;
    std::erase(members_, nullptr);
    removed_ = false;
  }

  Loop& loop_;
  void* context_;
  std::vector<std::shared_ptr<Member>> members_;
  bool removed_ = false;
  Loop::Turn turn_;
};

}  // namespace weft
