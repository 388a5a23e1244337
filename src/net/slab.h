// Shared memory of the two processes of a connection, for large payloads. The sender creates it; a
// slot is in use until the receiver releases it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "link/frame.h"

namespace weft {

// How the receiver opens the memory: only processes of the same user can open the descriptor of
// another process, and the name shows that it is the right one.
struct SlabOffer {
  uint32_t process = 0, descriptor = 0;
  std::array<unsigned char, 16> name{};
};

class Slab {
 public:
  static constexpr size_t kLeastPayload = size_t{64} << 10;
  static constexpr size_t kSlotBytes = (size_t{1} << 20) + 4096;
  static constexpr uint32_t kSlots = 8;
  static_assert(kSlotBytes >= kHeaderBytes + kMaxPayload);

  // Null if the system provides no memory.
  static std::unique_ptr<Slab> make();
  SlabOffer offer() const;
  // The receiver has answered: keeps the memory and closes its descriptor.
  void close_descriptor();
  // A free slot, or null.
  std::byte* take();
  uint32_t index_of(const std::byte* slot) const;

  // The side of the receiver. Null if the memory cannot be opened, or could become smaller.
  static std::unique_ptr<Slab> open(const SlabOffer& offer);
  // Empty if there is no such slot, or if it has fewer bytes.
  std::span<const std::byte> read(uint32_t slot, uint32_t bytes) const;
  void release(uint32_t slot);

  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

 private:
  struct Head;
  explicit Slab(int descriptor) : descriptor_(descriptor) {}
  bool map();
  std::byte* slot_at(uint32_t slot) const;

  int descriptor_;
  Head* head_ = nullptr;
  uint32_t next_ = 0;
};

}  // namespace weft
