// What will happen under a virtual clock, in order of time; at one time, in the order in which it was said. A step has four events per
// action, so an event is small and one that happens at once never enters the heap.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace weft {

struct SimEvent {
  enum class Kind : uint8_t { ran, arrived, granted, released, control } kind = Kind::ran;
  int32_t rank = 0;
  int32_t what = 0;          // edge or job
  int32_t micro_batch = 0;
  int32_t extra = -1;        // where the value or message lies
};

class SimEvents {
 public:
  void push(const SimEvent& event, double time) {
    if (time <= now_) {
      at_once_.push_back(event);
    } else {
      heap_.push_back({time, order_++, event});
      rise(heap_.size() - 1);
    }
  }

  bool empty() const { return next_ == at_once_.size() && heap_.empty(); }
  double now() const { return now_; }
  void clear() {
    heap_.clear();
    at_once_.clear();
    next_ = 0;
  }

  // Sets the clock to the event's time.
  SimEvent pop() {
    if (next_ < at_once_.size()) {
      const SimEvent event = at_once_[next_++];
      if (next_ == at_once_.size()) {
        at_once_.clear();
        next_ = 0;
      }
      return event;
    }
    const Entry top = heap_.front();
    const Entry last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(last);
    now_ = top.time;
    return top.event;
  }

 private:
  struct Entry {
    double time;
    uint64_t order;
    SimEvent event;
  };
  static bool before(const Entry& a, const Entry& b) { return a.time != b.time ? a.time < b.time : a.order < b.order; }

  // Four children to a parent: half as many levels as with two, and the children lie side by side.
  void rise(size_t at) {
    const Entry entry = heap_[at];
    for (; at > 0 && before(entry, heap_[(at - 1) / 4]); at = (at - 1) / 4) heap_[at] = heap_[(at - 1) / 4];
    heap_[at] = entry;
  }
  void sink(const Entry& entry) {
    size_t at = 0;
    for (size_t child = 1; child < heap_.size(); child = 4 * at + 1) {
      size_t least = child;
      for (size_t c = child + 1; c < heap_.size() && c < child + 4; ++c)
        if (before(heap_[c], heap_[least])) least = c;
      if (!before(heap_[least], entry)) break;
      heap_[at] = heap_[least];
      at = least;
    }
    heap_[at] = entry;
  }

  double now_ = 0;
  uint64_t order_ = 0;
  std::vector<Entry> heap_;
  std::vector<SimEvent> at_once_;   // from next_ on
  size_t next_ = 0;
};

}  // namespace weft
