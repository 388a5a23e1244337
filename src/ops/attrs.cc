// Checks that an op reads the attributes that are set for its node. An attribute that is set but
// not read is a mistake of the caller.
#include "base/text.h"
#include "ops/op.h"

namespace weft {

Status check_reads(const Op& op, const Attrs& attrs) {
  const struct {
    uint32_t bit;
    std::string_view name;
    bool set;
  } all[] = {
      {kTanh, "WEFT_NODE_TANH", (attrs.flags & kTanh) != 0},
      {kCausal, "WEFT_NODE_CAUSAL", (attrs.flags & kCausal) != 0},
      {kOutIn, "WEFT_NODE_OUT_IN", (attrs.flags & kOutIn) != 0},
      {kPositions, "WEFT_NODE_POSITIONS", (attrs.flags & kPositions) != 0},
      {kBf16Cache, "WEFT_NODE_BF16_CACHE", (attrs.flags & kBf16Cache) != 0},
      {kUnitOffset, "WEFT_NODE_UNIT_OFFSET", (attrs.flags & kUnitOffset) != 0},
      {kAxis, "axis", attrs.axis != 0},
      {kHeads, "heads", attrs.heads != 0},
      {kRange, "begin and end", attrs.begin != 0 || attrs.end != 0},
      {kFactor, "factor", attrs.factor != 0},
      {kCap, "cap", attrs.cap != 0},
      {kMomentum, "momentum", attrs.momentum != 0},
      {kDims, "dims", attrs.dims.rank != 0},
      {kOver, "axis_name", attrs.over.axis >= 0},
      {kCoordinates, "coordinates", !attrs.over.coordinates.empty()},
      {kFrequencies, "frequencies", !attrs.frequencies.empty()},
  };
  std::string known;
  for (const auto& [bit, name, set] : all)
    if (op.reads() & bit) known += cat(known.empty() ? "" : ", ", name);
  for (const auto& [bit, name, set] : all)
    if (set && !(op.reads() & bit))
      return Status(Code::invalid, cat("set, but not read by this op: ", name, "; it reads ",
                                       known.empty() ? "no attribute" : known));
  return {};
}

}  // namespace weft
