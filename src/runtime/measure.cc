#include "runtime/measure.h"

#include <algorithm>

#include "base/median.h"
#include "base/text.h"
#include "engine/steps.h"
#include "kernels/gemm.h"
#include "loop/team.h"
#include "ops/op.h"
#include "runtime/worker.h"
#include "sim/costs.h"
#include "tune/make_plan.h"

namespace weft {

namespace {

// Of a step. So a weight that products read packed is packed once per step, as in most runs.
constexpr int kMicroBatches = 8;
static_assert(kMicroBatches == kMostTogether);
constexpr int kFewestTogether = 3;  // measured steps, each of which has W of all of them once

double median_seconds(std::vector<int64_t>& nanoseconds) {
  return static_cast<double>(median(std::span(nanoseconds))) * 1e-9;
}

// All ops accept whole numbers from `least` to `bound` - 1: ops on indices (slice, concat, ...) do
// not change their values.
struct Bounds {
  int64_t least, bound;
};

Bounds bounds_of(const Model& model, NodeId input) {
  int64_t least = 0, bound = 0;
  const auto at_most = [&bound](int64_t most) {
    bound = bound == 0 ? most : std::min(bound, most);
  };
  std::vector<bool> reached(model.nodes().size(), false);
  reached[static_cast<size_t>(input)] = true;
  for (size_t id = static_cast<size_t>(input); id < reached.size(); ++id) {
    if (!reached[id]) continue;
    for (const Node::Use& use : model.nodes()[id].uses) {
      const Node& user = model.node(use.node);
      if (user.op->is_loss()) at_most(model.node(user.in.front()).one.out.shape.last());
      if (user.op->name() == "embedding" && !(user.attrs.flags & kPositions))
        at_most(model.param(user.weights.front()).shape[0]);
      if (user.op->name() == "attention" && (user.attrs.flags & kCausal))
        at_most(1);  // the only position of the first row
      else if (user.op->name() == "attention")
        least = 1;  // a mask that hides no key
      if (user.op->name() == "gather" && use.port == 1)
        at_most(model.node(user.in.front()).one.out.shape[user.attrs.axis]);
      if (user.one.out.dtype == DType::i32) reached[static_cast<size_t>(use.node)] = true;
    }
  }
  return {least, std::max(bound, least + 1)};
}

void draw(const Model& model, NodeId input, std::span<std::byte> bytes) {
  uint64_t state = 0x9e3779b97f4a7c15u + static_cast<uint64_t>(input);
  const auto next = [&state] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
  };
  if (model.node(input).one.out.dtype == DType::i32) {
    const Bounds bounds = bounds_of(model, input);
    const auto count = static_cast<uint64_t>(bounds.bound - bounds.least);
    auto* out = reinterpret_cast<int32_t*>(bytes.data());
    for (size_t i = 0; i < bytes.size() / 4; ++i)
      out[i] = static_cast<int32_t>(bounds.least + static_cast<int64_t>(next() % count));
  } else if (model.node(input).one.out.dtype == DType::f32) {
    auto* out = reinterpret_cast<float*>(bytes.data());
    for (size_t i = 0; i < bytes.size() / 4; ++i)
      out[i] = static_cast<float>(next()) / static_cast<float>(1u << 30) - 1;
  }
}

class Measure {
 public:
  Measure(std::shared_ptr<const Plan> plan, Worker& worker)
      : plan_(std::move(plan)), worker_(worker) {}

  Result<Measured> run(int repeats) {
    mode_ = plan_->main_mode();
    const RankProgram& program = plan_->mode(mode_).ranks[0];
    for (const ActionProgram& action : program.programs) calls_.emplace_back(action.calls.size());
    updates_.clear();
    worker_.time_calls(&now_);
    Status status = step(false, 0);
    for (int done = 0; done < repeats && status.ok(); done += plan_->config.micro_batches)
      status = step(true, static_cast<uint64_t>(done + 1));
    worker_.time_calls(nullptr);
    if (!status.ok()) return status;
    return collect(program);
  }

 private:
  Status step(bool counts, uint64_t number) {
    const RankProgram& program = plan_->mode(mode_).ranks[0];
    StepDescriptor step = largest_step(*plan_, mode_);
    step.sequence = step.step = number;
    int64_t update = 0;
    for (size_t j = 0; j < program.jobs.size(); ++j) {
      const Job& job = program.jobs[j];
      now_.clear();
      draw_inputs(program, job, number);
      WEFT_TRY(worker_.run({.step = step, .job = static_cast<int32_t>(j)}));
      if (job.kind != JobKind::action) {
        update += worker_.last_time().end - worker_.last_time().begin;
      } else if (counts) {
        auto& calls = calls_[static_cast<size_t>(job.program)];
        for (size_t c = 0; c < now_.size(); ++c) calls[c].push_back(now_[c] / job.together);
      }
    }
    if (counts) updates_.push_back(update);
    return {};
  }

  // Those that the job waits for.
  void draw_inputs(const RankProgram& program, const Job& job, uint64_t sequence) {
    if (job.kind != JobKind::action) return;
    const ModePlan& mode = plan_->mode(mode_);
    for (const int32_t e : program.programs[static_cast<size_t>(job.program)].waits)
      if (const Edge& edge = mode.edges[static_cast<size_t>(e)]; edge.kind == EdgeKind::feed)
        draw(*plan_->model, mode.graph.tensors[static_cast<size_t>(edge.tensor)].node,
             worker_.landing(mode_, e, job.micro_batch, 0, sequence));
  }

