// Large payloads over ipc lie in memory that both ends share, and go through the socket where that
// is impossible.
#include "net/slab.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "support/directory.h"
#include "zmq_peer.h"

namespace weft::test {
namespace {

// The mappings of slabs in this process, which is both ends.
std::vector<std::span<const std::byte>> slabs() {
  std::vector<std::span<const std::byte>> out;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (line.find("memfd:weft") == std::string::npos ||
        std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2)
      continue;
    out.emplace_back(reinterpret_cast<const std::byte*>(begin), end - begin);
  }
  return out;
}

// How many slots of the first slab hold the payload.
size_t holders(std::span<const std::byte> payload) {
  size_t count = 0;
  const auto all = slabs();
  for (uint32_t slot = 0; !all.empty() && slot < Slab::kSlots; ++slot)
    count += same(all[0].subspan(4096 + slot * Slab::kSlotBytes + kHeaderBytes, payload.size()),
                  payload);
  return count;
}

class SharedMemory : public testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(slabs().empty()); }
  void connect(Net& listens, Net& dials) {
    ASSERT_TRUE(listens.listen("ipc://" + directory_.path()).ok());
    dialed_ = dials.dial(listens.listener->endpoint());
    ASSERT_TRUE(
        turn(listens, dials, [&] { return dialed_->times_connected && listens.accepted.size(); }));
  }
  template <typename Condition>
  static bool turn(Net& one, Net& other, Condition condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) {
      one.until(condition, 5);
      other.until(condition, 5);
    }
    return condition();
  }

  const test::Directory directory_;
  std::unique_ptr<End> dialed_;
};

// Its owner could make it shorter while this process reads it.
TEST(Slab, AFileThatIsNotSealedIsNotOpened) {
  char path[] = "/dev/shm/weft-slab-XXXXXX";
  const int descriptor = mkstemp(path);
  ASSERT_GE(descriptor, 0);
  unlink(path);
  const std::unique_ptr<Slab> whole = Slab::make();
  ASSERT_TRUE(whole);
  struct stat info {};
  ASSERT_EQ(fstat(static_cast<int>(whole->offer().descriptor), &info), 0);
  ASSERT_EQ(ftruncate(descriptor, info.st_size), 0);
  const SlabOffer offer{.process = static_cast<uint32_t>(getpid()),
                        .descriptor = static_cast<uint32_t>(descriptor),
                        .name = {}};
  EXPECT_FALSE(Slab::open(offer));
  EXPECT_TRUE(Slab::open(whole->offer()));
  close(descriptor);
}

TEST_F(SharedMemory, LargePayloadsLieInIt) {
  Net net("ipc://");
  connect(net, net);
  End* const accepted = net.accepted[0].get();
  const auto payload = bytes_of(kMaxPayload, 1);
  // The first ones go through the socket, until the peer has answered the offer.
  for (uint32_t i = 0; i < 100 && holders(payload) == 0; ++i) {
    dialed_->send(1, i, payload);
    ASSERT_TRUE(net.until([&] { return accepted->frames.size() == i + 1; }));
    EXPECT_EQ(accepted->frames[i].payload, payload);
  }
  EXPECT_GE(holders(payload), 1u);
  dialed_.reset();
  net.accepted.clear();
  net.until([] { return false; }, 20);
}

TEST_F(SharedMemory, SmallPayloadsNeedNone) {
  Net net("ipc://");
  connect(net, net);
  dialed_->send(1, 1, bytes_of(Slab::kLeastPayload - 1, 1));
  ASSERT_TRUE(net.until([&] { return net.accepted[0]->frames.size() == 1; }));
  EXPECT_TRUE(slabs().empty());
}

TEST_F(SharedMemory, MoreFramesThanSlotsComeInOrder) {
  Net net("ipc://");
  connect(net, net);
  constexpr uint32_t kFrames = 5 * Slab::kSlots;
  std::vector<std::vector<std::byte>> payloads;
  for (uint32_t i = 0; i < kFrames; ++i) payloads.push_back(bytes_of(200000 + i, i));
  for (uint32_t round = 0; round < 2; ++round) {
    for (uint32_t i = 0; i < kFrames; ++i) dialed_->send(1, i, payloads[i], i + 1);
    ASSERT_TRUE(net.until([&] { return net.accepted[0]->frames.size() == (round + 1) * kFrames; }));
  }
  for (uint32_t i = 0; i < 2 * kFrames; ++i) {
    EXPECT_EQ(net.accepted[0]->frames[i].number, i % kFrames);
    EXPECT_EQ(net.accepted[0]->frames[i].payload, payloads[i % kFrames]);
  }
  dialed_.reset();
  net.accepted.clear();
  net.until([] { return false; }, 20);
}

