// What will happen under a virtual clock, in order of time; at one time, in the order in which it
// was said. A step has four events per action, so an event is small and one that happens at once is
// never sorted.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace weft {

struct SimEvent {
  enum class Kind : uint8_t { ran, arrived, granted, released, control } kind = Kind::ran;
  int32_t rank = 0;
  int32_t what = 0;  // edge or job
  int32_t micro_batch = 0;
  int32_t extra = -1;  // where the value or message lies
};

// A radix heap. Time never goes back, so an event need not be sorted further than to the highest
// bit in which its time differs from now: that is its heap. When the lowest heap's turn comes, the
// first time in it is the new now, and all of it falls into lower heaps. Events of one time are
// always in one heap, so they keep their order. The bits of doubles from 0 on ascend as the doubles
// do.
class SimEvents {
 public:
  void push(const SimEvent& event, double time) {
    if (time <= now())
      at_once_.push(event);
    else
      put({std::bit_cast<uint64_t>(time), event});
  }

  bool empty() const { return at_once_.empty() && due_.empty() && filled_ == 0; }
  double now() const { return std::bit_cast<double>(now_); }

  // Sets the clock to the event's time.
  SimEvent pop() {
    if (!at_once_.empty()) return at_once_.pop();
    if (due_.empty()) move_on();
    return due_.pop();
  }

 private:
  struct Entry {
    uint64_t time;
    SimEvent event;
  };
  class Queue {
   public:
    bool empty() const { return next_ == events_.size(); }
    void push(const SimEvent& event) { events_.push_back(event); }
    SimEvent pop() {
      const SimEvent event = events_[next_++];
      if (empty()) {
        events_.clear();
        next_ = 0;
      }
      return event;
    }

   private:
    std::vector<SimEvent> events_;  // from next_ on
    size_t next_ = 0;
  };

  void put(const Entry& entry) {
    const size_t bit = static_cast<size_t>(std::bit_width(entry.time ^ now_)) - 1;
    heaps_[bit].push_back(entry);
    filled_ |= uint64_t{1} << bit;
  }

  void move_on() {
    std::vector<Entry>& heap = heaps_[static_cast<size_t>(std::countr_zero(filled_))];
    now_ = std::min_element(heap.begin(), heap.end(), [](const Entry& a, const Entry& b) {
             return a.time < b.time;
           })->time;
    filled_ &= filled_ - 1;
    for (const Entry& entry : heap)
      if (entry.time == now_)
        due_.push(entry.event);
      else
        put(entry);
    heap.clear();
  }

  uint64_t now_ = 0;  // bits of the time
  Queue at_once_;     // said at that time
  Queue due_;         // said before, for that time
  std::array<std::vector<Entry>, 64>
      heaps_;            // by the highest bit in which an entry's time differs from now
  uint64_t filled_ = 0;  // heaps that are not empty
};

}  // namespace weft
