#include "runtime/calibrate.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/median.h"
#include "base/text.h"
#include "plan/profile_times.h"
#include "sim/costs.h"
#include "sim/predict.h"

namespace weft {

namespace {

constexpr Mode kMode = Mode::train;  // of the steps that count
constexpr size_t kUncounted = 2;     // steps, in which memory is touched for the first time
constexpr size_t kFewest = 2;        // steps between the starts of which the times are measured
constexpr int kHalvings = 20;        // of the range of a value that is searched
constexpr double kMostFactor = 1.5;  // of all times, beyond the medians

// What jobs have taken, and what the profile says that they take, in seconds.
struct Taken {
  double ran = 0, expected = 0;
  double factor() const { return ran > 0 && expected > 0 ? ran / expected : 1; }
};

// The training steps of a trace.
class Recorded {
 public:
  Recorded(const Plan& plan, const std::vector<std::vector<TraceSpan>>& spans)
      : plan_(plan), ranks_(spans.size()) {
    // A step without an update has the number of the next one that has an update.
    each_span(spans, [this](size_t rank, const TraceSpan& span) {
      if (job_of(rank, span).kind == JobKind::update) steps_[span.step].sequence = span.sequence;
    });
    each_span(spans, [this](size_t rank, const TraceSpan& span) {
      const auto step = steps_.find(span.step);
      if (step == steps_.end() || step->second.sequence != span.sequence) return;
      step->second.begin = std::min(step->second.begin, span.time.begin);
      ranks_[rank][span.step].push_back(&span);
    });
  }

  Status check() const {
    if (step_times().size() >= kFewest) return {};
    return Status(Code::invalid,
                  cat("the run has recorded ", steps_.size(), " training steps, expected ",
                      kUncounted + kFewest + 1, " or more without other steps between them"));
  }

  double step_seconds() const {
    std::vector<double> out = step_times();
    return median(std::span(out));
  }

  // Before actions that do not wait for a message; 0: there are none.
  double overhead() const {
    std::vector<double> out;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (const auto& [step, spans] : ranks_[r])
        for (size_t i = 1; i < spans.size(); ++i)
          if (const Job& job = job_of(r, *spans[i]);
              job.kind == JobKind::action && waits_for_nothing(r, job))
            out.push_back(static_cast<double>(spans[i]->time.begin - spans[i - 1]->time.end) *
                          1e-9);
    }
    return out.empty() ? 0 : std::max(median(std::span(out)), 0.0);
  }

  // Per stage of the pipeline and kind of action, over all ranks that have it.
  std::map<std::pair<int32_t, Kind>, Taken> actions(const JobCosts& costs) const {
    std::map<std::pair<int32_t, Kind>, Taken> out;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const RankProgram& program = plan_.mode(kMode).ranks[r];
      std::map<int32_t, std::vector<double>> times, expected;  // per program
      each_counted(r, [&](const Job& job, double seconds) {
        if (job.kind != JobKind::action) return;
        times[job.program].push_back(seconds);
        expected[job.program].push_back(costs.of(static_cast<int32_t>(r), job) / job.together);
      });
      for (auto& [index, values] : times) {
        const ActionProgram& action = program.programs[static_cast<size_t>(index)];
        Taken& taken = out[{action.stage, action.kind}];
        taken.ran += median(std::span(values));
        taken.expected += median(std::span(expected[index]));
      }
    }
    return out;
  }

  // The jobs that update weights.
  Taken updates(const JobCosts& costs) const {
    Taken out;
    for (size_t r = 0; r < ranks_.size(); ++r)
      each_counted(r, [&](const Job& job, double seconds) {
        if (!is_update(r, job)) return;
        out.ran += seconds;
        out.expected += costs.of(static_cast<int32_t>(r), job);
      });
    return out;
  }

 private:
  struct Step {
    uint16_t sequence = 0;
    int64_t begin = std::numeric_limits<int64_t>::max();  // of its first job on any rank
  };

  // Calls f(rank, span) for the spans of the mode.
  template <typename F>
  static void each_span(const std::vector<std::vector<TraceSpan>>& spans, const F& f) {
    for (size_t r = 0; r < spans.size(); ++r)
      for (const TraceSpan& span : spans[r])
        if (span.mode == kMode) f(r, span);
  }

  const Job& job_of(size_t rank, const TraceSpan& span) const {
    return plan_.mode(kMode).ranks[rank].jobs[static_cast<size_t>(span.job)];
  }

  // From the begin of a step to that of the next one, if no other step was between them.
  std::vector<double> step_times() const {
    std::vector<double> out;
    if (steps_.size() <= kUncounted) return out;
    auto before = std::next(steps_.begin(), kUncounted);
    for (auto at = std::next(before); at != steps_.end(); before = at++)
      if (at->second.sequence == static_cast<uint16_t>(before->second.sequence + 1))
        out.push_back(static_cast<double>(at->second.begin - before->second.begin) * 1e-9);
    return out;
  }

  // In a segment of an asynchronous schedule, updates are actions.
  bool is_update(size_t rank, const Job& job) const {
    if (!plan_.asynchronous()) return job.kind == JobKind::update || job.kind == JobKind::reduce;
    return job.kind == JobKind::action && action_of(rank, job).kind == Kind::O;
  }

