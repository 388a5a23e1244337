#include "engine/controller.h"

#include <algorithm>
#include <cmath>

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

Controller::Controller(std::shared_ptr<const Plan> plan) : plan_(std::move(plan)) {
  const size_t ranks = static_cast<size_t>(plan_->config.ranks),
               m = static_cast<size_t>(plan_->most_micro_batches());
  owned_.resize(ranks);
  for (size_t r = 0; r < ranks; ++r)
    for (const ResidentParam& p : plan_->resident[r])
      if (p.owned) owned_[r].push_back(p.param);
  losses_.resize(m);
  due_.resize(m);
  squares_.resize(plan_->model->params().size() *
                  static_cast<size_t>(std::max(plan_->config.segment, 1)));
  for (const ModePlan& mode : plan_->modes) {
    if (!mode.present) continue;
    Ends& ends = ends_[static_cast<size_t>(mode.mode)];
    ends.sinks = static_cast<int32_t>(mode.graph.sinks.size());
    for (int32_t e : mode.ranks[0].edges) {
      const EdgeKind kind = mode.edges[static_cast<size_t>(e)].kind;
      if (kind == EdgeKind::feed) ends.feeds.push_back({e, 0, 0});
    }
  }
  updates_.reserve(static_cast<size_t>(plan_->config.segment));
  ready_.resize(ranks);
  done_.resize(ranks);
  times_.resize(ranks);
  idle_.resize(ranks);
}

Status Controller::begin(const StepDescriptor& step, ControllerEffects& effects) {
  if (running_) return Status(Code::state, cat("step ", step_.sequence, " still runs"));
  step_ = step;
  step_.sequence = next_sequence_;
  running_ = true;
  fed_ = step_.fed > 0 ? step_.fed : step_.micro_batches;
  std::fill(losses_.begin(), losses_.end(), 0.0);
  std::fill(ready_.begin(), ready_.end(), uint8_t{0});
  std::fill(done_.begin(), done_.end(), uint8_t{0});
  missing_ready_ = missing_done_ = plan_->config.ranks;
  Ends& ends = ends_[static_cast<size_t>(step_.mode)];
  std::fill(due_.begin(), due_.end(), ends.sinks);
  reported_ = 0;
  missing_deliveries_ = ends.sinks * step_.micro_batches;
  result_ = {};
  result_.step = step_;
  updates_.clear();

  Control message{.kind = ControlKind::begin,
                  .step = step_,
                  .sequence = step_.sequence,
                  .scale = 1,
                  .squares = {}};
  for (int32_t r = 0; r < plan_->config.ranks; ++r) effects.control(r, message);
  for (Feed& feed : ends.feeds) {
    const Edge& edge = mode().edges[static_cast<size_t>(feed.edge)];
    const MicroBatches& all = edge.micro_batches;
    feed.next = feed.granted = all.first;
    while (feed.granted < std::min(edge.open, step_.micro_batches)) feed.granted += all.stride;
    send_inputs(feed, effects);
  }
  return {};
}

void Controller::send_inputs(Feed& feed, ControllerEffects& effects) {
  const int32_t stride = mode().edges[static_cast<size_t>(feed.edge)].micro_batches.stride;
  for (; feed.next < std::min(feed.granted, fed_); feed.next += stride)
    effects.post(feed.edge, feed.next, false);
}

Status Controller::feed(int32_t micro_batches, ControllerEffects& effects) {
  if (!running_) return Status(Code::state, "no step runs that inputs could be for");
  if (micro_batches <= fed_) return {};
  fed_ = std::min(micro_batches, step_.micro_batches);
  for (Feed& feed : ends_[static_cast<size_t>(step_.mode)].feeds) send_inputs(feed, effects);
  return {};
}

Status Controller::check_tag(uint64_t sequence, int32_t edge, int32_t micro_batch,
                             EdgeKind kind) const {
  if (!running_ || sequence != step_.sequence)
    return Status(Code::protocol, cat("message of step ", sequence, ", which does not run"));
  if (edge < 0 || static_cast<size_t>(edge) >= mode().edges.size() ||
      mode().edges[static_cast<size_t>(edge)].kind != kind)
    return Status(Code::protocol, cat("edge ", edge, " is not a ", edge_kind_name(kind)));
  if (!mode().edges[static_cast<size_t>(edge)].has(micro_batch) ||
      micro_batch >= step_.micro_batches)
    return Status(Code::protocol,
                  cat("micro-batch ", micro_batch, " of a step of ", step_.micro_batches));
  return {};
}

Status Controller::granted(uint64_t sequence, int32_t edge, int32_t micro_batch,
                           ControllerEffects& effects) {
  WEFT_TRY(check_tag(sequence, edge, micro_batch, EdgeKind::feed));
  auto& feeds = ends_[static_cast<size_t>(step_.mode)].feeds;
  Feed& feed =
      *std::find_if(feeds.begin(), feeds.end(), [edge](const Feed& f) { return f.edge == edge; });
  if (micro_batch != feed.granted)
    return Status(Code::protocol, cat("edge ", edge, " grants micro-batch ", micro_batch,
                                      ", expected ", feed.granted));
  feed.granted += mode().edges[static_cast<size_t>(edge)].micro_batches.stride;
  send_inputs(feed, effects);
  return {};
}

