#include "lowering/holdings.h"

#include <algorithm>

#include "kernels/free_scratch.h"
#include "kernels/ranges.h"
#include "lowering/parameters.h"
#include "lowering/static_allocator.h"

namespace weft {

namespace {

class Account {
 public:
  Account(const StageWork& work, const StageTraffic& traffic, const Model& model,
          const StepGraph& graph, const GraphBytes& bytes)
      : work_(work), traffic_(traffic), model_(model), graph_(graph), bytes_(bytes) {}

  StageHoldings run() {
    for (TensorId t : traffic_.arrivals) add_arrival(t);
    for (const auto& [t, life] : work_.lives)
      if (life.made) add_made(t, life);
    for (const auto& [t, life] : work_.remade) keep(t, life, true);
    for (int32_t phase = 0; phase < kPhases; ++phase) pack(phase);
    return std::move(out_);
  }

 private:
  int64_t bytes_of(TensorId t) const { return bytes_.tensors[static_cast<size_t>(t)]; }

  void add_arrival(TensorId t) {
    const StepTensor& tensor = graph_.tensors[static_cast<size_t>(t)];
    const bool gradient = tensor.role == StepTensor::Role::grad;
    const Life& life = work_.lives.at(t);
    out_.list.push_back(
        {.kind = !gradient && model_.node(tensor.node).is_input() ? Holding::Kind::feed
                                                                  : Holding::Kind::landing,
         // The checker assumes that every gradient is held from I on, also one that only W reads.
         .first = gradient ? kPhaseI : life.first,
         .last = life.last,
         .tensors = {{t, false, 0}},
         .readers = {},
         .bytes = bytes_of(t)});
  }

  void add_made(TensorId t, const Life& life) {
    const auto shared = traffic_.shared.find(t);
    if (shared == traffic_.shared.end()) return keep(t, life, false);
    out_.list.push_back({.kind = Holding::Kind::shared,
                         .first = life.first,
                         .last = life.last,
                         .tensors = {{t, false, 0}},
                         .readers = shared->second,
                         .bytes = bytes_of(t)});
  }

  void keep(TensorId t, const Life& life, bool again) {
    if (life.first == life.last) {
      out_.temporaries[{again, t}] = 0;
      return;
    }
    const auto [at, fresh] = kept_.try_emplace({life.first, life.last}, out_.list.size());
    if (fresh)
      out_.list.push_back({.kind = Holding::Kind::kept,
                           .first = life.first,
                           .last = life.last,
                           .tensors = {},
                           .readers = {},
                           .bytes = 0});
    Holding& holding = out_.list[at->second];
    holding.tensors.push_back({t, again, holding.bytes});
    holding.bytes = sum_of_bytes(holding.bytes, bytes_of(t));
  }

  void pack(int32_t phase) {
    struct Span {
      size_t first, last;
    };
    const auto& calls = work_.calls[static_cast<size_t>(phase)];
    FlatMap<std::pair<bool, TensorId>, Span> spans;
    for (size_t c = 0; c < calls.size(); ++c) {
      each_written(*calls[c], [&](TensorId t) {
        if (const std::pair at(work_.second(phase, t, true), t); out_.temporaries.contains(at))
          spans[at] = {c, c};
      });
      each_read(*calls[c], [&](TensorId t) {
        if (auto it = spans.find({work_.second(phase, t, false), t}); it != spans.end())
          it->second.last = c;
      });
    }
    StaticAllocator packer;
    for (const auto& [at, span] : spans)
      out_.temporaries[at] = packer.place(bytes_of(at.second), span.first, span.last);
    for (size_t c = 0; c < calls.size(); ++c) {
      const int64_t need = bytes_.calls[static_cast<size_t>(calls[c] - graph_.calls.data())];
      if (need > 0) out_.call_scratch[{calls[c], phase}] = packer.place(need, c, c);
    }
    out_.scratch = std::max(out_.scratch, align_up(packer.size()));
  }

