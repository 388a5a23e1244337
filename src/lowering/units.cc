#include "lowering/units.h"

#include <algorithm>
#include <functional>

#include "lowering/parameters.h"
#include "tensor/byte_count.h"

namespace weft {

namespace {

// A block of the model: "h.3" of "h.3.attn.c_proj".
std::string_view block_of(const std::string& name) {
  const size_t dot = name.find('.');
  return std::string_view(name).substr(0, dot == name.npos ? dot : name.find('.', dot + 1));
}

bool reads_values(const Model& model, const StepCall& call) {
  return reads_weights(model.node(call.node), call.kind);
}

ParamId param_of(const Model& model, const StepCall& call) {
  return model.node(call.node).weights[static_cast<size_t>(call.weight)];
}

// `run_of`: the run of the accumulator that a call adds to; -1: it is kept.
std::vector<std::vector<UnitCall>> cut_units(
    const Model& model, const PlanConfig& config, const StageWork& work, Kind kind,
    const std::function<int32_t(const StepCall&)>& run_of) {
  std::vector<std::vector<UnitCall>> out(1);
  int64_t gradients = 0;   // bytes that are complete with the unit, of accumulators that are kept
  int32_t run = -1;        // of its other accumulators
  std::string_view block;  // whose values it reads
  for (const int32_t phase : phases_of(kind)) {
    const auto& calls = work.calls[static_cast<size_t>(phase)];
    for (size_t c = 0; c < calls.size(); ++c) {
      const bool reads = config.shard == "parameters" && reads_values(model, *calls[c]);
      const std::string_view own =
          reads ? block_of(model.node(calls[c]->node).name) : std::string_view();
      const bool sums = calls[c]->kind == CallKind::weight_grad && config.data > 1;
      const int32_t next = sums ? run_of(*calls[c]) : -1;
      if (config.data > 1 &&
          (gradients >= config.bucket_bytes || (reads && !block.empty() && block != own) ||
           (run >= 0 && next >= 0 && next != run))) {
        out.emplace_back();
        gradients = 0;
        block = {};
        run = -1;
      }
      if (reads) block = own;
      out.back().push_back({phase, c});
      if (next >= 0)
        run = next;
      else if (sums)
        gradients =
            sum_of_bytes(gradients, padded_bytes(model.param(param_of(model, *calls[c])).desc()));
    }
  }
  return out;
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
  return cut_units(*plan.model, plan.config, work, kind, [&plan](const StepCall& call) {
    const ParamId param = param_of(*plan.model, call);
    const int32_t sum = plan.model->param(param).sum_of(call.node, call.weight);
    // Of replica 0; the others are alike.
    return accumulator_of(plan, plan.rank_of_node(call.node, 0), param, sum, 0).run;
  });
}

std::vector<std::vector<UnitCall>> units_of(const Model& model, const PlanConfig& config,
                                            const StageWork& work, Kind kind,
                                            const RunOfSum& runs) {
  return cut_units(model, config, work, kind, [&](const StepCall& call) {
    const ParamId param = param_of(model, call);
    const auto at = runs.find({param, model.param(param).sum_of(call.node, call.weight)});
    return at == runs.end() ? -1 : at->second;
  });
}

std::vector<ParamId> reads_of(const Model& model, const StageWork& work,
                              const std::vector<UnitCall>& unit) {
  std::vector<ParamId> out;
  for (const UnitCall& at : unit) {
    const StepCall& call = *work.calls[static_cast<size_t>(at.phase)][at.index];
    if (!reads_values(model, call)) continue;
    for (const ParamId p : model.node(call.node).weights)
      if (std::find(out.begin(), out.end(), p) == out.end()) out.push_back(p);
  }
  return out;
}

void GatherSlots::begin_unit() {
  ++turn_;
  offset_ = 0;
}

std::pair<int32_t, int64_t> GatherSlots::add(int64_t bytes) {
  const int32_t slot = turn_ % kGatherSlots;
  const int64_t offset = offset_;
  offset_ = sum_of_bytes(offset_, bytes);
  int64_t& size = bytes_[static_cast<size_t>(slot)];
  size = std::max(size, offset_);
  return {slot, offset};
}

}  // namespace weft
