#include "tune/packed_choice.h"

#include <algorithm>
#include <map>
#include <vector>

#include "partition/stages.h"

namespace weft {

namespace {

using Role = ResidentTensor::Role;

// Of a weight, with the bytes that packing adds on each of its ranks. A weight that is stored only
// packed can need fewer.
struct Packing {
  ParamId param;
  std::map<size_t, int64_t> added;

  int64_t most() const {
    return std::max_element(added.begin(), added.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->second;
  }
};

int64_t weight_bytes(const ResidentParam& param) {
  int64_t out = 0;
  for (const Role role : {Role::value, Role::packed})
    for (const ResidentTensor& t : param.of(role)) out += t.bytes();
  return out;
}

std::vector<Packing> packings_of(const Plan& none, const Plan& all) {
  std::map<ParamId, Packing> found;
  for (size_t r = 0; r < all.resident.size(); ++r)
    for (size_t i = 0; i < all.resident[r].size(); ++i) {
      const ResidentParam& param = all.resident[r][i];
      if (param.of(Role::packed).empty()) continue;
      Packing& packing = found[param.param];
      packing.param = param.param;
      packing.added[r] = weight_bytes(param) - weight_bytes(none.resident[r][i]);
    }
  std::vector<Packing> out;
  for (auto& [param, packing] : found) out.push_back(std::move(packing));
  return out;
}

}  // namespace

std::string packed_within_limits(const Plan& none, const Plan& all) {
  std::vector<int64_t> room;
  for (size_t r = 0; r < none.arena_bytes.size(); ++r)
    room.push_back(limit_of(none.config, r) - none.arena_bytes[r]);
  std::vector<Packing> packings = packings_of(none, all);
  std::stable_sort(packings.begin(), packings.end(), [](const Packing& a, const Packing& b) {
    const int64_t most_a = a.most(), most_b = b.most();
    return std::pair(most_a > 0, -most_a) < std::pair(most_b > 0, -most_b);
  });
  std::string names;
  for (const Packing& packing : packings) {
    const bool fits = std::all_of(
        packing.added.begin(), packing.added.end(),
        [&room](const auto& at) { return at.second <= 0 || at.second <= room[at.first]; });
    if (!fits) continue;
    for (const auto& [rank, bytes] : packing.added) room[rank] -= bytes;
    if (!names.empty()) names += ' ';
    names += none.model->param(packing.param).name;
  }
  return names;
}

}  // namespace weft