  const StageWork& work_;
  const StageTraffic& traffic_;
  const Model& model_;
  const StepGraph& graph_;
  const GraphBytes& bytes_;
  StageHoldings out_;
  std::map<std::pair<int32_t, int32_t>, size_t> kept_;  // first and last phase: which of the list
};

}  // namespace

// A replica has a part of the row, so that others follow one another there, and zb-auto changes the
// order after memory was counted.
int32_t most_together(const Schedule& train, int32_t micro_batches) {
  const bool has_w = std::any_of(train.rows.begin(), train.rows.end(), [](const auto& row) {
    return std::any_of(row.begin(), row.end(), [](const Action& a) { return a.kind == Kind::W; });
  });
  return has_w ? std::min(micro_batches, static_cast<int32_t>(kMostTogether)) : 1;
}

Shapes::Shapes(const Model& model, const PlanConfig& config, const Schedule& train)
    : model_(&model),
      values_(config.values()),
      together_(most_together(train, config.micro_batches)) {
  for (NodeId n = 0; n < static_cast<NodeId>(model.nodes().size()); ++n) {
    inferred_[0].push_back(model.infer(n, config.micro_batch_size));
    // Without a short micro-batch its shapes are not used, and an op need not support 0 samples.
    inferred_[1].push_back(config.short_size > 0 ? model.infer(n, config.short_size)
                                                 : inferred_[0].back());
    const Node& node = model.node(n);
    by_rows_.push_back(values_ == DType::bf16 && is_by_rows(node));
    keeps_packed_.push_back(!node.weights.empty() &&
                            keeps_packed(config, model.param(node.weights.front())));
  }
}

bool Shapes::is_by_rows(const Node& node) const {
  if (node.is_input()) return false;
  std::vector<Desc> in, weights;
  for (const NodeId id : node.in) in.push_back(of(id, 0).out);
  for (const ParamId id : node.weights) weights.push_back(model_->param(id).desc());
  return node.op->by_rows(node.attrs, in, weights);
}

Desc Shapes::desc(const StepGraph& graph, TensorId t, size_t variant) const {
  return graph.stored(t, computed(graph.tensors[static_cast<size_t>(t)], variant));
}

Desc Shapes::computed(const StepTensor& tensor, size_t variant) const {
  const Inferred& made = of(tensor.node, variant);
  return tensor.role == StepTensor::Role::stash ? made.stash[static_cast<size_t>(tensor.index)]
                                                : made.out;
}

bool Shapes::takes_bf16(const StepCall& call) const {
  const Node& node = model_->node(call.node);
  return node.stored_as(values_) == DType::bf16 && !folds(call.kind) && call.weight <= 0 &&
         node.op->multiplies_weight();
}

int64_t Shapes::op_scratch(const StepCall& call) const {
  if (folds(call.kind)) return 0;
  const Inferred& made = of(call.node, 0);
  if (!takes_bf16(call)) return align_up(static_cast<int64_t>(made.scratch));
  if (call.kind != CallKind::weight_grad) return 0;
  const Node& node = model_->node(call.node);
  return align_up(node.op->bf16_scratch(of(node.in.front(), 0).out,
                                        model_->param(node.weights.front()).desc(), together_));
}

int64_t Shapes::packed_scratch(const StepCall& call) const {
  if (!takes_bf16(call) || call.kind == CallKind::weight_grad ||
      keeps_packed_[static_cast<size_t>(call.node)])
    return 0;
  const Node& node = model_->node(call.node);
  const Shape& weight = model_->param(node.weights.front()).local;
  return padded_bytes(packed_desc(DType::bf16, weight, multiplies_transposed(node, call.kind)));
}

bool Shapes::sums_bf16(const StepGraph& graph, const StepCall& call) const {
  if (folds(call.kind)) return false;
  const Op& op = *model_->node(call.node).op;
  const bool sums =
      call.kind == CallKind::weight_grad || (call.kind == CallKind::forward && op.is_loss());
  if (!sums || !op.sums_bf16()) return false;
  bool all = true;
  each_tensor(call, [&](TensorId t, bool written) {
    const bool is_stash = graph.tensors[static_cast<size_t>(t)].role == StepTensor::Role::stash;
    if (!written && !is_stash && desc(graph, t, 0).dtype == DType::f32) all = false;
  });
  return all;
}

bool Shapes::is_by_rows(const StepCall& call) const {
  if (folds(call.kind)) return call.kind == CallKind::add;
  if (call.kind == CallKind::weight_grad) return false;
  const bool is_loss = model_->node(call.node).op->is_loss();
  return by_rows_[static_cast<size_t>(call.node)] && !(call.kind == CallKind::forward && is_loss);
}

int64_t Shapes::rows_of(const StepCall& call) const {
  const NodeId first = folds(call.kind) ? call.node : model_->node(call.node).in.front();
  const Shape& shape = of(first, 0).out.shape;
  return std::max<int64_t>(1, shape.elements(0, shape.rank - 1));
}

int64_t Shapes::rows_of_block(const StepGraph& graph, const StepCall& call) const {
  const int64_t rows = rows_of(call);
  int64_t widest = 0;
  each_tensor(call, [&](TensorId t, bool) {
    widest = std::max(widest, desc(graph, t, 0).elements() / rows);
  });
  return std::min(rows, tile_rows(widest));
}

int64_t Shapes::bytes_of_copy(const StepGraph& graph, const StepCall& call, const Desc& stored,
                              bool written) const {
  if (takes_bf16(call))
    return stored.dtype == DType::f32 && !written ? padded_bytes({DType::bf16, stored.shape}) : 0;
  if (stored.dtype != DType::bf16 || sums_bf16(graph, call)) return 0;
  if (!is_by_rows(call)) return padded_bytes({DType::f32, stored.shape});
  return padded_bytes(
      {DType::f32, {rows_of_block(graph, call), stored.elements() / rows_of(call)}});
}

int64_t Shapes::bytes_of_part(const StepGraph& graph, const StepCall& call) const {
  int64_t out = sum_of_bytes(op_scratch(call), packed_scratch(call));
  each_tensor(call, [&](TensorId t, bool written) {
    out = sum_of_bytes(out, bytes_of_copy(graph, call, desc(graph, t, 0), written));
  });
  return out;
}

RowBlocks Shapes::row_blocks(const StepGraph& graph, const StepCall& call) const {
  if (!is_by_rows(call)) return {};
  bool converts = false;
  each_tensor(call, [&](TensorId t, bool) {
    converts = converts || desc(graph, t, 0).dtype == DType::bf16;
  });
  if (!converts) return {};
  const int64_t rows = rows_of_block(graph, call);
  return {.rows = rows,
          .parts = std::min(kMostParts, (rows_of(call) + rows - 1) / rows),
          .bytes = bytes_of_part(graph, call)};
}

int64_t Shapes::scratch(const StepGraph& graph, const StepCall& call) const {
  if (const RowBlocks blocks = row_blocks(graph, call))
    return bytes_of_many(blocks.bytes, blocks.parts);
  return bytes_of_part(graph, call);
}

GraphBytes Shapes::bytes(const StepGraph& graph) const {
  GraphBytes out;
  for (TensorId t = 0; t < static_cast<TensorId>(graph.tensors.size()); ++t)
    out.tensors.push_back(padded_bytes(desc(graph, t, 0)));
  for (const StepCall& call : graph.calls) out.calls.push_back(scratch(graph, call));
  return out;
}

StageHoldings holdings_of(const StageWork& work, const StageTraffic& traffic, const Model& model,
                          const StepGraph& graph, const GraphBytes& bytes) {
  return Account(work, traffic, model, graph, bytes).run();
}

namespace {

std::vector<int32_t> every(int32_t turn, int32_t first, const std::vector<int32_t>& times) {
  if (turn == 1) return times;
  std::vector<int32_t> out;
  for (auto mb = static_cast<size_t>(first); mb < times.size(); mb += static_cast<size_t>(turn))
    out.push_back(times[mb]);
  return out;
}

}  // namespace

int32_t slots_of(const Holding& holding, int32_t stage, const std::vector<Holding::Reader>& readers,
                 const StageTimes& times, int32_t slack, int32_t turn) {
  const auto when = [&times](int32_t s, int32_t phase) -> const std::vector<int32_t>& {
    return times[static_cast<size_t>(s)][static_cast<size_t>(phase)];
  };
  const std::vector<int32_t>& begin = when(stage, holding.first);
  std::vector<int32_t> end = when(stage, holding.last);
  for (const Holding::Reader& reader : readers) {
    const std::vector<int32_t>& read = when(reader.stage, reader.phase);
    for (size_t mb = 0; mb < end.size(); ++mb) end[mb] = std::max(end[mb], read[mb]);
  }
  const bool arrives =
      holding.kind == Holding::Kind::feed || holding.kind == Holding::Kind::landing;
  const auto micro_batches = static_cast<int32_t>(begin.size());
  int32_t most = 0;
  for (int32_t first = 0; first < turn; ++first)
    most = std::max(most, slots_needed(every(turn, first, begin), every(turn, first, end)));
  return std::clamp(most + (arrives ? slack : 0), 1, std::max(micro_batches, 1));
}

}  // namespace weft
