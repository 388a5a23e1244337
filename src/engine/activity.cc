// What a rank does or waits for, as data.
#include "engine/engine.h"
#include "engine/steps.h"

namespace weft {

namespace {

char job_letter(const RankProgram& program, const Job& job) {
  switch (job.kind) {
    case JobKind::action:
      return kind_letter(program.programs[static_cast<size_t>(job.program)].kind);
    case JobKind::clear: return Activity::kClear;
    case JobKind::send_ties:
    case JobKind::reduce: return Activity::kReduce;
    case JobKind::update: return Activity::kUpdate;
    case JobKind::finish: break;
  }
  return Activity::kFinish;
}

Activity::Awaited message_of(EdgeKind kind) {
  switch (kind) {
    case EdgeKind::feed: return Activity::Awaited::input;
    case EdgeKind::forward: return Activity::Awaited::activation;
    case EdgeKind::gradient: return Activity::Awaited::gradient;
    default: return Activity::Awaited::message;
  }
}

}  // namespace

Activity Engine::activity_of(Activity::State state, const Job& job) const {
  Activity out{.state = state, .job = job_letter(program(), job)};
  out.mode = static_cast<uint8_t>(step_.mode);
  out.step = step_of(step_, job.micro_batch);
  if (job.kind != JobKind::action) return out;
  out.stage = program().programs[static_cast<size_t>(job.program)].stage;
  out.micro_batch = job.micro_batch;
  return out;
}

// One with a message that waits for a grant, or -1.
int32_t Engine::held_edge() const {
  for (size_t i = 0; held_ > 0 && i < marks_.size(); ++i)
    if (marks_[i].held & ~marks_[i].granted) return edge(static_cast<int32_t>(i % ports_.size()));
  return -1;
}

Activity Engine::activity() const {
  if (failed_) return {};
  if (!running_) return {.state = Activity::State::idle, .step = next_sequence_};
  if (in_flight_ > 0) return activity_of(Activity::State::runs, given_[0].job);
  if (next_ >= jobs_.size()) return activity_of(Activity::State::runs, {.kind = JobKind::finish});
  Activity out = activity_of(Activity::State::waits, upcoming_);
  if (const int32_t awaited = missing(upcoming_); awaited >= 0) {
    const Edge& edge = mode().edges[static_cast<size_t>(awaited)];
    out.awaited = message_of(edge.kind);
    out.from = edge.from_rank;
  } else if (const int32_t held = held_edge(); held >= 0) {
    out.awaited = Activity::Awaited::message;  // a grant
    out.from = mode().edges[static_cast<size_t>(held)].to_rank;
  } else {
    out.awaited =
        upcoming_.kind == JobKind::update ? Activity::Awaited::commit : Activity::Awaited::release;
  }
  return out;
}

}  // namespace weft
