#include "lowering/units.h"

#include <algorithm>

#include "tensor/byte_count.h"

namespace weft {

namespace {

// A block of the model: "h.3" of "h.3.attn.c_proj".
std::string_view block_of(const std::string& name) {
  const size_t dot = name.find('.');
  return std::string_view(name).substr(0, dot == name.npos ? dot : name.find('.', dot + 1));
}

bool reads_values(const Plan& plan, const StepCall& call) {
  const bool reads = call.kind == CallKind::forward || call.kind == CallKind::input_grad;
  return reads && !plan.model->node(call.node).weights.empty();
}

}  // namespace

std::vector<int32_t> phases_of(Kind kind) {
  switch (kind) {
    case Kind::F: return {kPhaseF};
    case Kind::R: return {kPhaseR};
    case Kind::I: return {kPhaseI};
    case Kind::W: return {kPhaseW};
    case Kind::B: return {kPhaseI, kPhaseW};
    default: return {};
  }
}

std::vector<std::vector<UnitCall>> units_of(const Plan& plan, const StageWork& work, Kind kind) {
  std::vector<std::vector<UnitCall>> out(1);
  int64_t gradients = 0;   // bytes that are complete with the unit
  std::string_view block;  // whose values it reads
  for (const int32_t phase : phases_of(kind)) {
    const auto& calls = work.calls[static_cast<size_t>(phase)];
    for (size_t c = 0; c < calls.size(); ++c) {
      const bool reads = plan.gathers() && reads_values(plan, *calls[c]);
      const std::string_view own =
          reads ? block_of(plan.model->node(calls[c]->node).name) : std::string_view();
      if (plan.config.data > 1 &&
          (gradients >= plan.config.bucket_bytes || (reads && !block.empty() && block != own))) {
        out.emplace_back();
        gradients = 0;
        block = {};
      }
      if (reads) block = own;
      out.back().push_back({phase, c});
      if (calls[c]->kind != CallKind::weight_grad) continue;
      const Node& node = plan.model->node(calls[c]->node);
      const ParamId param = node.weights[static_cast<size_t>(calls[c]->weight)];
      gradients = sum_of_bytes(gradients, padded_bytes(plan.model->param(param).desc()));
    }
  }
  return out;
}

std::vector<ParamId> reads_of(const Plan& plan, const StageWork& work,
                              const std::vector<UnitCall>& unit) {
  std::vector<ParamId> out;
  for (const UnitCall& at : unit) {
    const StepCall& call = *work.calls[static_cast<size_t>(at.phase)][at.index];
    if (!reads_values(plan, call)) continue;
    for (const ParamId p : plan.model->node(call.node).weights)
      if (std::find(out.begin(), out.end(), p) == out.end()) out.push_back(p);
  }
  return out;
}

}  // namespace weft
