// Who comes to a mesh's door and is turned away, told as it happens.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "weft.h"

namespace weft::cli {

// What is to be told of those, in a line: each time there are twice as many as were told, which
// `told` counts. Else empty.
std::string refused_text(const weft_mesh* mesh, uint64_t& told);

// Tells while the command waits inside the library. `mesh` and `told` are borrowed.
class RefusalReporter {
 public:
  RefusalReporter(std::string command, const weft_mesh* mesh, uint64_t& told);
  ~RefusalReporter();
  RefusalReporter(const RefusalReporter&) = delete;
  RefusalReporter& operator=(const RefusalReporter&) = delete;

 private:
  void watch();

  const std::string command_;
  const weft_mesh* const mesh_;
  uint64_t& told_;
  std::mutex lock_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace weft::cli
