// Once open, tensors, grants, short messages and heartbeats allocate nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "link/link.h"

namespace {
long allocations = 0;

void* counted(size_t size) {
  ++allocations;
  if (void* p = std::malloc(size ? size : 1)) return p;
  std::abort();
}
}  // namespace

void* operator new(size_t size) { return counted(size); }
void* operator new[](size_t size) { return counted(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }

namespace weft {
namespace {

// Frames go straight to the other side's ring of buffers; nothing here allocates either.
class Wire final : public LinkEffects {
 public:
  struct Slot {
    Lane lane;
    size_t size;
    uint64_t token;
  };
  static constexpr size_t kSlots = 128;

  explicit Wire(size_t tensor) : buffers_(kSlots * kMaxFrame), slots_(kSlots), memory(tensor) {}
  void send(Lane lane, std::span<const std::byte, kHeaderBytes> header,
            std::span<const std::byte> payload, uint64_t token) override {
    ASSERT_LT(tail - head, kSlots);
    std::byte* at = buffers_.data() + (tail % kSlots) * kMaxFrame;
    std::copy(header.begin(), header.end(), at);
    std::copy(payload.begin(), payload.end(), at + kHeaderBytes);
    slots_[tail++ % kSlots] = {lane, kHeaderBytes + payload.size(), token};
  }
  void open() override {}
  Result<std::span<std::byte>> landing(const Tag&, uint64_t) override {
    return std::span<std::byte>(memory);
  }
  void arrived(const Tag&) override { ++arrivals; }
  void released(const Tag&) override {}
  void granted(const Tag&) override { ++grants; }
  void message(uint32_t, std::span<const std::byte>) override { ++messages; }
  void leaving() override {}
  void failed(const Origin& origin, bool) override { ADD_FAILURE() << origin_text(origin); }
  void closed() override {}

  bool deliver(Link& mine, Link& theirs, Wire& other, LinkTime now) {
    if (head == tail) return false;
    const Slot slot = slots_[head % kSlots];
    theirs.received(slot.lane, {buffers_.data() + (head % kSlots) * kMaxFrame, slot.size}, now,
                    other);
    ++head;
    if (slot.token != 0) mine.sent(slot.token, now, *this);
    return true;
  }

 private:
  std::vector<std::byte> buffers_;
  std::vector<Slot> slots_;
  size_t head = 0, tail = 0;

 public:
  std::vector<std::byte> memory;
  int arrivals = 0, grants = 0, messages = 0;
};

TEST(LinkAllocation, NoneInTheSteadyState) {
  const size_t size = (size_t{2} << 20) + 100;
  Identity identity;
  Wire wa(size), wb(size);
  Link a(0, 1, identity), b(1, 0, identity);
  LinkTime now = 0;
  auto settle = [&] {
    while (wa.deliver(a, b, wb, now) || wb.deliver(b, a, wa, now)) {}
  };
  a.connected(now, wa);
  b.connected(now, wb);
  settle();
  ASSERT_TRUE(a.is_open() && b.is_open());
  const std::vector<std::byte> tensor(size), words(1000);

  const Activity activity{.state = Activity::State::waits,
                          .job = 'B',
                          .awaited = Activity::Awaited::gradient,
                          .stage = 2,
                          .micro_batch = 0,
                          .from = 3,
                          .step = 2};

  const long before = allocations;
  for (int32_t i = 0; i < 100; ++i) {
    now += 100;
    a.set_activity(activity);
    a.send_tensor({1, 0, i}, tensor, wa);
    b.send_tensor({1, 1, i}, tensor, wb);
    a.send_grant({1, 1, i}, wa);
    b.send_message(1, words, now, wb);
    a.tick(now, wa);
    b.tick(now, wb);
    settle();
  }
  const long after = allocations;
  EXPECT_EQ(after - before, 0);
  EXPECT_EQ(wa.arrivals, 100);
  EXPECT_EQ(wb.arrivals, 100);
  EXPECT_EQ(wb.grants, 100);
  EXPECT_EQ(wa.messages, 100);
  EXPECT_GT(b.last_heard(), 0);
  EXPECT_EQ(b.peer_activity(), activity);
}

}  // namespace
}  // namespace weft
