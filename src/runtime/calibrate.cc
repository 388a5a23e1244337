#include "runtime/calibrate.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"
#include "runtime/measure.h"
#include "sim/costs.h"
#include "sim/predict.h"

namespace weft {

namespace {

constexpr size_t kUncounted = 2;  // steps, in which memory is touched for the first time
constexpr size_t kFewest = 2;     // steps between the starts of which the times are measured
constexpr int kHalvings = 20;     // of the range of the factor of all times
constexpr double kMostFactor = 4;

// The value that 1 / `parts` of all values are below.
double quantile(std::vector<double> values, size_t parts) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / parts);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// What jobs have taken, and what the profile says that they take, in seconds.
struct Taken {
  double ran = 0, expected = 0;
  double factor() const { return ran > 0 && expected > 0 ? ran / expected : 1; }
};

class Recorded {
 public:
  explicit Recorded(const Plan& plan)
      : plan_(plan), mode_(plan.main_mode()), ranks_(static_cast<size_t>(plan.config.ranks)) {}

  void add(size_t rank, std::span<const TraceSpan> spans) {
    for (const TraceSpan& span : spans) {
      if (span.mode != mode_) continue;
      auto [at, is_first] = begins_.try_emplace(span.step, span.time.begin);
      if (!is_first) at->second = std::min(at->second, span.time.begin);
      ranks_[rank][span.step].push_back(&span);
    }
  }

  Status check() const {
    if (begins_.size() > kUncounted + kFewest) return {};
    return Status(Code::invalid,
                  cat("the run has recorded ", begins_.size(), " steps of mode ", mode_name(mode_),
                      ", expected ", kUncounted + kFewest + 1, " or more"));
  }

  // From the begin of a step to that of the next one.
  double step_seconds() const {
    std::vector<double> out;
    auto before = std::next(begins_.begin(), kUncounted);
    for (auto at = std::next(before); at != begins_.end(); before = at++)
      out.push_back(static_cast<double>(at->second - before->second) * 1e-9);
    return quantile(std::move(out), 2);
  }

  // Between two actions of a rank. In most pairs the second one waits for a message as well.
  double overhead() const {
    std::vector<double> out;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const std::vector<Job>& jobs = plan_.mode(mode_).ranks[r].jobs;
      for (const auto& [step, spans] : ranks_[r])
        for (size_t i = 1; i < spans.size(); ++i)
          if (jobs[static_cast<size_t>(spans[i]->job)].kind == JobKind::action)
            out.push_back(static_cast<double>(spans[i]->time.begin - spans[i - 1]->time.end) *
                          1e-9);
    }
    return std::max(quantile(std::move(out), 4), 0.0);
  }

  // Per stage of the pipeline and kind of action, over all ranks that have it.
  std::map<std::pair<int32_t, Kind>, Taken> actions(const JobCosts& costs) const {
    std::map<std::pair<int32_t, Kind>, Taken> out;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const RankProgram& program = plan_.mode(mode_).ranks[r];
      std::map<int32_t, std::vector<double>> times;  // per program
      std::map<int32_t, double> expected;
      each_counted(r, [&](const Job& job, double seconds) {
        if (job.kind != JobKind::action) return;
        times[job.program].push_back(seconds);
        expected[job.program] = costs.of(static_cast<int32_t>(r), job);
      });
      for (auto& [index, values] : times) {
        const ActionProgram& action = program.programs[static_cast<size_t>(index)];
        Taken& taken = out[{action.stage, action.kind}];
        taken.ran += quantile(std::move(values), 2);
        taken.expected += expected[index];
      }
    }
    return out;
  }

  // The jobs at the end of a step.
  Taken updates(const JobCosts& costs) const {
    Taken out;
    for (size_t r = 0; r < ranks_.size(); ++r)
      each_counted(r, [&](const Job& job, double seconds) {
        if (job.kind != JobKind::update && job.kind != JobKind::reduce) return;
        out.ran += seconds;
        out.expected += costs.of(static_cast<int32_t>(r), job);
      });
    return out;
  }

 private:
  template <typename Visit>
  void each_counted(size_t rank, Visit&& visit) const {
    const std::vector<Job>& jobs = plan_.mode(mode_).ranks[rank].jobs;
    const uint64_t first = std::next(begins_.begin(), kUncounted)->first;
    for (const auto& [step, spans] : ranks_[rank])
      for (const TraceSpan* span : spans)
        if (step >= first)
          visit(jobs[static_cast<size_t>(span->job)],
                static_cast<double>(span->time.end - span->time.begin) * 1e-9);
  }

  const Plan& plan_;
  const Mode mode_;
  std::map<uint64_t, int64_t> begins_;  // per step: the first begin of a job on any rank
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
  }
}

// The plan with these times.
Result<std::shared_ptr<Plan>> timed(const Plan& plan, const Profile& profile) {
  auto out = std::make_shared<Plan>(plan);
  WEFT_TRY_ASSIGN(out->config.times, times_of(profile, *plan.whole, plan.config.micro_batch_size));
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
  }
}

// The factor of all times with which a step takes that many seconds. It is more than 1 because the
// ranks wait for the slowest action, not for the median.
Result<double> factor_of(const Plan& plan, const Profile& profile, double step) {
  double low = 1 / kMostFactor, high = kMostFactor;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = std::sqrt(low * high);
    Profile scaled = profile;
    multiply(scaled, middle);
    WEFT_TRY_ASSIGN(const std::shared_ptr<Plan> as_scaled, timed(plan, scaled));
    WEFT_TRY_ASSIGN(const Prediction predicted, predict(as_scaled, nullptr, false));
    (predicted.seconds < step ? low : high) = middle;
  }
  return std::sqrt(low * high);
}

}  // namespace

Result<Profile> calibrate(Run& run, const Profile& profile) {
  const Plan& plan = run.plan();
  std::vector<std::vector<TraceSpan>> spans(static_cast<size_t>(plan.config.ranks));
  Recorded recorded(plan);
  for (size_t r = 0; r < spans.size(); ++r) {
    WEFT_TRY(run.spans(static_cast<int32_t>(r), spans[r]));
    recorded.add(r, spans[r]);
  }
  WEFT_TRY(recorded.check());
  Profile out = profile;
  out.memory_speed = kMemorySpeed;
  WEFT_TRY_ASSIGN(std::shared_ptr<Plan> as_before, timed(plan, out));
  const JobCosts costs(*as_before, plan.main_mode(), as_before->config.times, {});
  scale(plan, recorded.actions(costs), out);
  out.memory_speed /= recorded.updates(costs).factor();
  out.overhead = recorded.overhead();
  WEFT_TRY_ASSIGN(const double factor, factor_of(plan, out, recorded.step_seconds()));
  multiply(out, factor);
  return out;
}

}  // namespace weft
