// How well processes keep to a schedule: every F, I and W of a stage sleeps for a known time, so
// the measured step, over real sockets and event loops, should be what the simulator says, whatever
// the machine's cores. What is above it is the runtime's own.
//
//   build/tests/bench/bench_timed_ranks RANKS MICRO_BATCHES MILLISECONDS [SCHEDULE ...]
//
// One line per schedule that allows the sizes: predicted and measured milliseconds of a step (from
// submit to its last event, median of three), and their ratio. A rank's whole share takes
// MILLISECONDS for each of F, I and W; a chunk takes its part.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "ops/op.h"
#include "runtime/mesh.h"
#include "runtime/run.h"
#include "sim/sim.h"
#include "tune/make_plan.h"

extern char** environ;

namespace weft {
namespace {

// y = x; every call sleeps for attrs.factor seconds. Its weight is there to have a W.
class Timed final : public Op {
 public:
  std::string_view name() const override { return "timed"; }
  uint32_t reads() const override { return kFactor; }
  Result<Inferred> infer(const Attrs&, std::span<const Operand> in,
                         std::span<const Desc>) const override {
    return Inferred{.out = in[0].desc, .stash = {}, .scratch = 0};
  }
  Cost cost(const Attrs&, std::span<const Desc>, std::span<const Desc>,
            const Desc&) const override {
    return {1, 1, 1};
  }
  Status forward(const Call& call) const override { return copy(call, call.in[0], call.out); }
  Status input_grad(const Call& call) const override { return copy(call, call.dout, call.din[0]); }
  Status weight_grad(const Call& call) const override { return sleep(call); }