TEST_F(SharedMemory, APeerThatCannotReachItGetsPayloadsThroughTheSocket) {
  Net net("ipc://");
  Net other("ipc://", false, test_keys(), false);
  connect(net, other);
  End* const accepted = net.accepted[0].get();
  const auto payload = bytes_of(kMaxPayload, 1);
  for (uint32_t i = 0; i < 3; ++i) {
    accepted->send(1, i, payload);
    ASSERT_TRUE(turn(net, other, [&] { return dialed_->frames.size() == i + 1; }));
    EXPECT_EQ(dialed_->frames[i].payload, payload);
  }
  EXPECT_TRUE(slabs().empty());
}

TEST_F(SharedMemory, APeerThatNamesASlotOfNoMemoryIsDropped) {
  Net net("ipc://");
  ASSERT_TRUE(net.listen("ipc://" + directory_.path()).ok());
  for (const std::string words : {"weft-slab-frame-1", "weft-slab-taken-1", "weft-slab-offer-1"}) {
    ZmqPeer peer(net.listener->endpoint(), 18, {nullptr, nullptr});
    peer.hello();
    const size_t before = net.accepted.size();
    ASSERT_TRUE(net.until([&] { return net.accepted.size() > before; }));
    peer.say(1, words + std::string(8, '\0'));
    ASSERT_TRUE(net.until([&] { return net.accepted.back()->times_disconnected == 1; }));
  }
}

TEST(Slab, IsSharedByItsOfferOnly) {
  const auto slab = Slab::make();
  ASSERT_NE(slab, nullptr);
  const SlabOffer offer = slab->offer();
  const auto other = Slab::open(offer);
  ASSERT_NE(other, nullptr);
  std::byte* const slot = slab->take();
  slot[100] = std::byte{7};
  EXPECT_EQ(other->read(slab->index_of(slot), 200)[100], std::byte{7});
  SlabOffer wrong = offer;
  wrong.name[3] ^= 1;
  EXPECT_EQ(Slab::open(wrong), nullptr);
  wrong = offer;
  wrong.descriptor = 1;
  EXPECT_EQ(Slab::open(wrong), nullptr);
  slab->close_descriptor();
  EXPECT_EQ(Slab::open(offer), nullptr);
}

TEST(Slab, MemoryThatCouldShrinkIsRefused) {
  const auto slab = Slab::make();
  SlabOffer offer = slab->offer();
  const std::string path = "/proc/self/fd/" + std::to_string(offer.descriptor);
  EXPECT_NE(truncate(path.c_str(), 4096), 0);
  const int file = memfd_create("weft", MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(file, 4096 + Slab::kSlots * Slab::kSlotBytes), 0);
  ASSERT_EQ(pwrite(file, offer.name.data(), offer.name.size(), 0), 16);
  offer.descriptor = static_cast<uint32_t>(file);
  EXPECT_EQ(Slab::open(offer), nullptr);
  ASSERT_EQ(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_NE(Slab::open(offer), nullptr);
  close(file);
}

TEST(Slab, SlotsAreTakenUntilTheyAreReleased) {
  const auto slab = Slab::make();
  const auto other = Slab::open(slab->offer());
  for (uint32_t i = 0; i < Slab::kSlots; ++i) EXPECT_EQ(slab->index_of(slab->take()), i);
  EXPECT_EQ(slab->take(), nullptr);
  other->release(5);
  EXPECT_EQ(slab->index_of(slab->take()), 5u);
  EXPECT_TRUE(other->read(Slab::kSlots, 100).empty());
  EXPECT_TRUE(other->read(0, kHeaderBytes - 1).empty());
  EXPECT_TRUE(other->read(0, kHeaderBytes + kMaxPayload + 1).empty());
}

}  // namespace
}  // namespace weft::test
