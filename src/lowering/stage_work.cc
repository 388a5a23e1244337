#include "lowering/stage_work.h"

#include <algorithm>

namespace weft {

bool StageWork::second(int32_t phase, TensorId t, bool writes) const {
  if (phase == kPhaseF) return false;
  return writes ? remade.contains(t) : reads_remade.contains(t);
}

namespace {

// The forward calls of a stage that run again, and their phases.
class Remaking {
 public:
  Remaking(StageWork& work, int32_t calls_per_block)
      : work_(work),
        forward_(work.calls[kPhaseF]),
        per_block_(static_cast<size_t>(calls_per_block)) {
    for (size_t c = 0; c < forward_.size(); ++c)
      each_written(*forward_[c], [&](TensorId t) { maker_[t] = c; });
  }

  void run() {
    keep_what_crosses();
    find_calls();
    blocks_done_.assign(forward_.size() / per_block_ + 1, false);
    for (int32_t phase : {kPhaseI, kPhaseW}) {
      std::vector<const StepCall*> calls;
      for (const StepCall* call : work_.calls[static_cast<size_t>(phase)]) {
        each_read(*call, [&](TensorId t) {
          if (work_.reads_remade.contains(t)) remake(maker_.at(t) / per_block_, calls);
        });
        calls.push_back(call);
      }
      work_.calls[static_cast<size_t>(phase)] = std::move(calls);
    }
  }

 private:
  void keep_what_crosses() {
    for (size_t c = 0; c < forward_.size(); ++c)
      each_read(*forward_[c], [&](TensorId t) {
        if (auto it = maker_.find(t);
            it != maker_.end() && it->second / per_block_ != c / per_block_)
          kept_[t] = true;
      });
  }

  // A call runs again if the backward, or a call of its block that runs again, reads its output
  // and the output was not kept.
  void find_calls() {
    FlatMap<TensorId, bool> wanted;
    const auto want = [&](TensorId t) {
      if (maker_.contains(t) && !kept_.contains(t)) wanted[t] = true;
    };
    for (int32_t phase : {kPhaseI, kPhaseW})
      for (const StepCall* call : work_.calls[static_cast<size_t>(phase)]) each_read(*call, want);
    again_.assign(forward_.size(), false);
    for (size_t c = forward_.size(); c-- > 0;) {
      const StepCall& call = *forward_[c];
      each_written(call, [&](TensorId t) { again_[c] = again_[c] || wanted.contains(t); });
      if (!again_[c]) continue;
      each_written(call, [&](TensorId t) {
        work_.remade[t] = {};
        if (!kept_.contains(t)) work_.reads_remade[t] = true;
      });
      each_read(call, want);
    }
  }

  void remake(size_t block, std::vector<const StepCall*>& here) {
    if (blocks_done_[block]) return;
    blocks_done_[block] = true;
    auto& calls = any_ ? here : work_.calls[kPhaseR];
    any_ = true;
    for (size_t c = block * per_block_; c < std::min(forward_.size(), (block + 1) * per_block_);
         ++c)
      if (again_[c]) calls.push_back(forward_[c]);
  }

  StageWork& work_;
  const std::vector<const StepCall*> forward_;
  const size_t per_block_;           // calls
  FlatMap<TensorId, size_t> maker_;  // tensors that F makes: the call
  FlatMap<TensorId, bool> kept_;
  std::vector<bool> again_, blocks_done_;
  bool any_ = false;
};

void find_lives(StageWork& work) {
  for (int32_t phase = 0; phase < kPhases; ++phase)
    for (const StepCall* call : work.calls[static_cast<size_t>(phase)])
      each_tensor(*call, [&](TensorId t, bool made) {
        Life& life = (work.second(phase, t, made) ? work.remade : work.lives)[t];
        if (life.first < 0) life.first = phase;
        life.last = std::max(life.last, phase);
        life.made = life.made || made;
      });
}

}  // namespace

StageWork make_stage_work(const std::vector<const StepCall*>& calls, bool split,
                          int32_t calls_per_block) {
  StageWork out{.split = split, .calls = {}, .lives = {}, .remade = {}, .reads_remade = {}};
  for (const StepCall* call : calls) {
    const int32_t phase = call->kind == CallKind::forward                ? kPhaseF
                          : call->kind == CallKind::weight_grad && split ? kPhaseW
                                                                         : kPhaseI;
    out.calls[static_cast<size_t>(phase)].push_back(call);
  }
  if (calls_per_block > 0) Remaking(out, calls_per_block).run();
  find_lives(out);
  return out;
}

NodeTimes remade_seconds(const StageWork& work, const std::vector<NodeTimes>& times) {
  const auto seconds = [&](int32_t phase) {
    double sum = 0;
    for (const StepCall* call : work.calls[static_cast<size_t>(phase)])
      if (call->kind == CallKind::forward) sum += times[static_cast<size_t>(call->node)].forward;
    return sum;
  };
  return {.forward = seconds(kPhaseR), .input = seconds(kPhaseI), .weight = seconds(kPhaseW)};
}

std::vector<bool> split_stages(const Schedule& schedule) {
  std::vector<bool> out(static_cast<size_t>(schedule.stages), false);
  for (const auto& row : schedule.rows)
    for (const Action& a : row)
      if (a.kind == Kind::I || a.kind == Kind::W) out[static_cast<size_t>(a.stage)] = true;
  return out;
}

std::vector<StageWork> make_work(const StepGraph& graph, const std::vector<int32_t>& stage_of_node,
                                 const Schedule& schedule,
                                 const std::vector<int32_t>& calls_per_block) {
  const std::vector<bool> split = split_stages(schedule);
  std::vector<std::vector<const StepCall*>> calls(split.size());
  for (const StepCall& call : graph.calls)
    calls[static_cast<size_t>(stage_of_node[static_cast<size_t>(call.where)])].push_back(&call);
  std::vector<StageWork> out;
  for (size_t s = 0; s < split.size(); ++s)
    out.push_back(
        make_stage_work(calls[s], split[s], graph.mode == Mode::train ? calls_per_block[s] : 0));
  return out;
}

}  // namespace weft