 private:
  static Status sleep(const Call& call) {
    std::this_thread::sleep_for(std::chrono::duration<double>(call.attrs->factor));
    return {};
  }
  static Status copy(const Call& call, const View& from, const View& to) {
    if (from && to) std::memcpy(to.data, from.data, from.desc.bytes());
    return sleep(call);
  }
};
const Timed kTimed;

constexpr const Op* kOwnOps[] = {&kTimed};

Result<std::shared_ptr<const Plan>> timed_plan(const ScheduleKind& kind, int32_t ranks,
                                               int32_t micro_batches, double seconds) {
  WEFT_TRY_ASSIGN(const int32_t chunks, chunks_of(kind, 0));
  auto model = std::make_shared<Model>();
  const Shape row{1, 16};
  WEFT_TRY_ASSIGN(NodeId x, model->add_input("x", {DType::f32, row}, true));
  WEFT_TRY_ASSIGN(const NodeId target, model->add_input("target", {DType::f32, row}, false));
  PlanConfig config;
  for (int32_t s = 0; s < ranks * chunks; ++s) {
    const std::string name = "t" + std::to_string(s);
    WEFT_TRY_ASSIGN(const ParamId weight, model->add_param(name + ".weight", Shape{16}, {}));
    Attrs attrs;
    attrs.factor = seconds / chunks;
    WEFT_TRY_ASSIGN(x, model->add_node(name, &kTimed, attrs, std::vector<NodeId>{x},
                                       std::vector<ParamId>{weight}));
    if (s > 0) config.cuts.push_back(name);
  }
  WEFT_TRY(
      model->add_node("loss", find_op("mse"), {}, std::vector<NodeId>{x, target}, {}).status());
  WEFT_TRY(model->finish());
  config.ranks = ranks;
  config.micro_batches = micro_batches;
  config.schedule = kind.name;
  for (const Node& node : model->nodes())
    config.times.push_back({node.attrs.factor, node.attrs.factor, node.attrs.factor});
  return make_plan(std::move(model), config);
}

double predicted(std::shared_ptr<const Plan> plan) {
  SimCosts costs;
  costs.job = [&plan](int32_t, const RankProgram& program, const Job& job) {
    double time = 0;
    if (job.kind == JobKind::action)
      for (const ProgramCall& call : program.programs[static_cast<size_t>(job.program)].calls)
        if (!folds(call.kind)) time += plan->model->node(call.node).attrs.factor;
    return time;
  };
  Sim sim(plan, costs);
  StepDescriptor step;
  step.micro_batches = plan->config.micro_batches;
  auto done = sim.step(step);
  return done.ok() ? done.value().makespan : -1;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Median of three steps after the first; below 0: it failed.
Result<double> measured(std::shared_ptr<const Plan> plan) {
  WEFT_TRY_ASSIGN(auto mesh,
                  Mesh::listen({.endpoint = "", .listen = "", .join_timeout_ms = 20000}));
  std::vector<pid_t> children;
  for (int32_t r = 1; r < plan->config.ranks; ++r) {
    std::string self = "/proc/self/exe", flag = "--join", endpoint = mesh->join_text();
    char* args[] = {self.data(), flag.data(), endpoint.data(), nullptr};
    pid_t pid = 0;
    if (posix_spawn(&pid, self.c_str(), nullptr, nullptr, args, environ) == 0)
      children.push_back(pid);
  }
  std::vector<double> times;
  {
    WEFT_TRY_ASSIGN(auto run, start_mesh(plan, *mesh, 1, [](void*) {}));
    std::vector<float> batch(static_cast<size_t>(16 * plan->config.micro_batches), 1.0f);
    for (int step = 0; step < 4; ++step) {
      const double begin = now();
      Step* s = run->acquire();
      s->batch.samples = plan->config.micro_batches;
      s->batch.inputs = {batch.data(), batch.data()};
      WEFT_TRY(run->submit(s));
      RunEvent event;
      while (run->poll(event, -1)) WEFT_TRY(event.status);
      if (step > 0) times.push_back(now() - begin);
    }
  }
  for (pid_t pid : children) waitpid(pid, nullptr, 0);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int join(const char* endpoint) {
  auto mesh = Mesh::join({.endpoint = endpoint, .listen = ""});
  const Status status = mesh.ok() ? serve(*mesh.value(), nullptr, 1, kOwnOps) : mesh.status();
  if (!status.ok()) std::fprintf(stderr, "rank: %s\n", status.text().c_str());
  return status.ok() ? 0 : 1;
}

int compare(int32_t ranks, int32_t micro_batches, double seconds,
            const std::vector<std::string>& names) {
  std::printf("%-16s %10s %10s %7s\n", "schedule", "predicted", "measured", "ratio");
  int faults = 0;
  for (const ScheduleKind& kind : all_schedules()) {
    if (kind.name == "forward" || kind.asynchronous ||
        (!names.empty() && std::find(names.begin(), names.end(), kind.name) == names.end()))
      continue;
    auto plan = timed_plan(kind, ranks, micro_batches, seconds);
    if (!plan.ok()) {
      std::printf("%-16s %s\n", std::string(kind.name).c_str(), plan.status().text().c_str());
      continue;
    }
    const double expected = predicted(plan.value());
    auto found = measured(plan.value());
    if (!found.ok()) {
      std::printf("%-16s %s\n", std::string(kind.name).c_str(), found.status().text().c_str());
      ++faults;
      continue;
    }
    std::printf("%-16s %10.1f %10.1f %7.3f\n", std::string(kind.name).c_str(), 1e3 * expected,
                1e3 * found.value(), found.value() / expected);
    std::fflush(stdout);
  }
  return faults ? 1 : 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--join") == 0) return weft::join(argv[2]);
  if (argc < 4) {
    std::fprintf(stderr,
                 "usage: bench_timed_ranks RANKS MICRO_BATCHES MILLISECONDS [SCHEDULE ...]\n");
    return 2;
  }
  return weft::compare(std::atoi(argv[1]), std::atoi(argv[2]), std::atof(argv[3]) / 1e3,
                       {argv + 4, argv + argc});
}