  Measured collect(const RankProgram& program) {
    Measured out;
    out.times.resize(plan_->whole->nodes().size());
    if (mode_ == Mode::train) out.update = median_seconds(updates_);
    if (out.update > 0) out.memory_speed = moved_bytes(program) / out.update;
    for (size_t p = 0; p < calls_.size(); ++p)
      for (size_t c = 0; c < calls_[p].size(); ++c) {
        if (calls_[p][c].empty()) continue;  // a program without an action in the schedule
        const ProgramCall& call = program.programs[p].calls[c];
        const NodeId origin = plan_->model->node(call.node).origin;
        NodeTimes& times = out.times[static_cast<size_t>(origin)];
        (call.kind == CallKind::forward       ? times.forward
         : call.kind == CallKind::weight_grad ? times.weight
                                              : times.input) += median_seconds(calls_[p][c]);
      }
    return out;
  }

  // By the jobs of a step that are not actions.
  double moved_bytes(const RankProgram& program) const {
    const JobCosts costs(*plan_, mode_, {}, {});
    double seconds = 0;
    for (const Job& job : program.jobs)
      if (job.kind != JobKind::action) seconds += costs.of(0, job);
    return seconds * kMemorySpeed;
  }

  std::shared_ptr<const Plan> plan_;
  Worker& worker_;
  Mode mode_ = Mode::train;
  std::vector<int64_t> now_, updates_;
  std::vector<std::vector<std::vector<int64_t>>> calls_;  // [program][call][repeat]
};

Result<Measured> measure_plan(const std::shared_ptr<const Plan>& plan,
                              const MeasureOptions& options) {
  WEFT_TRY_ASSIGN(const auto team, Team::make(options.threads));
  WEFT_TRY_ASSIGN(const auto worker, Worker::make(plan, 0, *team));
  return Measure(plan, *worker).run(options.repeats);
}

int64_t bytes_of_params(const Model& model) {
  int64_t out = 0;
  for (const Param& param : model.params()) out += param.desc().bytes();
  return out;
}

// W of several micro-batches at once, unless their activations take more memory than the
// parameters. Then, a micro-batch has so many rows that little is gained. `bytes`: of a plan with
// one micro-batch at a time.
Status measure_together(const std::shared_ptr<const Model>& model, PlanConfig config, int64_t bytes,
                        MeasureOptions options, Measured& out) {
  options.repeats = std::max(options.repeats, kFewestTogether * kMicroBatches);
  config.schedule = "1f1b-delayed-w";
  config.group = config.micro_batches;
  WEFT_TRY_ASSIGN(const std::shared_ptr<const Plan> plan, make_plan(model, config));
  if (plan->arena_bytes[0] - bytes > bytes_of_params(*model)) return {};
  const Result<Measured> measured = measure_plan(plan, options);
  if (measured.status().code() == Code::no_memory) return {};
  WEFT_TRY(measured.status());
  for (size_t id = 0; id < out.times.size(); ++id)
    out.times[id].weight_together = measured.value().times[id].weight;
  return {};
}

}  // namespace

Result<Measured> measure(const std::shared_ptr<const Model>& model, const MeasureOptions& options) {
  if (options.repeats < 1 || options.repeats > 100000)
    return Status(Code::invalid, cat("repeats is ", options.repeats, ", expected 1 to 100000"));
  PlanConfig config;
  config.micro_batches = std::min(options.repeats, kMicroBatches);
  config.micro_batch_size = options.micro_batch_size;
  config.precision = options.precision;
  config.f32_nodes = options.f32_nodes;
  config.optim.rate = 1e-9;  // so that the weights hardly change
  WEFT_TRY_ASSIGN(const std::shared_ptr<const Plan> plan, make_plan(model, config));
  gemm_info();  // chooses the kernels, once
  WEFT_TRY_ASSIGN(Measured out, measure_plan(plan, options));
  if (plan->main_mode() == Mode::train && config.micro_batches == kMicroBatches)
    WEFT_TRY(measure_together(model, config, plan->arena_bytes[0], options, out));
  return out;
}

Profile profile_of(const Measured& measured, const Model& model, const MeasureOptions& options) {
  Profile out;
  out.micro_batch_size = static_cast<uint64_t>(options.micro_batch_size);
  out.threads = static_cast<uint64_t>(options.threads);
  out.precision = options.precision;
  out.f32_nodes = options.f32_nodes;
  out.update = measured.update;
  out.memory_speed = measured.memory_speed;
  for (NodeId id = 0; id < static_cast<NodeId>(model.nodes().size()); ++id) {
    if (model.node(id).is_input()) continue;
    const Inferred made = model.infer(id, options.micro_batch_size);
    const NodeTimes& t = measured.times[static_cast<size_t>(id)];
    ProfileNode node{.name = model.node(id).name,
                     .forward = t.forward,
                     .input = t.input,
                     .weight = t.weight,
                     .weight_together = t.weight_together,
                     .output_bytes = made.out.bytes()};
    for (const Desc& stash : made.stash) node.stash_bytes += stash.bytes();
    out.nodes.push_back(std::move(node));
  }
  return out;
}

}  // namespace weft
