#include "runtime/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"

namespace weft {

Result<Arena> Arena::make(int64_t bytes) {
  if (bytes < 0) return Status(Code::internal, cat("the tensors of a rank have ", bytes, " bytes"));
  Arena arena;
  const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  // Without MAP_NORESERVE mmap itself fails, if the system does not overcommit. If it does, too
  // large a mapping succeeds and the process is killed when it uses the memory. Then only the bytes
  // that the plan reports warn in advance.
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    return Status(Code::no_memory, cat("cannot allocate ", bytes, " bytes for tensors"));
  madvise(at, size, MADV_HUGEPAGE);  // a hint: without huge pages only the speed changes
  arena.data_ = static_cast<std::byte*>(at);
  arena.bytes_ = static_cast<int64_t>(size);
  return arena;
}

Result<int64_t> Arena::resident() const {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((static_cast<size_t>(bytes_) + page - 1) / page);
  if (mincore(data_, static_cast<size_t>(bytes_), pages.data()) != 0)
    return Status(Code::unsupported, "the system does not report which pages are in memory");
  const auto there =
      std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; });
  return std::min(bytes_, static_cast<int64_t>(there) * static_cast<int64_t>(page));
}

Arena::~Arena() {
  if (data_) munmap(data_, static_cast<size_t>(bytes_));
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace weft