Status Controller::delivered(uint64_t sequence, int32_t edge, int32_t micro_batch, double loss,
                             ControllerEffects& effects) {
  WEFT_TRY(check_tag(sequence, edge, micro_batch, EdgeKind::sink));
  int32_t& due = due_[static_cast<size_t>(micro_batch)];
  if (due == 0)
    return Status(Code::protocol,
                  cat("edge ", edge, ", micro-batch ", micro_batch, " was delivered twice"));
  --due;
  --missing_deliveries_;
  const TensorId tensor = mode().edges[static_cast<size_t>(edge)].tensor;
  if (mode().graph.tensors[static_cast<size_t>(tensor)].node == plan_->model->loss())
    losses_[static_cast<size_t>(micro_batch)] = loss;
  // Replicas deliver side by side.
  while (reported_ < step_.micro_batches && due_[static_cast<size_t>(reported_)] == 0)
    effects.micro_batch(reported_++);
  finish_if_over(effects);
  return {};
}

Status Controller::received(int32_t rank, const Control& message, ControllerEffects& effects) {
  if (rank < 0 || rank >= plan_->config.ranks)
    return Status(Code::protocol, cat("rank ", rank, " is not one of ", plan_->config.ranks));
  if (!running_ || message.sequence != step_.sequence)
    return Status(Code::protocol, cat("rank ", rank, " sent a message of step ", message.sequence,
                                      ", which does not run"));
  const size_t r = static_cast<size_t>(rank);
  if (message.kind == ControlKind::ready) {
    if (ready_[r])
      return Status(Code::protocol, cat("rank ", rank, " is ready twice in step ", step_.sequence));
    const size_t owned = owned_[r].size(),
                 sums = static_cast<size_t>(std::max(updates_at(plan_->versions[r], step_), 1)),
                 params = plan_->model->params().size();
    if (message.squares.size() != owned * sums)
      return Status(Code::protocol,
                    cat("rank ", rank, " sent ", message.squares.size(), " norms, it owns ", owned,
                        " parameters and made ", sums, " sums"));
    ready_[r] = 1;
    // An update of a stage with replicas belongs to all its micro-batches.
    const size_t each = static_cast<size_t>(std::max(updates_of(step_), 1)) / sums;
    for (size_t i = 0; i < message.squares.size(); ++i)
      for (size_t u = i / owned * each; u < (i / owned + 1) * each; ++u)
        squares_[u * params + static_cast<size_t>(owned_[r][i % owned])] = message.squares[i];
    if (--missing_ready_ == 0) commit(effects);
    return {};
  }
  if (message.kind == ControlKind::done) {
    if (done_[r])
      return Status(Code::protocol, cat("rank ", rank, " is done twice in step ", step_.sequence));
    done_[r] = 1;
    times_[r] = message.times;
    --missing_done_;
    finish_if_over(effects);
    return {};
  }
  return Status(Code::protocol,
                cat("rank ", rank, " sent a message that only the controller sends"));
}

void Controller::commit(ControllerEffects& effects) {
  const size_t params = plan_->model->params().size();
  for (int32_t u = 0; u < std::max(updates_of(step_), 1); ++u) {
    double sum = 0;
    for (size_t p = 0; p < params; ++p)
      sum += squares_[static_cast<size_t>(u) * params + p];  // from any rank
    result_.grad_norm = std::sqrt(sum);
    if (step_.per_update > 0) updates_.push_back({.loss = 0, .grad_norm = result_.grad_norm});
  }
  result_.scale = clip_scale(plan_->config.optim, result_.grad_norm);
  Control message{.kind = ControlKind::commit,
                  .step = {},
                  .sequence = step_.sequence,
                  .scale = result_.scale,
                  .squares = {}};
  if (step_.update)
    for (int32_t r = 0; r < plan_->config.ranks; ++r) effects.control(r, message);
}

double Controller::loss_of(int32_t first, int32_t end) const {
  double sum = 0;
  for (int32_t mb = first; mb < end; ++mb) sum += losses_[static_cast<size_t>(mb)];
  return sum;
}

void Controller::finish_if_over(ControllerEffects& effects) {
  if (!running_ || missing_done_ > 0 || missing_deliveries_ > 0) return;
  result_.loss = loss_of(0, step_.micro_batches) / step_.denominator;
  for (size_t u = 0; u < updates_.size(); ++u) {
    const int32_t first = static_cast<int32_t>(u) * step_.per_update;
    updates_[u].loss = loss_of(first, std::min(first + step_.per_update, step_.micro_batches)) /
                       denominator_of(step_, first);
  }
  result_.updates = updates_;
  measure_idle();
  running_ = false;
  ++next_sequence_;
  effects.step_done(result_);
}

void Controller::measure_idle() {
  int64_t begin = times_[0].begin, end = times_[0].end;
  for (const RankTimes& t : times_) {
    begin = std::min(begin, t.begin);
    end = std::max(end, t.end);
  }
  double sum = 0;
  for (size_t r = 0; r < times_.size(); ++r) {
    idle_[r] = end > begin
                   ? 1 - static_cast<double>(times_[r].busy) / static_cast<double>(end - begin)
                   : 0;
    sum += idle_[r];
  }
  result_.idle_by_rank = idle_;
  result_.idle = sum / static_cast<double>(times_.size());
}

std::string Controller::describe() const {
  if (!running_) return cat("no step runs, ", next_sequence_, " done");
  std::string late;
  for (size_t r = 0; r < done_.size(); ++r)
    if (!done_[r]) late += cat(late.empty() ? "" : ", ", r);
  return cat("step ", step_.step + 1, " waits for rank ", late);
}

}  // namespace weft
