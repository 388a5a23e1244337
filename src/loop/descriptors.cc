#include "loop/descriptors.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/text.h"

namespace weft {

Status spare_descriptors(int count, const std::string& what) {
  std::vector<int> made;
  int error = 0;
  while (static_cast<int>(made.size()) < count && error == 0) {
    const int descriptor = eventfd(0, EFD_CLOEXEC);
    if (descriptor < 0)
      error = errno;
    else
      made.push_back(descriptor);
  }
  for (const int descriptor : made) close(descriptor);
  return error == 0 ? Status() : system_failure(what, error);
}

}  // namespace weft
