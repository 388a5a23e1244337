#include "engine/controller.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/text.h"
#include "engine/steps.h"

namespace weft {

RankTimes on_our_clock(const RankTimes& theirs, int64_t begin_sent, int64_t end_received) {
  const int64_t least = theirs.end_sent - end_received, most = theirs.begin_received - begin_sent;
  if (least <= 0 && most >= 0) return theirs;
  const int64_t ahead = least + (most - least) / 2;
  return {theirs.begin - ahead, theirs.end - ahead, theirs.busy, theirs.begin_received - ahead,
          theirs.end_sent - ahead};
}

Controller::Controller(std::shared_ptr<const Plan> plan)
    : plan_(std::move(plan)), steps_(kStepsAtOnce) {
  const size_t ranks = static_cast<size_t>(plan_->config.ranks),
               m = static_cast<size_t>(plan_->most_micro_batches());
  owned_.resize(ranks);
  for (size_t r = 0; r < ranks; ++r)
    for (const ResidentParam& p : plan_->resident[r])
      if (p.owned) owned_[r].push_back(p.param);
  squares_.resize(plan_->model->params().size() *
                  static_cast<size_t>(std::max(plan_->config.segment, 1)));
  size_t feeds = 0;
  for (const ModePlan& mode : plan_->modes) {
    if (!mode.present) continue;
    Ends& ends = ends_[static_cast<size_t>(mode.mode)];
    ends.sinks = static_cast<int32_t>(mode.graph.sinks.size());
    for (int32_t e : mode.ranks[0].edges)
      if (mode.edges[static_cast<size_t>(e)].kind == EdgeKind::feed) ends.feeds.push_back(e);
    feeds = std::max(feeds, ends.feeds.size());
  }
  updates_.reserve(static_cast<size_t>(plan_->config.segment));
  ready_.resize(ranks);
  idle_.resize(ranks);
  for (Running& running : steps_) {
    running.feeds.reserve(feeds);
    running.losses.resize(m);
    running.due.resize(m);
    running.done.resize(ranks);
    running.times.resize(ranks);
  }
}

Status Controller::begin(const StepDescriptor& step, ControllerEffects& effects) {
  if (!idle() && (!step.overlaps || begun_ - finished_ == kStepsAtOnce))
    return Status(Code::state, cat("step ", finished_, " still runs"));
  Running& running = steps_[begun_ % kStepsAtOnce];
  running.step = step;
  running.step.sequence = begun_++;
  running.fed = step.fed > 0 ? step.fed : step.micro_batches;
  running.open = !step.overlaps;
  std::fill(running.losses.begin(), running.losses.end(), 0.0);
  std::fill(running.done.begin(), running.done.end(), uint8_t{0});
  running.missing_done = plan_->config.ranks;
  if (step.mode == Mode::train) {
    std::fill(ready_.begin(), ready_.end(), uint8_t{0});
    missing_ready_ = plan_->config.ranks;
  }
  const Ends& ends = ends_[static_cast<size_t>(step.mode)];
  std::fill(running.due.begin(), running.due.end(), ends.sinks);
  running.reported = 0;
  running.missing_deliveries = ends.sinks * step.micro_batches;

  Control message{.kind = ControlKind::begin,
                  .step = running.step,
                  .sequence = running.step.sequence,
                  .scale = 1,
                  .squares = {}};
  for (int32_t r = 0; r < plan_->config.ranks; ++r) effects.control(r, message);
  running.feeds.clear();
  for (int32_t e : ends.feeds) {
    const Edge& edge = mode_of(running).edges[static_cast<size_t>(e)];
    const MicroBatches& all = edge.micro_batches;
    Feed& feed = running.feeds.emplace_back(Feed{e, all.first, all.first});
    while (!step.overlaps && feed.granted < std::min(edge.open, step.micro_batches))
      feed.granted += all.stride;
    send_inputs(running, feed, effects);
  }
  return {};
}

void Controller::send_inputs(const Running& running, Feed& feed, ControllerEffects& effects) {
  const int32_t stride =
      mode_of(running).edges[static_cast<size_t>(feed.edge)].micro_batches.stride;
  for (; feed.next < std::min(feed.granted, running.fed); feed.next += stride)
    effects.post(running.step, feed.edge, feed.next, false);
}

Status Controller::feed(int32_t micro_batches, ControllerEffects& effects) {
  if (idle()) return Status(Code::state, "no step runs that inputs could be for");
  Running& running = *find_running(finished_);
  if (micro_batches <= running.fed) return {};
  running.fed = std::min(micro_batches, running.step.micro_batches);
  for (Feed& feed : running.feeds) send_inputs(running, feed, effects);
  return {};
}

void Controller::open_sinks(ControllerEffects& effects) {
  if (idle() || oldest().open) return;
  Running& running = *find_running(finished_);
  running.open = true;
  const ModePlan& mode = mode_of(running);
  for (int32_t e : mode.ranks[0].edges) {
    const Edge& edge = mode.edges[static_cast<size_t>(e)];
    if (edge.kind != EdgeKind::sink) continue;
    const MicroBatches& all = edge.micro_batches;
    for (int32_t mb = all.first; mb < std::min(all.end, running.step.micro_batches);
         mb += all.stride)
      effects.grant(running.step, e, mb);
  }
}

Result<Controller::Running*> Controller::check_tag(uint64_t sequence, int32_t edge,
                                                   int32_t micro_batch, EdgeKind kind) {
  Running* const running = find_running(sequence);
  if (!running)
    return Status(Code::protocol, cat("message of step ", sequence, ", which does not run"));
  const ModePlan& mode = mode_of(*running);
  if (edge < 0 || static_cast<size_t>(edge) >= mode.edges.size() ||
      mode.edges[static_cast<size_t>(edge)].kind != kind)
    return Status(Code::protocol, cat("edge ", edge, " is not a ", edge_kind_name(kind)));
  if (!mode.edges[static_cast<size_t>(edge)].has(micro_batch) ||
      micro_batch >= running->step.micro_batches)
    return Status(Code::protocol,
                  cat("micro-batch ", micro_batch, " of a step of ", running->step.micro_batches));
  return running;
}

Status Controller::granted(uint64_t sequence, int32_t edge, int32_t micro_batch,
                           ControllerEffects& effects) {
  WEFT_TRY_ASSIGN(Running * running, check_tag(sequence, edge, micro_batch, EdgeKind::feed));
  Feed& feed = *std::find_if(running->feeds.begin(), running->feeds.end(),
                             [edge](const Feed& f) { return f.edge == edge; });
  if (micro_batch != feed.granted)
    return Status(Code::protocol, cat("edge ", edge, " grants micro-batch ", micro_batch,
                                      ", expected ", feed.granted));
  feed.granted += mode_of(*running).edges[static_cast<size_t>(edge)].micro_batches.stride;
  send_inputs(*running, feed, effects);
  return {};
}

Status Controller::delivered(uint64_t sequence, int32_t edge, int32_t micro_batch, double loss,
                             ControllerEffects& effects) {
  WEFT_TRY_ASSIGN(Running * running, check_tag(sequence, edge, micro_batch, EdgeKind::sink));
  if (!running->open)
    return Status(Code::protocol, cat("delivery of step ", sequence, ", which has no grant"));
  int32_t& due = running->due[static_cast<size_t>(micro_batch)];
  if (due == 0)
    return Status(Code::protocol,
                  cat("edge ", edge, ", micro-batch ", micro_batch, " was delivered twice"));
  --due;
  --running->missing_deliveries;
  const StepGraph& graph = mode_of(*running).graph;
  const TensorId tensor = mode_of(*running).edges[static_cast<size_t>(edge)].tensor;
  if (graph.tensors[static_cast<size_t>(tensor)].node == plan_->model->loss())
    running->losses[static_cast<size_t>(micro_batch)] = loss;
  // Replicas deliver side by side.
  while (running->reported < running->step.micro_batches &&
         running->due[static_cast<size_t>(running->reported)] == 0)
    effects.micro_batch(running->reported++);
  finish_if_over(*running, effects);
  return {};
}

Status Controller::received(int32_t rank, const Control& message, ControllerEffects& effects) {
  if (rank < 0 || rank >= plan_->config.ranks)
    return Status(Code::protocol, cat("rank ", rank, " is not one of ", plan_->config.ranks));
  Running* const running = find_running(message.sequence);
  if (!running)
    return Status(Code::protocol, cat("rank ", rank, " sent a message of step ", message.sequence,
                                      ", which does not run"));
  const size_t r = static_cast<size_t>(rank);
  if (message.kind == ControlKind::ready) return ready(r, message, effects);
  if (message.kind == ControlKind::done) {
    if (running->done[r])
      return Status(Code::protocol,
                    cat("rank ", rank, " is done twice in step ", message.sequence));
    if (message.sequence > finished_ && !at(message.sequence - 1).done[r])
      return Status(Code::protocol, cat("rank ", rank, " is done with step ", message.sequence,
                                        " before the step before it"));
    running->done[r] = 1;
    running->times[r] = message.times;
    --running->missing_done;
    finish_if_over(*running, effects);
    return {};
  }
  return Status(Code::protocol,
                cat("rank ", rank, " sent a message that only the controller sends"));
}

Status Controller::ready(size_t rank, const Control& message, ControllerEffects& effects) {
  const StepDescriptor& step = at(message.sequence).step;
  if (step.mode != Mode::train)
    return Status(Code::protocol, cat("rank ", rank, " is ready in a step of mode ",
                                      mode_name(step.mode), ", which has no gradients"));
  if (ready_[rank])
    return Status(Code::protocol, cat("rank ", rank, " is ready twice in step ", step.sequence));
  const std::vector<ParamId>& owned = owned_[rank];
  const size_t sums = static_cast<size_t>(std::max(updates_at(plan_->versions[rank], step), 1)),
               params = plan_->model->params().size();
  if (message.squares.size() != owned.size() * sums)
    return Status(Code::protocol,
                  cat("rank ", rank, " sent ", message.squares.size(), " norms, it owns ",
                      owned.size(), " parameters and made ", sums, " sums"));
  ready_[rank] = 1;
  // An update of a stage with replicas belongs to all its micro-batches.
  const size_t each = static_cast<size_t>(std::max(updates_of(step), 1)) / sums;
  for (size_t i = 0; i < message.squares.size(); ++i)
    for (size_t u = i / owned.size() * each; u < (i / owned.size() + 1) * each; ++u)
      squares_[u * params + static_cast<size_t>(owned[i % owned.size()])] = message.squares[i];
  if (--missing_ready_ == 0) commit(step, effects);
  return {};
}

void Controller::commit(const StepDescriptor& step, ControllerEffects& effects) {
  const size_t params = plan_->model->params().size();
  updates_.clear();
  for (int32_t u = 0; u < std::max(updates_of(step), 1); ++u) {
    double sum = 0;
    for (size_t p = 0; p < params; ++p)
      sum += squares_[static_cast<size_t>(u) * params + p];  // from any rank
    result_.grad_norm = std::sqrt(sum);
    if (step.per_update > 0) updates_.push_back({.loss = 0, .grad_norm = result_.grad_norm});
  }
  result_.scale = clip_scale(plan_->config.optim, result_.grad_norm);
  Control message{.kind = ControlKind::commit,
                  .step = {},
                  .sequence = step.sequence,
                  .scale = result_.scale,
                  .squares = {}};
  if (step.update)
    for (int32_t r = 0; r < plan_->config.ranks; ++r) effects.control(r, message);
}

void Controller::finish_if_over(Running& running, ControllerEffects& effects) {
  if (running.missing_done > 0 || running.missing_deliveries > 0) return;
  const StepDescriptor& step = running.step;
  const auto loss_of = [&running](int32_t first, int32_t end) {
    return std::accumulate(running.losses.begin() + first, running.losses.begin() + end, 0.0);
  };
  result_.step = step;
  result_.loss = loss_of(0, step.micro_batches) / step.denominator;
  if (step.mode != Mode::train) {
    result_.grad_norm = 0;
    result_.scale = 1;
    updates_.clear();
  }
  for (size_t u = 0; u < updates_.size(); ++u) {
    const int32_t first = static_cast<int32_t>(u) * step.per_update;
    updates_[u].loss = loss_of(first, std::min(first + step.per_update, step.micro_batches)) /
                       denominator_of(step, first);
  }
  result_.updates = updates_;
  measure_idle(running);
  ++finished_;
  effects.step_done(result_);
}

void Controller::measure_idle(const Running& running) {
  int64_t begin = std::numeric_limits<int64_t>::max(), end = std::numeric_limits<int64_t>::min();
  for (const RankTimes& t : running.times) {
    if (t.end <= t.begin) continue;  // the rank had no action
    begin = std::min(begin, t.begin);
    end = std::max(end, t.end);
  }
  double sum = 0;
  for (size_t r = 0; r < running.times.size(); ++r) {
    idle_[r] = end > begin ? 1 - static_cast<double>(running.times[r].busy) /
                                     static_cast<double>(end - begin)
                           : 0;
    sum += idle_[r];
  }
  result_.idle_by_rank = idle_;
  result_.idle = sum / static_cast<double>(running.times.size());
}

std::string Controller::describe() const {
  if (idle()) return cat("no step runs, ", finished_, " done");
  const Running& running = oldest();
  if (!running.open)
    return cat("step ", running.step.step + 1,
               " waits until the program has polled the step before it");
  std::string late;
  for (size_t r = 0; r < running.done.size(); ++r)
    if (!running.done[r]) late += cat(late.empty() ? "" : ", ", r);
  return cat("step ", running.step.step + 1, " waits for rank ", late);
}

}  // namespace weft
