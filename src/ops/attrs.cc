// Checks that an op reads the attributes that are set for its node. An attribute that is set but
// not read is a mistake of the caller.
#include "base/text.h"
#include "ops/op.h"

namespace weft {

// All fields have names here: after a new one is added, this does not compile. A caller cannot set
// the section.
Status check_reads(const Op& op, const Attrs& attrs) {
  const auto& [axis, heads, flags, begin, end, factor, momentum, cap, dims, over, frequencies,
               section] = attrs;
  const struct {
    uint32_t bit;
    std::string_view name;
    bool set;
  } all[] = {
      {kTanh, "WEFT_NODE_TANH", (flags & kTanh) != 0},
      {kCausal, "WEFT_NODE_CAUSAL", (flags & kCausal) != 0},
      {kOutIn, "WEFT_NODE_OUT_IN", (flags & kOutIn) != 0},
      {kPositions, "WEFT_NODE_POSITIONS", (flags & kPositions) != 0},
      {kBf16Cache, "WEFT_NODE_BF16_CACHE", (flags & kBf16Cache) != 0},
      {kUnitOffset, "WEFT_NODE_UNIT_OFFSET", (flags & kUnitOffset) != 0},
      {kAxis, "axis", axis != 0},
      {kHeads, "heads", heads != 0},
      {kRange, "begin and end", begin != 0 || end != 0},
      {kFactor, "factor", factor != 0},
      {kCap, "cap", cap != 0},
      {kMomentum, "momentum", momentum != 0},
      {kDims, "dims", dims.rank != 0},
      {kOver, "axis_name", over.axis >= 0},
      {kCoordinates, "coordinates", !over.coordinates.empty()},
      {kFrequencies, "frequencies", !frequencies.empty()},
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
