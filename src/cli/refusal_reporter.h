// Reports connections that a mesh refuses, as soon as they are refused.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "weft.h"

namespace weft::cli {

// A line about the refused connections, each time their number has doubled since the last line;
// `told` is the reported number. Otherwise an empty string.
std::string refused_text(const weft_mesh* mesh, uint64_t& told);

// Reports while the command waits in a call of the library. `mesh` and `told` are borrowed.
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
