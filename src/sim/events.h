// The events of a virtual clock in the order of their times. Of those of the current time, the ones
// that were added at this time come first; otherwise they are in the order in which they were
// added. A step has four events per action; therefore an event is small, and an event at the
// current time is never sorted.
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
  int32_t extra = -1;  // control: position of the message
};

// A radix heap. Time never decreases, so that an event is sorted only by the highest bit in which
// its time differs from now: this bit is its heap. When the lowest heap is next, its first time
// becomes now, and its events move to lower heaps. Events of one time are always in one heap and
// keep their order. Doubles that are not negative are in the order of their bits.
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
  Queue at_once_;     // added at this time
  Queue due_;         // added earlier, for this time
  std::array<std::vector<Entry>, 64>
      heaps_;            // by the highest bit in which an entry's time differs from now
  uint64_t filled_ = 0;  // heaps that are not empty
};

}  // namespace weft
