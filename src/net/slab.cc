#include "net/slab.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace weft {

namespace {

constexpr size_t kHeadBytes = 4096;
constexpr size_t kBytes = kHeadBytes + Slab::kSlots * Slab::kSlotBytes;
// Access to a mapping would end the process if its file became smaller.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

struct Slab::Head {
  std::array<unsigned char, 16> name;
  std::array<std::atomic<uint32_t>, kSlots> taken;
  static_assert(std::atomic<uint32_t>::is_always_lock_free, "two processes use it");
};

std::unique_ptr<Slab> Slab::make() {
  static_assert(sizeof(Head) <= kHeadBytes);
  std::unique_ptr<Slab> slab(new Slab(memfd_create("weft", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  // Memory that cannot be allocated later would end the process.
  if (slab->descriptor_ < 0 || posix_fallocate(slab->descriptor_, 0, kBytes) != 0 ||
      fcntl(slab->descriptor_, F_ADD_SEALS, kSeals) != 0 || !slab->map())
    return nullptr;
  auto& name = slab->head_->name;
  if (getrandom(name.data(), name.size(), 0) != static_cast<ssize_t>(name.size())) return nullptr;
  return slab;
}

std::unique_ptr<Slab> Slab::open(const SlabOffer& offer) {
  const std::string path = cat("/proc/", offer.process, "/fd/", offer.descriptor);
  std::unique_ptr<Slab> slab(
      new Slab(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)));
  struct stat found {};
  if (slab->descriptor_ < 0) return nullptr;
  const int seals = fcntl(slab->descriptor_, F_GET_SEALS);  // -1: it cannot be sealed
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(slab->descriptor_, &found) != 0 ||
      found.st_size != static_cast<off_t>(kBytes) || !slab->map() ||
      slab->head_->name != offer.name)
    return nullptr;
  slab->close_descriptor();
  return slab;
}

bool Slab::map() {
  void* const at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (at == MAP_FAILED) return false;
  head_ = static_cast<Head*>(at);
  return true;
}

Slab::~Slab() {
  if (head_ != nullptr) munmap(head_, kBytes);
  close_descriptor();
}

void Slab::close_descriptor() {
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
}

SlabOffer Slab::offer() const {
  return {.process = static_cast<uint32_t>(getpid()),
          .descriptor = static_cast<uint32_t>(descriptor_),
          .name = head_->name};
}

std::byte* Slab::slot_at(uint32_t slot) const {
  return reinterpret_cast<std::byte*>(head_) + kHeadBytes + slot * kSlotBytes;
}

uint32_t Slab::index_of(const std::byte* slot) const {
  return static_cast<uint32_t>(static_cast<size_t>(slot - slot_at(0)) / kSlotBytes);
}

std::byte* Slab::take() {
  for (uint32_t tried = 0; tried < kSlots; ++tried) {
    const uint32_t slot = next_;
    next_ = (next_ + 1) % kSlots;
    if (head_->taken[slot].load(std::memory_order_acquire) != 0) continue;
    head_->taken[slot].store(1, std::memory_order_relaxed);
    return slot_at(slot);
  }
  return nullptr;
}

std::span<const std::byte> Slab::read(uint32_t slot, uint32_t bytes) const {
  if (slot >= kSlots || bytes < kHeaderBytes || bytes > kHeaderBytes + kMaxPayload) return {};
  return {slot_at(slot), bytes};
}

void Slab::release(uint32_t slot) { head_->taken[slot].store(0, std::memory_order_release); }

}  // namespace weft
