// Names of the nodes and parameters of a sharded model: "NAME/0" is the piece at coordinate 0 of
// NAME.
#pragma once

#include <algorithm>
#include <string>

#include "base/text.h"
#include "graph/model.h"

namespace weft {

class PieceNames {
 public:
  // The separator before a suffix is made longer until no name of the model contains it.
  explicit PieceNames(const Model& whole) : mark_("/") {
    const auto has_mark = [this](const auto& named) {
      return named.name.find(mark_) != std::string::npos;
    };
    while (std::any_of(whole.nodes().begin(), whole.nodes().end(), has_mark) ||
           std::any_of(whole.params().begin(), whole.params().end(), has_mark))
      mark_ += '/';
  }

  std::string piece(const std::string& name, int32_t coordinate) {
    return fitting(name, cat(coordinate));
  }
  // A different name for each call.
  std::string movement(const std::string& name, std::string_view op) {
    return fitting(name, cat(op, ".", count_++));
  }

 private:
  std::string fitting(const std::string& name, const std::string& suffix) {
    std::string out = cat(name, mark_, suffix);
    return check_name(out, "node").ok() ? out : cat(mark_, mark_, count_++);
  }

  std::string mark_;
  int64_t count_ = 0;
};

}  // namespace weft
