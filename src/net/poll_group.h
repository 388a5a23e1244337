// All sockets of a transport are served once per iteration of the event loop. Before it sleeps, all
// members send their waiting frames, then each returns whether it has more to do; after it wakes,
// each reads and calls its owner. The check is last, because a send can consume the wake-up of a
// message that has arrived in the meantime.
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
    // These two do not call the owner. True: do not sleep.
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
    // The newest first: a connection before the socket that accepted it.
    for (size_t i = members_.size(); i-- > 0;)
      if (const auto member = members_[i]) member->end();
  }

  void add(std::shared_ptr<Member> member) { members_.push_back(std::move(member)); }
  // Also from within after_wake(): the member exists until it returns.
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
    for (size_t i = 0; i < members_.size(); ++i)  // by index: members change meanwhile
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
