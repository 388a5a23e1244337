// The initial values of the parameters of a rank. They are drawn when something reads them: a step,
// or the owner of the run. Values that are loaded before the first step are therefore not drawn.
#pragma once

#include <map>

#include "graph/model.h"
#include "kernels/tiles.h"
#include "runtime/stored_weight.h"

namespace weft {

// One thread at a time.
class InitialValues {
 public:
  // `tiles` outlives this object.
  InitialValues(uint64_t seed, Tiles& tiles) : seed_(seed), tiles_(tiles) {}

  // The memory of the parameter has no values yet. `param` is borrowed.
  void add(ParamId id, const Param& param, const StoredWeight& value) {
    missing_[id] = {&param, value, 0};
  }
  // The caller is about to write elements from `first` on,
  void begin_write(ParamId id, int64_t first);
  // and has written so many.
  void end_write(ParamId id, int64_t count);
  // All elements of the parameter have values from now on.
  void draw(ParamId id);
  void draw_all();

 private:
  struct Missing {
    const Param* param;
    StoredWeight value;
    int64_t written;  // elements that have values, from the first one on
  };
  void fill(const Missing& missing);

  const uint64_t seed_;
  Tiles& tiles_;
  std::map<ParamId, Missing> missing_;
};

}  // namespace weft
