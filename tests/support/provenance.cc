#include "support/provenance.h"

#include <bit>

#include "engine/steps.h"

namespace weft::test {

double as_number(const Digest& digest) {
  return std::bit_cast<double>((digest.low & 0xfffffffffffffull) | 0x3ff0000000000000ull);
}

Digest Provenance::initial(const Param& param) {
  return Hasher().text("initial").text(param.name).finish();
}
Digest Provenance::cleared() { return Hasher().text("cleared").finish(); }

Digest Provenance::call(const Model& model, CallKind kind, NodeId node, int32_t weight,
                        const StepDescriptor& step, int32_t micro_batch,
                        std::span<const Digest> operands) {
  const Node& n = model.node(node);
  Hasher h;
  h.text(n.op->name())
      .number(static_cast<uint64_t>(kind))
      .number(static_cast<uint64_t>(node))
      .number(static_cast<uint64_t>(weight));
  h.number(step_of(step, micro_batch))
      .number(static_cast<uint64_t>(micro_batch_of(step, micro_batch)))
      .number(static_cast<uint64_t>(step.mode));
  h.number(static_cast<uint64_t>(variant_of(step, micro_batch)));
  if (n.op->is_loss()) h.number(denominator_of(step, micro_batch));
  for (const Digest& d : operands) h.digest(d);
  return h.finish();
}

Digest Provenance::result(const Digest& call, int32_t index) {
  return Hasher().digest(call).number(static_cast<uint64_t>(index)).finish();
}
// +0 plus +0 is +0 in any order: sums without addends are not distinguished.
Digest Provenance::add(const Digest& later, const Digest& earlier) {
  if (later == cleared() && earlier == cleared()) return later;
  return Hasher().text("add").digest(later).digest(earlier).finish();
}
Digest Provenance::mean(const Digest& sum, int32_t parts) {
  return Hasher().text("mean").digest(sum).number(static_cast<uint64_t>(parts)).finish();
}
Digest Provenance::join(NodeId first, std::span<const Digest> parts) {
  Hasher h;
  h.text("join").number(static_cast<uint64_t>(first));
  for (const Digest& part : parts) h.digest(part);
  return h.finish();
}
double Provenance::square(const Digest& grad) {
  return as_number(Hasher().text("square").digest(grad).finish());
}

Digest Provenance::update(const Digest& weight, const Digest& grad, const Digest& state,
                          uint64_t step, double scale) {
  return Hasher()
      .text("update")
      .digest(weight)
      .digest(grad)
      .digest(state)
      .number(step)
      .number(scale)
      .finish();
}

Digest Provenance::fed(NodeId input, const StepDescriptor& step, int32_t micro_batch) {
  return Hasher()
      .text("fed")
      .number(static_cast<uint64_t>(input))
      .number(step.sequence)
      .number(static_cast<uint64_t>(micro_batch))
      .finish();
}

}  // namespace weft::test
