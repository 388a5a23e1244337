// A model and adapters from another directory as one checkpoint, for `weft export`.
#pragma once

#include <string>

#include "cli/outcome.h"

namespace weft::cli {

class JoinedCheckpoint {
 public:
  JoinedCheckpoint() = default;
  ~JoinedCheckpoint();
  JoinedCheckpoint(const JoinedCheckpoint&) = delete;
  JoinedCheckpoint& operator=(const JoinedCheckpoint&) = delete;

  // Saves it in a new directory beside `output`, which is removed with this object. From then on,
  // the first signal ends nothing by itself (signals.h).
  Outcome make(const std::string& checkpoint, const std::string& adapter,
               const std::string& output);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace weft::cli
