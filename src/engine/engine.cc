#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "engine/steps.h"

namespace weft {

Status Engine::begin(const StepDescriptor& step, Effects& effects) {
  if (failed_) return {};
  if (running_ && !step.overlaps)
    return Status(Code::protocol,
                  cat("step ", step.sequence, " begins while step ", step_.sequence, " runs"));
  const uint64_t expected = next_sequence_ + (running_ ? 1 : 0) + waiting_.size();
  if (step.sequence != expected)
    return Status(Code::protocol, cat("step ", step.sequence, " begins, expected ", expected));
  WEFT_TRY(check(step));
  if (!running_) {
    if (step.overlaps) open_edges(step, nullptr, true, effects);
    return start(step, effects);
  }
  if (step.mode != step_.mode || waiting_.size() + 1 == kStepsAtOnce)
    return Status(Code::protocol, cat("step ", step.sequence, " does not overlap step ",
                                      step_.sequence, ", which runs"));
  waiting_.push_back(step);
  if (waiting_.size() == 1) open_edges(step, &step_, true, effects);
  return {};
}

Status Engine::check(const StepDescriptor& step) const {
  if (!plan_->mode(step.mode).present)
    return Status(Code::protocol, cat("the plan has no ", mode_name(step.mode), " mode"));
  const int32_t most = plan_->micro_batches(step.mode),
                per_update = plan_->per_update(step.mode, step.update);
  if (step.micro_batches < 1 || step.micro_batches > most)
    return Status(Code::protocol,
                  cat("step of ", step.micro_batches, " micro-batches, the plan has ", most));
  if ((step.short_last || step.short_all) && plan_->config.short_size == 0)
    return Status(Code::protocol, "step with a short micro-batch, the plan has none");
  if (step.short_all && has_loss(step.mode))
    return Status(Code::protocol, cat("step of mode ", mode_name(step.mode),
                                      " with short micro-batches, expected mode infer or fill"));
  if (step.overlaps && !plan_->config.can_overlap(step.mode))
    return Status(Code::protocol, cat("step of mode ", mode_name(step.mode), " overlaps another"));
  if (step.per_update != per_update)
    return Status(Code::protocol, cat("step with ", step.per_update,
                                      " micro-batches per update, the plan has ", per_update));
  if (const int32_t round = plan_->versions[static_cast<size_t>(rank_)].round;
      per_update > 0 && plan_->replicas_at(rank_) > 1 && step.micro_batches % round != 0)
    return Status(Code::protocol, cat("step of ", step.micro_batches, " micro-batches, an update ",
                                      "of the rank takes ", round));
  if (!step.denominators.empty() &&
      static_cast<int32_t>(step.denominators.size()) != updates_of(step))
    return Status(Code::protocol, cat("step of ", updates_of(step), " updates with ",
                                      step.denominators.size(), " denominators"));
  return {};
}

Status Engine::start(const StepDescriptor& step, Effects& effects) {
  step_ = step;
  running_ = true;
  committed_ = false;
  timed_ = 0;
  times_ = {};
  reducing_ = 0;
  own_ = plan_->micro_batches_at(step.mode, rank_);
  jobs_ = program().jobs;
  move_to(0);
  table_ = &tables_[static_cast<size_t>(step_.mode)];
  for (Marks& marks : marks_) marks.granted = marks.held = marks.released = 0;
  if (!step_.overlaps)
    for (int32_t id : program().edges) {
      const Edge& e = mode().edges[static_cast<size_t>(id)];
      for (int32_t mb = e.micro_batches.first; mb < e.open; mb += e.micro_batches.stride)
        marks(port_of(id), mb).granted |= bit(mb);
    }
  if (step_.mode == Mode::train) begin_reductions();
  owed_ = table_->asked.empty() ? 0 : table_->asked[static_cast<size_t>(step_.micro_batches)];
  gather_next_ = 0;
  occupied_ = {};
  if (table_->gathers) gather(effects);
  for (size_t i = 0; i < early_grants_.size();) {
    const Grant grant = early_grants_[i];
    if (grant.sequence != step_.sequence) {
      ++i;
      continue;
    }
    early_grants_.erase(early_grants_.begin() + static_cast<ptrdiff_t>(i));
    WEFT_TRY(take_grant(grant.edge, grant.micro_batch, effects));
  }
  return advance(effects);
}

// Requests the values of the next units that have a free slot.
void Engine::gather(Effects& effects) {
  for (; gather_next_ < jobs_.size(); ++gather_next_) {
    const Job& job = jobs_[gather_next_];
    if (job.kind != JobKind::action || skipped(job) || adds_zeros(job)) continue;
    const Span& span = span_of(job);
    if (span.gathers == span.posts) continue;
    bool& occupied = occupied_[static_cast<size_t>(span.slot)];
    if (occupied) return;
    occupied = true;
    for (const Use& use : uses(span.gathers, span.posts))
      effects.grant(step_, edge(use.port), job.micro_batch);
  }
}

bool Engine::fits(int32_t port, int32_t micro_batch, uint8_t end) const {
  if (port < 0) return false;
  const Port& own = ports_[static_cast<size_t>(port)];
  const size_t m = static_cast<size_t>(step_.mode);
  return (own.ends[m] & end) && own.micro_batches[m].has(micro_batch);
}

Status Engine::refusal(int32_t edge, int32_t micro_batch, bool incoming) const {
  if (edge < 0 || static_cast<size_t>(edge) >= mode().edges.size())
    return Status(Code::protocol,
                  cat("edge ", edge, " is not one of the plan's ", mode().edges.size()));
  const Edge& e = mode().edges[static_cast<size_t>(edge)];
  const int32_t here = incoming ? e.to_rank : e.from_rank;
  if (here != rank_)
    return Status(Code::protocol, cat("edge ", edge, incoming ? " ends" : " begins", " at rank ",
                                      here, ", not at rank ", rank_));
  return Status(Code::protocol, cat("edge ", edge, " has no micro-batch ", micro_batch, " (",
                                    e.micro_batches.first, " to ", e.micro_batches.end - 1, ")"));
}

Status Engine::arrived(uint64_t sequence, int32_t edge, int32_t micro_batch, Effects& effects) {
  if (failed_) return {};
  const bool now = running_ && sequence == step_.sequence;
  if (!now && sequence != next_sequence_ + (running_ ? 1 : 0))
    return Status(Code::protocol, cat("message of step ", sequence, " while step ", next_sequence_,
                                      " is the next"));
  const int32_t at = port_of(edge);
  if (now && !fits(at, micro_batch, kEnds)) return refusal(edge, micro_batch, true);
  if (at < 0 || micro_batch < 0 || micro_batch >= plan_->most_micro_batches())
    return Status(Code::protocol,
                  cat("message of edge ", edge, ", micro-batch ", micro_batch, " is not valid"));
  uint64_t& arrived = marks(at, micro_batch).arrived[sequence & 1];
  if (arrived & bit(micro_batch))
    return Status(Code::protocol, cat("edge ", edge, ", micro-batch ", micro_batch, " of step ",
                                      sequence, " arrived twice"));
  arrived |= bit(micro_batch);
  if (!now) return {};
  if (const int32_t bucket = step_.mode == Mode::train ? bucket_of_[static_cast<size_t>(at)] : -1;
      bucket >= 0)
    complete(bucket);
  return advance(effects);
}

Status Engine::granted(uint64_t sequence, int32_t edge, int32_t micro_batch, Effects& effects) {
  if (failed_) return {};
  if (sequence >= next_sequence_ + (running_ ? 1 : 0))
    return take_early(sequence, edge, micro_batch);
  if (!running_ || sequence != step_.sequence)
    return Status(Code::protocol, cat("grant of step ", sequence, ", which does not run here"));
  WEFT_TRY(take_grant(edge, micro_batch, effects));
  return advance(effects);
}

Status Engine::take_grant(int32_t edge, int32_t micro_batch, Effects& effects) {
  const int32_t at = port_of(edge);
  if (!fits(at, micro_batch, kBegins)) return refusal(edge, micro_batch, false);
  Marks& known = marks(at, micro_batch);
  if (known.granted & bit(micro_batch))
    return Status(Code::protocol,
                  cat("edge ", edge, ", micro-batch ", micro_batch, " was granted twice"));
  const bool gathered =
      ports_[static_cast<size_t>(at)].ends[static_cast<size_t>(step_.mode)] & kGathers;
  if (gathered && owed_ == 0)
    return Status(Code::protocol, cat("grant of edge ", edge, ", which was not requested"));
  known.granted |= bit(micro_batch);
  const bool held = known.held & bit(micro_batch);
  if (held) --held_;
  if (gathered) --owed_;
  if (held || gathered) {
    ++unreleased_;
    effects.post(step_, edge, micro_batch, false);
  }
  return {};
}

Status Engine::released(int32_t edge, int32_t micro_batch, Effects& effects) {
  if (failed_) return {};
  if (!running_) return Status(Code::internal, cat("edge ", edge, " was released outside a step"));
  const int32_t at = port_of(edge);
  uint64_t& released = marks(at, micro_batch).released;
  if (released & bit(micro_batch))
    return Status(Code::internal, cat("edge ", edge, " was released twice"));
  released |= bit(micro_batch);
  --unreleased_;
  if (step_.mode == Mode::train) leave(run_of_[static_cast<size_t>(at)], effects);
  return advance(effects);
}

Status Engine::commit(uint64_t sequence, double scale, Effects& effects) {
  if (failed_) return {};
  if (!running_ || sequence != step_.sequence || committed_)
    return Status(Code::protocol,
                  cat("commit of step ", sequence, ", which does not wait for one"));
  committed_ = true;
  scale_ = scale;
  return advance(effects);
}

void Engine::abort() {
  failed_ = true;
  running_ = false;
}

int32_t Engine::updates() const {
  return updates_at(plan_->versions[static_cast<size_t>(rank_)], step_);
}

bool Engine::skipped(const Job& job) const {
  if (job.kind == JobKind::update) return !step_.update;
  if (job.kind == JobKind::reduce) return reductions_[static_cast<size_t>(job.program)].given;
  if (job.program < 0) return job.kind == JobKind::send_ties && step_.per_update > 0;
  if (span_of(job).update) return step_.per_update == 0 || job.micro_batch >= updates();
  return job.micro_batch >= step_.micro_batches && !adds_zeros(job);
}

int32_t Engine::uses_update(const Job& job) const {
  if (value_in_.empty() || step_.per_update == 0 || span_of(job).update) return -1;
  const WeightVersions& versions = plan_->versions[static_cast<size_t>(rank_)];
  return versions.of_update[static_cast<size_t>(job.micro_batch / versions.round)] - 1;
}

int32_t Engine::missing(const Job& job) const {
  auto first = [&](const std::vector<int32_t>& edges, int32_t micro_batch) {
    for (int32_t e : edges)
      if (!here(port_of(e), micro_batch)) return e;
    return int32_t{-1};
  };
  const bool asynchronous = step_.per_update > 0;
  switch (job.kind) {
    case JobKind::action:
      if (adds_zeros(job)) return -1;
      for (const Use& use : uses(span_of(job).waits, span_of(job).posts))
        if (use.has(job.micro_batch) && !here(use.port, job.micro_batch)) return edge(use.port);
      return uses_update(job) < 0 ? -1 : first(value_in_, uses_update(job));
    case JobKind::reduce:
      return first(program().buckets[static_cast<size_t>(job.program)].waits, 0);
    case JobKind::finish:
      return step_.mode == Mode::train && step_.update && !asynchronous ? first(value_in_, 0) : -1;
    case JobKind::update: return asynchronous ? first(value_in_, updates() - 1) : first(sum_in_, 0);
    case JobKind::clear:
    case JobKind::send_ties: return -1;
  }
  return -1;
}

// Until the mark is set, no event needs to check the next job again.
bool Engine::await(const uint64_t& marks, int32_t mb) {
  awaited_ = &marks;
  awaited_bit_ = bit(mb);
  return false;
}

bool Engine::ready(const Job& job) {
  switch (job.kind) {
    case JobKind::action: {
      const Span& span = span_of(job);
      if (!has_slot(span.run)) return false;
      if (adds_zeros(job)) return true;
      for (const Use& use : uses(span.waits, span.posts)) {
        if (!use.has(job.micro_batch)) continue;
        const uint64_t& arrived = marks(use.port, job.micro_batch).arrived[step_.sequence & 1];
        if (!(arrived & bit(job.micro_batch))) return await(arrived, job.micro_batch);
      }
      if (uses_update(job) >= 0 && missing(job) >= 0) return false;
      for (const Use& use : uses(span.posts, span.frees)) {
        const int32_t before = job.micro_batch - use.back;
        if (!use.has(before)) continue;
        const uint64_t& released = marks(use.port, before).released;
        if (!(released & bit(before))) return await(released, before);
      }
      return true;
    }
    case JobKind::clear: return sums_are_free(job);
    case JobKind::reduce: return reductions_[static_cast<size_t>(job.program)].missing == 0;
    case JobKind::send_ties: return in_flight_ == 0;
    case JobKind::update: return committed_ && missing(job) < 0;
    case JobKind::finish:
      return in_flight_ == 0 && unreleased_ == 0 && held_ == 0 && owed_ == 0 && missing(job) < 0;
  }
  return false;
}

// Whether the sums of the previous update have been sent.
bool Engine::sums_are_free(const Job& clear) const {
  if (clear.program < 0) return true;
  const int32_t update = clear.micro_batch - 1;
  return std::all_of(tie_out_.begin(), tie_out_.end(), [&](int32_t e) {
    return (marks(port_of(e), update).released & bit(update)) != 0;
  });
}

// Whether everything that the job posts has been granted. Tied values always have a slot.
bool Engine::may_deliver(const Job& job) const {
  if (job.kind != JobKind::action) return job.kind == JobKind::update && step_.per_update == 0;
  if (adds_zeros(job)) return false;
  for (const Use& use : uses(span_of(job).posts, span_of(job).frees))
    if (use.has(job.micro_batch) &&
        !(marks(use.port, job.micro_batch).granted & bit(job.micro_batch)))
      return false;
  return true;
}

void Engine::move_to(size_t job) {
  next_ = job;
  awaited_ = nullptr;
  if (job < jobs_.size()) upcoming_ = jobs_[job];
}

Status Engine::advance(Effects& effects) {
  while (running_ && in_flight_ < kAhead && next_ < jobs_.size()) {
    if (overlaps_ && next_ > 0 && !reducible_.empty()) {
      const int32_t index = reductions_[static_cast<size_t>(reducible_.back())].job;
      give(jobs_[static_cast<size_t>(index)], index, effects);
      continue;
    }
    if (awaited_ && !(*awaited_ & awaited_bit_)) return {};
    if (skipped(upcoming_)) {
      move_to(next_ + 1);
      continue;
    }
    if (!ready(upcoming_)) return {};
    const Job job = upcoming_;
    const int32_t index = static_cast<int32_t>(next_);
    move_to(next_ + 1);
    if (job.kind == JobKind::send_ties || job.kind == JobKind::finish)
      WEFT_TRY(finish_job(job, false, effects));
    else
      give(job, index, effects);
  }
  return {};
}

void Engine::give(const Job& job, int32_t index, Effects& effects) {
  if (job.kind == JobKind::reduce) {
    reductions_[static_cast<size_t>(job.program)].given = true;
    std::erase(reducible_, job.program);
    if (const int32_t next = reductions_[static_cast<size_t>(job.program)].next; next >= 0)
      complete(next);
  }
  const bool deliver = may_deliver(job);
  given_[static_cast<size_t>(in_flight_++)] = {job, deliver};
  effects.run(index, deliver);
}

Status Engine::ran(int32_t job, std::span<const double> squares, Effects& effects,
                   const JobTime& time) {
  if (failed_) return {};
  if (!running_ || in_flight_ == 0)
    return Status(Code::internal, cat("job ", job, " ran, but none was given out"));
  __builtin_prefetch(jobs_.data() +
                     next_);  // the next job is read next, and is usually not in a cache
  const auto [ran, delivered] = given_[0];  // jobs run in the order in which they are given out
  given_[0] = given_[1];
  --in_flight_;
  if (ran.kind == JobKind::action) {
    if (timed_++ == 0) times_ = {.begin = time.begin, .end = time.end, .busy = 0};
    times_.end = time.end;
    times_.busy += time.end - time.begin + std::exchange(reducing_, 0);
  }
  if (ran.kind == JobKind::reduce) {
    reducing_ += time.end - time.begin;
    leave(reductions_[static_cast<size_t>(ran.program)].run, effects);
    if (--unreduced_ == 0)
      effects.control(kController, {.kind = ControlKind::ready,
                                    .step = {},
                                    .sequence = step_.sequence,
                                    .scale = 1,
                                    .squares = squares});
  }
  WEFT_TRY(finish_job(ran, delivered, effects));
  return advance(effects);
}

void Engine::offer(int32_t port, int32_t micro_batch, bool delivered, Effects& effects) {
  Marks& known = marks(port, micro_batch);
  if (known.granted & bit(micro_batch)) {
    ++unreleased_;
    effects.post(step_, edge(port), micro_batch, delivered);
  } else {
    ++held_;
    known.held |= bit(micro_batch);
  }
}

// Its messages, the slots that it held, and that of what it gathered.
void Engine::leave_action(const Job& job, bool delivered, Effects& effects) {
  const Span& span = span_of(job);
  for (const Use& use : uses(span.posts, span.frees))
    if (use.has(job.micro_batch)) offer(use.port, job.micro_batch, delivered, effects);
  const int32_t end = span.update ? updates() : step_.micro_batches;
  for (const Use& use : uses(span.frees, span.sums))
    if (const int32_t next = job.micro_batch + use.back; use.has(next) && next < end)
      effects.grant(step_, edge(use.port), next);
  if (span.gathers == span.posts) return;
  occupied_[static_cast<size_t>(span.slot)] = false;
  gather(effects);
}

Status Engine::finish_job(const Job& job, bool delivered, Effects& effects) {
  switch (job.kind) {
    case JobKind::action: {
      const Span& span = span_of(job);
      if (!adds_zeros(job)) leave_action(job, delivered, effects);
      if (step_.mode != Mode::train || step_.per_update > 0 || !is_last(job.micro_batch)) return {};
      for (const Use& use : uses(span.sums, span.end)) offer(use.port, 0, false, effects);
      for (const int32_t bucket : program().programs[static_cast<size_t>(job.program)].buckets)
        complete(bucket);
      return {};
    }
    case JobKind::send_ties:
      for (int32_t e :
           job.program >= 0 || (own_.first >= step_.micro_batches && uses_of_run_.empty())
               ? tie_out_
               : unsent_)
        offer(port_of(e), job.micro_batch, delivered, effects);
      return {};
    case JobKind::update:
      if (step_.per_update > 0) return {};  // each update has posted its own
      for (int32_t e : value_out_) offer(port_of(e), 0, delivered, effects);
      return {};
    case JobKind::reduce:
      if (!step_.update) return {};
      for (int32_t e : program().buckets[static_cast<size_t>(job.program)].posts)
        offer(port_of(e), 0, delivered, effects);
      return {};
    case JobKind::finish: return end_step(effects);
    case JobKind::clear: return {};
  }
  return {};
}

Status Engine::end_step(Effects& effects) {
  for (Marks& marks : marks_) marks.arrived[step_.sequence & 1] = 0;
  running_ = false;
  next_sequence_ = step_.sequence + 1;
  Control done{.kind = ControlKind::done,
               .step = {},
               .sequence = step_.sequence,
               .scale = 1,
               .squares = {},
               .times = times_};
  effects.control(kController, done);
  if (waiting_.empty()) return {};
  const StepDescriptor next = waiting_.front();
  waiting_.erase(waiting_.begin());
  open_edges(next, &step_, false, effects);
  if (!waiting_.empty()) open_edges(waiting_.front(), &next, true, effects);
  return start(next, effects);
}

}  // namespace weft
