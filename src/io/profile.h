// A profile: the times of the kernels of each node of a model on a machine. A JSON file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft {

struct ProfileNode {
  std::string name;
  double forward = 0, input = 0, weight = 0;   // seconds for one micro-batch
  double weight_together = 0;                  // where those of eight run at once; 0: not measured
  uint64_t output_bytes = 0, stash_bytes = 0;  // of a micro-batch
  friend bool operator==(const ProfileNode&, const ProfileNode&) = default;
};

struct Profile {
  std::string weft, model,
      kernels;  // the version, the model and the kernels; for information, not compared
  uint64_t micro_batch_size = 1;
  uint64_t seq_len = 0;  // 0: the model has none
  uint64_t threads = 1;
  std::string precision = "f32", f32_nodes;  // those of the plans that can use it
  double update = 0;  // seconds of the end of a step (norm and new weights) for all parameters
  double memory_speed = 0;  // bytes per second in these jobs; 0: not measured
  double overhead = 0;  // seconds of a rank between two actions; 0: not measured, see calibrate()
  std::vector<ProfileNode> nodes;  // those of the model without its inputs, in its order
  friend bool operator==(const Profile&, const Profile&) = default;
};

// Fails for text that is not UTF-8 and for times that are not finite.
Result<std::string> print_profile(const Profile& profile);
Result<Profile> parse_profile(std::string_view text);

// Of the file at that path; errors name it.
Result<Profile> read_profile(const std::string& path);
Status write_profile(const std::string& path, const Profile& profile);

}  // namespace weft
