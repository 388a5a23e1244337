// The directory of --checkpoint: one run at a time writes into it, and only after the checkpoints
// of its own past.
#pragma once

#include <string>

#include "cli/handles.h"
#include "cli/outcome.h"

namespace weft::cli {

class CheckpointDirectory {
 public:
  explicit CheckpointDirectory(std::string path) : path_(std::move(path)) {}
  ~CheckpointDirectory();
  CheckpointDirectory(const CheckpointDirectory&) = delete;
  CheckpointDirectory& operator=(const CheckpointDirectory&) = delete;

  // Makes the directory and locks it as long as this object exists. Refuses one that another run
  // has locked, or that has a checkpoint which would be replaced or removed although the run does
  // not continue it. `resumed`: where the run starts, or null. No effect without a directory.
  Outcome take(const weft_checkpoint_info* resumed);
  // Whether the checkpoint is one of this directory.
  bool contains(const weft_checkpoint_info& checkpoint) const;

 private:
  Outcome check_kind() const;
  Outcome lock();
  Outcome check_content(const weft_checkpoint_info* resumed) const;

  const std::string path_;
  std::string lock_path_;
  int lock_ = -1;
  bool made_ = false;  // by this object
};

}  // namespace weft::cli
