#include "loop/descriptors.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/text.h"

namespace weft {

Result<HeldDescriptors> HeldDescriptors::hold(int count, const std::string& what) {
  HeldDescriptors out;
  while (static_cast<int>(out.held_.size()) < count) {
    const int descriptor = eventfd(0, EFD_CLOEXEC);
    if (descriptor < 0) return system_failure(what, errno);
    out.held_.push_back(descriptor);
  }
  return out;
}

void HeldDescriptors::release() {
  for (const int descriptor : held_) close(descriptor);
  held_.clear();
}

Status spare_descriptors(int count, const std::string& what) {
  return HeldDescriptors::hold(count, what).status();
}

}  // namespace weft
