// The ranks of parameters: a rank of the first use owns a parameter; other ranks that use it keep a
// copy and one accumulator per use.
#include "lowering/parameters.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <numeric>

#include "kernels/bf16_pack.h"
#include "kernels/packed.h"
#include "tensor/byte_count.h"

namespace weft {

namespace {

using Role = ResidentTensor::Role;

void place(ResidentTensor& tensor, int64_t& top) {
  tensor.place = {0, top};
  top = sum_of_bytes(top, tensor.bytes());
}

// The accumulators of a run are adjacent, in its slot.
void place_runs(std::vector<ResidentParam>& resident, int64_t& top) {
  std::map<int32_t, int64_t> used;  // per run
  std::array<int64_t, kRunSlots> slots = {}, base = {};
  const auto each = [&](const auto& f) {
    for (ResidentParam& p : resident)
      for (ResidentTensor& t : p.tensors)
        if (t.run >= 0) f(t, static_cast<size_t>(t.run % kRunSlots));
  };
  each([&](ResidentTensor& t, size_t slot) {
    place(t, used[t.run]);
    slots[slot] = std::max(slots[slot], used[t.run]);
  });
  for (size_t slot = 0; slot < base.size(); ++slot) {
    base[slot] = top;
    top = sum_of_bytes(top, slots[slot]);
  }
  each([&](ResidentTensor& t, size_t slot) {
    t.place.offset = sum_of_bytes(t.place.offset, base[slot]);
  });
}

void set_runs(const RunOfSum& runs, ResidentParam& param) {
  const auto accumulators = param.of(Role::accumulator);
  if (accumulators.empty() || !runs.contains({param.param, accumulators.front().sum})) return;
  for (ResidentTensor& t : param.tensors)
    if (t.role == Role::accumulator) t.run = runs.at({param.param, t.sum});
}

// Of an owner whose sums are in runs, or whose last sum can be that of one of several updates.
void add_gradient(ResidentParam& param) {
  const auto accumulators = param.of(Role::accumulator);
  if (!param.owned || accumulators.empty()) return;
  const ResidentTensor& last = accumulators.back();
  if (last.run < 0 && (last.local || last.count == 1)) return;
  const auto first = std::find_if(param.tensors.begin(), param.tensors.end(),
                                  [](const ResidentTensor& t) { return t.role > Role::gradient; });
  param.tensors.insert(first, {.role = Role::gradient, .desc = first->desc});
}

// The uses of a parameter on a rank.
struct LocalUses {
  std::vector<bool> sums;  // per sum of uses
  // The packed forms that products read: transposed or not, of which type; and whether a copy
  // beside the value pays.
  std::map<std::pair<bool, DType>, bool> forms;
  bool all_pay = true;     // for all products
  bool unpacked = false;   // something can read the value in order only
  bool by_others = false;  // ranks that do not update the parameter use it, too
};

// Packing a float32 weight takes the time of a product with some rows. gemm() packs for each
// product unless there is a kept copy, which takes memory and serves all micro-batches of a step.
// With many rows a copy saves 2 to 3 % of a step: then only that of a small weight pays.
constexpr int64_t kManyRows = 256;
constexpr int64_t kSmallWeight = 1 << 18;  // elements

bool serves_several(const Model& model, const PlanConfig& config) {
  return !makes(model, config, Mode::train) || config.micro_batches >= 2 * config.data;
}

void add_use(const Model& model, const PlanConfig& config, const Param::Use& use, LocalUses& uses) {
  const Node& node = model.node(use.node);
  if (use.port == 0 && node.op->copies_weight()) return;
  if (use.port != 0 || !node.op->multiplies_weight() ||
      !keeps_packed(config, model.param(node.weights.front()))) {
    uses.unpacked = true;
    return;
  }
  const DType dtype = node.stored_as(config.values());
  const bool copy =
      pays_to_pack(model, config, node) && (dtype == DType::bf16 || serves_several(model, config));
  uses.all_pay = uses.all_pay && copy;
  const auto add = [&](bool transposed) {
    bool& form = uses.forms[{transposed, dtype}];
    form = form || copy;
  };
  const bool transposed = node.op->multiplies_transposed(node.attrs);
  add(transposed);
  if (makes(model, config, Mode::train) && model.node(node.in.front()).needs_grad) add(!transposed);
}

// Whether steps change the value of a parameter.
bool changes(const Model& model, const PlanConfig& config, ParamId param) {
  return makes(model, config, Mode::train) && !model.param(param).training.frozen;
}

// Whether the rank stores a value only as its products read it; what copies elements reads them
// from there. Of a value that does not change, this takes no time to pack. Two forms in place of a
// value and no copy would take more memory.
bool only_packed(const Model& model, const PlanConfig& config, ParamId param, DType stored,
                 const LocalUses& uses) {
  const bool of_one_type = std::all_of(uses.forms.begin(), uses.forms.end(), [&](const auto& form) {
    return form.first.second == stored;
  });
  return !changes(model, config, param) && !uses.unpacked && of_one_type &&
         (uses.forms.size() == 1 || (uses.forms.size() == 2 && uses.all_pay));
}

// Whether only W changes an accumulator, and only some of its rows. Sums of other replicas and uses
// are added to the one where the gradient ends, or the gradient arrives there.
bool is_by_rows(const Model& model, const ResidentParam& resident, const ResidentTensor& t,
                int32_t replicas) {
  if (!t.local || t.run >= 0 || (resident.owned && replicas > 1)) return false;
  const bool is_gradient = resident.updated && t.sum == resident.of(Role::accumulator).back().sum;
  if (is_gradient && !(resident.owned && t.sum == 0)) return false;
  const Param& param = model.param(resident.param);
  return std::all_of(param.uses.begin(), param.uses.end(), [&](const Param::Use& use) {
    return use.sum != t.sum || model.node(use.node).op->adds_rows();
  });
}

ResidentParam resident_param(const Model& model, const PlanConfig& config, ParamId param,
                             bool owned, const LocalUses& uses, const Replica& replica) {
  const std::vector<bool>& local = uses.sums;
  const Desc desc = model.param(param).desc();
  const bool frozen = model.param(param).training.frozen;
  const bool updated = !frozen && (owned || (config.shard == "none" && local.front()));
  const Desc stored = stored_desc(model, config, param, updated);
  ResidentParam out{
      .param = param, .owned = owned, .updated = updated, .dtype = stored.dtype, .tensors = {}};
  const bool packed = only_packed(model, config, param, stored.dtype, uses);
  if (!packed && (owned || config.shard != "parameters"))
    out.tensors.push_back({.role = Role::value, .desc = stored});
  for (const auto& [form, copy] : uses.forms)
    if (packed || copy)
      out.tensors.push_back({.role = Role::packed,
                             .desc = packed_desc(form.second, desc.shape, form.first),
                             .transposed = form.first});
  if (!changes(model, config, param)) return out;
  const Desc sent = stored_desc(model, config, param, false);
  if (updated && uses.by_others && sent.dtype != stored.dtype)
    out.tensors.push_back({.role = Role::sent, .desc = sent});
  for (size_t s = 0; s < local.size(); ++s)
    for (int32_t d = 0; d < replica.count; ++d) {
      const bool here = local[s] && d == replica.number;
      if (!owned && !here) continue;
      out.tensors.push_back({.role = Role::accumulator,
                             .desc = desc,
                             .sum = static_cast<int32_t>(s),
                             .replica = d,
                             .local = here,
                             .count = here       ? stack_of(config.gradient_groups / config.data)
                                      : local[s] ? 1
                                                 : replica.in_flight});
    }
  const int states = model.param(param).has_gradient() ? slots(config.optim) : 0;
  for (int s = 0; out.updated && s < states; ++s)
    out.tensors.push_back({.role = Role::state, .desc = desc});
  if (owned)
    out.tensors.push_back(
        {.role = Role::squares, .desc = {DType::f64, {norm_blocks(desc.elements())}}});
  set_runs(*replica.runs, out);
  add_gradient(out);
  for (ResidentTensor& t : out.tensors)
    t.by_rows = t.role == Role::accumulator && is_by_rows(model, out, t, replica.count);
  return out;
}

// Whether the use rounds the value to bf16, or what it copies from it. Outputs of the model are not
// rounded.
bool rounds(const Model& model, const PlanConfig& config, const Param::Use& use) {
  const Node& node = model.node(use.node);
  const auto& outputs = model.outputs();
  const bool output = std::find(outputs.begin(), outputs.end(), use.node) != outputs.end();
  return node.stored_as(config.values()) == DType::bf16 && use.port == 0 &&
         (node.op->multiplies_weight() || (node.op->copies_weight() && !output));
}

}  // namespace

Desc stored_desc(const Model& model, const PlanConfig& config, ParamId id, bool updates) {
  const Param& param = model.param(id);
  // No group freezes it, and another plan may train it.
  const bool trains_later = makes(model, config, Mode::train) && param.training.off_loss;
  const bool exact =
      trains_later || (changes(model, config, id) && (updates || config.segment > 0));
  const bool is_bf16 =
      config.values() == DType::bf16 && !exact &&
      std::all_of(param.uses.begin(), param.uses.end(),
                  [&](const Param::Use& use) { return rounds(model, config, use); });
  return {is_bf16 ? DType::bf16 : DType::f32, param.local};
}

bool pays_to_pack(const Model& model, const PlanConfig& config, const Node& node) {
  if (node.stored_as(config.values()) == DType::bf16) return true;
  const Shape& weight = model.param(node.weights.front()).desc().shape;
  return rows_of_product(model, config, node) <= kManyRows || weight.elements() <= kSmallWeight;
}

int64_t rows_of_product(const Model& model, const PlanConfig& config, const Node& node) {
  const Shape& in = model.desc(node.in.front(), config.micro_batch_size).shape;
  return in.elements(0, in.rank - 1);
}

bool multiplies_transposed(const Node& node, CallKind kind) {
  return node.op->multiplies_transposed(node.attrs) != (kind == CallKind::input_grad);
}

Desc packed_desc(DType dtype, const Shape& weight, bool transposed) {
  const int64_t k = weight[transposed ? 1 : 0], n = weight[transposed ? 0 : 1];
  if (dtype == DType::f32) return {dtype, {packed_floats(k, n)}};
  return {dtype, {kernels::packed_bf16_bytes(k, n) / static_cast<int64_t>(sizeof(kernels::Bf16))}};
}

std::vector<std::vector<ResidentParam>> residents_of(
    const Model& model, const PlanConfig& config, std::span<const ParamId> params,
    const std::vector<int32_t>& owners, int32_t ranks, const RanksOfNode& ranks_of,
    const std::function<Replica(int32_t)>& replica_of) {
  std::vector<std::vector<ResidentParam>> out(static_cast<size_t>(ranks));
  for (const ParamId p : params) {
    std::map<int32_t, LocalUses> local;  // per rank that uses it
    const Param& param = model.param(p);
    bool elsewhere = false;
    for (const Param::Use& use : param.uses) {
      const std::vector<int32_t> users = ranks_of(use.node);
      elsewhere = elsewhere || users.empty();
      for (const int32_t rank : users) {
        LocalUses& uses = local[rank];
        uses.sums.resize(static_cast<size_t>(param.sums));
        uses.sums[static_cast<size_t>(use.sum)] = true;
        add_use(model, config, use, uses);
      }
    }
    for (auto& [rank, here] : local) {
      const Replica replica = replica_of(rank);
      const int32_t updaters = config.shard == "none" ? replica.count : 1;
      here.by_others = elsewhere || static_cast<int32_t>(local.size()) > updaters;
      out[static_cast<size_t>(rank)].push_back(
          resident_param(model, config, p, rank == owners[static_cast<size_t>(p)], here, replica));
    }
  }
  return out;
}

int64_t place_residents(const Model& model, std::vector<ResidentParam>& resident,
                        WeightVersions& versions) {
  int64_t top = 0;
  const auto place_all = [&](auto&& wanted) {
    for (ResidentParam& p : resident)
      for (ResidentTensor& t : p.tensors)
        if (t.run < 0 && wanted(p, t.role == Role::value)) place(t, top);
  };
  const auto has_versions = [&model](const ResidentParam& p) {
    return p.dtype == DType::f32 && !model.param(p.param).training.frozen;
  };
  place_all([&](const ResidentParam& p, bool value) { return value && has_versions(p); });
  versions.stride = top;
  top = bytes_of_many(top, versions.count);
  place_all([&](const ResidentParam& p, bool value) { return value && !has_versions(p); });
  place_all([](const ResidentParam&, bool value) { return !value; });
  place_runs(resident, top);
  return top;
}

std::vector<std::vector<ResidentState>> states_of(const Model& model, const PlanConfig& config,
                                                  std::span<const NodeId> nodes, int32_t ranks,
                                                  const RanksOfNode& ranks_of) {
  std::vector<std::vector<ResidentState>> out(static_cast<size_t>(ranks));
  if (!makes(model, config, Mode::infer) && !makes(model, config, Mode::fill)) return out;
  for (const NodeId id : nodes)
    for (const Desc& desc : model.node(id).one.state)
      for (const int32_t rank : ranks_of(id))
        out[static_cast<size_t>(rank)].push_back({.node = id, .desc = desc});
  return out;
}

void place_states(std::vector<ResidentState>& states, int64_t& top) {
  for (ResidentState& state : states) {
    state.place = {0, top};
    top = sum_of_bytes(top, padded_bytes(state.desc));
  }
}

std::vector<int32_t> choose_owners(const Model& model, const PlanConfig& config,
                                   std::span<const ParamId> params, int32_t ranks,
                                   const RanksOfNode& ranks_of) {
  struct Sized {
    bool frozen;
    int64_t bytes;
    ParamId param;
  };
  std::vector<Sized> order;
  for (const ParamId p : params)
    order.push_back(
        {model.param(p).training.frozen, padded_bytes(stored_desc(model, config, p, true)), p});
  std::stable_sort(order.begin(), order.end(), [](const Sized& a, const Sized& b) {
    return std::pair(a.frozen, -a.bytes) < std::pair(b.frozen, -b.bytes);
  });
  std::vector<int64_t> owned(static_cast<size_t>(ranks), 0);
  std::vector<int32_t> out(model.params().size(), -1);
  for (const Sized& next : order) {
    int32_t& owner = out[static_cast<size_t>(next.param)];
    for (const int32_t rank : ranks_of(model.param(next.param).uses.front().node))
      if (owner < 0 || owned[static_cast<size_t>(rank)] < owned[static_cast<size_t>(owner)])
        owner = rank;
    if (owner < 0) continue;
    int64_t& bytes = owned[static_cast<size_t>(owner)];
    bytes = sum_of_bytes(bytes, next.bytes);
  }
  return out;
}

std::vector<int32_t> updaters_of(const Plan& plan, ParamId param) {
  const int32_t owner = plan.owner_of_param[static_cast<size_t>(param)];
  if (plan.config.shard != "none") return {owner};
  std::vector<int32_t> out;
  for (int32_t d = 0; d < plan.config.data; ++d)
    out.push_back(plan.rank_of_node(plan.model->param(param).uses.front().node, d));
  return out;
}

void place_parameters(Plan& plan) {
  const int32_t ranks = plan.config.ranks;
  const auto ranks_of = [&plan](NodeId node) {
    std::vector<int32_t> out;
    for (int32_t d = 0; d < plan.replicas_of_node(node); ++d)
      out.push_back(plan.rank_of_node(node, d));
    return out;
  };
  const std::vector<RunOfSum> runs = gradient_runs(plan);
  const RunOfSum none;  // replicas of single stages keep their accumulators
  std::vector<ParamId> params(plan.model->params().size());
  std::iota(params.begin(), params.end(), 0);
  std::vector<NodeId> nodes(plan.model->nodes().size());
  std::iota(nodes.begin(), nodes.end(), 0);
  plan.owner_of_param = choose_owners(*plan.model, plan.config, params, ranks, ranks_of);
  plan.resident = residents_of(*plan.model, plan.config, params, plan.owner_of_param, ranks,
                               ranks_of, [&](int32_t rank) {
                                 const auto at = static_cast<size_t>(plan.position_of(rank));
                                 return Replica{plan.replica_of(rank), plan.replicas_at(rank),
                                                at < runs.size() ? &runs[at] : &none,
                                                plan.versions[static_cast<size_t>(rank)].in_flight};
                               });
  plan.states = states_of(*plan.model, plan.config, nodes, ranks, ranks_of);
  plan.permanent_bytes.clear();
  for (size_t r = 0; r < plan.resident.size(); ++r) {
    int64_t top = place_residents(*plan.model, plan.resident[r], plan.versions[r]);
    place_states(plan.states[r], top);
    plan.permanent_bytes.push_back(top);
  }
}

const ResidentParam& resident_of(const Plan& plan, int32_t rank, ParamId param) {
  const auto& list = plan.resident[static_cast<size_t>(rank)];
  const auto it = std::lower_bound(list.begin(), list.end(), param,
                                   [](const ResidentParam& r, ParamId id) { return r.param < id; });
  assert(it != list.end() && it->param == param);
  return *it;
}

const ResidentTensor& accumulator_of(const Plan& plan, int32_t rank, ParamId param, int32_t sum,
                                     int32_t replica) {
  const auto all = resident_of(plan, rank, param).of(Role::accumulator);
  const auto it = std::find_if(all.begin(), all.end(), [&](const ResidentTensor& t) {
    return t.sum == sum && t.replica == replica;
  });
  assert(it != all.end());
  return *it;
}

}  // namespace weft
