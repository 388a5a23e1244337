// What --train selects: "all", parameters as "PATTERN,...", or adapters as
// "lora[:rank=R,alpha=A,dropout=P,targets=NAME,...]".
#pragma once

#include <string>
#include <vector>

#include "cli/outcome.h"

namespace weft::cli {

struct TrainWhat {
  bool adapters = false;
  std::vector<std::string> keys;      // of the adapters, as MODEL has them: "lora_rank=8"
  std::vector<std::string> patterns;  // of the parameters; empty: all
};

// Returns the fault, or an empty text.
std::string read_train_what(const std::string& text, TrainWhat& out);
std::string check_train_what(const std::string& text);
bool adds_adapters(const std::string& text);

// Whether MODEL, a name with keys, has adapters.
bool has_adapters(const std::string& model);
// Adds the keys of the adapters to MODEL, a name with keys. If MODEL already has adapters, they
// must be those that --train describes.
Outcome add_adapters(const TrainWhat& what, std::string& model);

}  // namespace weft::cli