  // Whether no message has to arrive before it.
  bool waits_for_nothing(size_t rank, const Job& job) const {
    const std::vector<int32_t>& waits = action_of(rank, job).waits;
    const std::vector<Edge>& edges = plan_.mode(kMode).edges;
    return std::all_of(waits.begin(), waits.end(), [&edges](int32_t edge) {
      return edges[static_cast<size_t>(edge)].kind == EdgeKind::feed;
    });
  }

  const ActionProgram& action_of(size_t rank, const Job& job) const {
    return plan_.mode(kMode).ranks[rank].programs[static_cast<size_t>(job.program)];
  }

  template <typename Visit>
  void each_counted(size_t rank, Visit&& visit) const {
    const uint64_t first = std::next(steps_.begin(), kUncounted)->first;
    for (const auto& [step, spans] : ranks_[rank])
      for (const TraceSpan* span : spans) {
        if (step < first) continue;
        const Job& job = job_of(rank, *span);
        const double seconds = static_cast<double>(span->time.end - span->time.begin) * 1e-9;
        // Jobs that ran at once share the time of the first.
        for (int32_t i = 0; i < job.together; ++i) visit(job, seconds / job.together);
      }
  }

  const Plan& plan_;
  std::map<uint64_t, Step> steps_;                                        // by number
  std::vector<std::map<uint64_t, std::vector<const TraceSpan*>>> ranks_;  // per rank and step
};

// Scales the times of the nodes.
void scale(const Plan& plan, const std::map<std::pair<int32_t, Kind>, Taken>& actions,
           Profile& profile) {
  std::map<std::string, int32_t> stage_of;
  for (size_t id = 0; id < plan.whole->nodes().size(); ++id)
    stage_of[plan.whole->nodes()[id].name] = plan.stage_of_whole[id];
  for (ProfileNode& node : profile.nodes) {
    const auto factor = [&](Kind kind) {
      auto at = actions.find({stage_of[node.name], kind});
      if (at == actions.end() && (kind == Kind::I || kind == Kind::W))
        at = actions.find({stage_of[node.name], Kind::B});
      return at == actions.end() ? 1 : at->second.factor();
    };
    node.forward *= factor(Kind::F);
    node.input *= factor(Kind::I);
    node.weight *= factor(Kind::W);
    node.weight_together *= factor(Kind::W);
  }
}

// The plan with these times.
Result<std::shared_ptr<Plan>> timed(const Plan& plan, const Profile& profile) {
  auto out = std::make_shared<Plan>(plan);
  WEFT_TRY_ASSIGN(out->config.times, times_of(profile, *plan.whole, plan.config));
  drop_frozen(*plan.whole, out->config.times);
  out->config.machines = {};
  out->config.machines.memory_speed = profile.memory_speed;
  out->config.machines.overhead = profile.overhead;
  return out;
}

void multiply(Profile& profile, double factor) {
  for (ProfileNode& node : profile.nodes) {
    node.forward *= factor;
    node.input *= factor;
    node.weight *= factor;
    node.weight_together *= factor;
  }
}

Result<double> predicted(const Plan& plan, const Profile& profile) {
  WEFT_TRY_ASSIGN(const std::shared_ptr<Plan> as_timed, timed(plan, profile));
  WEFT_TRY_ASSIGN(const Prediction prediction, predict(as_timed, nullptr, false));
  return prediction.seconds;
}

// The value from `low` to `high` with which a step takes `step` seconds. set(profile, value)
// changes a profile.
template <typename Set>
Result<double> solve(const Plan& plan, const Profile& profile, double step, double low, double high,
                     Set&& set) {
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    Profile changed = profile;
    set(changed, middle);
    WEFT_TRY_ASSIGN(const double seconds, predicted(plan, changed));
    (seconds < step ? low : high) = middle;
  }
  return (low + high) / 2;
}

// Makes the predicted step that long. Ranks wait for the slowest actions and not for the medians,
// so all times are longer. If actions are short, handing them over takes the time.
Status fit(const Plan& plan, double step, Profile& profile) {
  const auto set_overhead = [](Profile& to, double overhead) { to.overhead = overhead; };
  WEFT_TRY_ASSIGN(const double factor,
                  solve(plan, profile, step, 1 / kMostFactor, kMostFactor, multiply));
  multiply(profile, factor);
  WEFT_TRY_ASSIGN(const double seconds, predicted(plan, profile));
  if (seconds >= 0.999 * step) return {};
  WEFT_TRY_ASSIGN(profile.overhead,
                  solve(plan, profile, step, profile.overhead, step, set_overhead));
  return {};
}

}  // namespace

Result<Profile> calibrate(Run& run, const Profile& profile) {
  const Plan& plan = run.plan();
  std::vector<std::vector<TraceSpan>> spans(static_cast<size_t>(plan.config.ranks));
  for (size_t r = 0; r < spans.size(); ++r) WEFT_TRY(run.spans(static_cast<int32_t>(r), spans[r]));
  const Recorded recorded(plan, spans);
  WEFT_TRY(recorded.check());
  Profile out = profile;
  out.memory_speed = kMemorySpeed;
  WEFT_TRY_ASSIGN(std::shared_ptr<Plan> as_before, timed(plan, out));
  const JobCosts costs(*as_before, kMode, as_before->config.times, {});
  scale(plan, recorded.actions(costs), out);
  const Taken updates = recorded.updates(costs);
  out.memory_speed = updates.ran > 0 ? kMemorySpeed / updates.factor() : profile.memory_speed;
  out.overhead = recorded.overhead();
  WEFT_TRY(fit(plan, recorded.step_seconds(), out));
  return out;
}

}  // namespace weft
