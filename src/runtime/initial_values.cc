#include "runtime/initial_values.h"

#include <algorithm>
#include <array>

#include "base/rng.h"
#include "kernels/fpenv.h"
#include "kernels/normal.h"
#include "kernels/ranges.h"

namespace weft {

namespace {

constexpr size_t kDrawnBlock = 2048;  // elements that are drawn before they are stored

// The initial values of the elements from `begin` on.
void draw_elements(const Param& param, uint64_t seed, int64_t begin, std::span<float> out) {
  if (param.init.kind != InitKind::normal) {
    std::fill(out.begin(), out.end(),
              param.init.kind == InitKind::constant ? static_cast<float>(param.init.value) : 0.0f);
    return;
  }
  const Stream stream = Stream::initial(seed, param.piece.name);
  while (!out.empty()) {
    const auto [in_whole, count] = param.piece.run_at(begin);
    const int64_t here = std::min(count, static_cast<int64_t>(out.size()));
    kernels::draw_normal(stream, param.init.value, in_whole, here, out.data());
    out = out.subspan(static_cast<size_t>(here));
    begin += here;
  }
}

}  // namespace

void InitialValues::begin_write(ParamId id, int64_t first) {
  const auto at = missing_.find(id);
  if (at != missing_.end() && first != at->second.written) draw(id);
}

void InitialValues::end_write(ParamId id, int64_t count) {
  const auto at = missing_.find(id);
  if (at == missing_.end()) return;
  at->second.written += count;
  if (at->second.written == at->second.param->shape.elements()) missing_.erase(at);
}

void InitialValues::draw(ParamId id) {
  const auto at = missing_.find(id);
  if (at == missing_.end()) return;
  fill(at->second);
  missing_.erase(at);
}

void InitialValues::draw_all() {
  for (const auto& [id, missing] : missing_) fill(missing);
  missing_.clear();
}

void InitialValues::fill(const Missing& missing) {
  const ComputeScope scope;
  const int64_t all = missing.param->shape.elements();
  for_ranges(tiles_, all, kTileElements, [&](int64_t first, int64_t end) {
    const int64_t begin = std::max(first, missing.written);
    if (begin >= end) return;
    const auto count = static_cast<size_t>(end - begin);
    if (float* const elements = missing.value.only_floats()) {
      draw_elements(*missing.param, seed_, begin, {elements + begin, count});
      return;
    }
    std::array<float, kDrawnBlock> values;
    for (size_t done = 0; done < count; done += kDrawnBlock) {
      const auto block = std::span(values).first(std::min(kDrawnBlock, count - done));
      draw_elements(*missing.param, seed_, begin + static_cast<int64_t>(done), block);
      missing.value.write(begin + static_cast<int64_t>(done), block);
    }
  });
}

}  // namespace weft
