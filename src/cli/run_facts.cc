#include "cli/run_facts.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "cli/plan_report.h"
#include "cli/train_data.h"
#include "cli/units.h"

namespace weft::cli {

namespace {

constexpr double kLongStep = 60;       // seconds
constexpr double kMostOfMemory = 0.5;  // of the machine

uint32_t ranks_of_pipeline(const RunFacts& facts, const std::vector<uint32_t>& in_turn) {
  return in_turn.empty() ? facts.plan.pipeline_ranks() : static_cast<uint32_t>(in_turn.size());
}

// "data=2,stage=2", or "stage=2 of 3,1 ranks".
std::string mesh_text(const RunFacts& facts) {
  const std::vector<uint32_t> in_turn = stage_replicas(facts.built.plan.get());
  std::string out, each;
  for (const auto& [axis, size] : {std::pair<const char*, uint32_t>{"data", facts.plan.data},
                                   {"stage", ranks_of_pipeline(facts, in_turn)},
                                   {"tensor", facts.plan.shard_ranks}})
    if (size > 1) out += (out.empty() ? "" : ",") + (axis + ("=" + std::to_string(size)));
  for (const uint32_t r : in_turn) each += (each.empty() ? "" : ",") + std::to_string(r);
  if (in_turn.size() > 1) out += " of " + each + " ranks";
  return out;
}

// Bytes of memory that this process may use: those of the machine, or of its container.
int64_t machine_bytes() {
  int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  int64_t limit = 0;
  std::ifstream file("/sys/fs/cgroup/memory.max");
  if (file >> limit && limit > 0) bytes = std::min(bytes, limit);
  return bytes;
}

std::string size_text(const RunFacts& facts) {
  const uint32_t count = facts.info.micro_batches;
  std::string out = std::to_string(count) +
                    (count == 1 ? " micro-batch of " : " micro-batches of ") +
                    std::to_string(facts.plan.micro_batch_size);
  if (facts.built.info.tokens)
    return out + " x " + std::to_string(facts.built.info.seq_len) + " tokens";
  return out + " samples";
}

std::string options_that_shorten(const RunFacts& facts) {
  return std::string("--micro-batch-size") +
         (facts.built.info.tokens ? ", --micro-batches or --seq-len" : " or --micro-batches");
}

// 3 significant digits, but all digits before the point.
std::string count_text(double value) {
  return value >= 100 ? fixed_text(value, 0) : short_text(value);
}

// "1 epoch", "1.5 epochs"
std::string count_of(double value, const std::string& what) {
  const std::string count = count_text(value);
  return count + " " + what + (count == "1" ? "" : "s");
}

std::string data_line(const RunFacts& facts, uint64_t steps) {
  const double per_epoch = facts.steps_per_epoch();
  const std::string long_samples = long_samples_text(facts.data);
  return "data: " + std::to_string(facts.windows()) +
         (facts.windows() == 1 ? " sequence of " : " sequences of ") +
         std::to_string(facts.built.info.seq_len) + " tokens, " + count_of(per_epoch, "step") +
         " per epoch, " + count_of(static_cast<double>(steps) / per_epoch, "epoch") + " in all" +
         (long_samples.empty() ? "" : "; " + long_samples + ", with those held out");
}

constexpr std::pair<const char*, weft_memory_kind> kKinds[] = {
    {"weights", WEFT_MEMORY_WEIGHTS},     {"gradients", WEFT_MEMORY_GRADIENTS},
    {"optimizer", WEFT_MEMORY_OPTIMIZER}, {"activations", WEFT_MEMORY_ACTIVATIONS},
    {"messages", WEFT_MEMORY_MESSAGES},   {"scratch", WEFT_MEMORY_SCRATCH},
    {"state", WEFT_MEMORY_STATE}};

}  // namespace

Outcome RunFacts::predict() {
  weft_error err = sized<weft_error>();
  weft_plan_describe(built.plan.get(), &info);
  CLI_CALL(weft_plan_simulate(built.plan.get(), 0, Out(prediction), &err));
  CLI_CALL(weft_prediction_describe(prediction.get(), &predicted));
  return {};
}

double RunFacts::steps_per_epoch() const {
  return static_cast<double>(windows()) / static_cast<double>(samples_of_step(plan));
}

std::vector<std::string> run_lines(const RunFacts& facts, uint64_t steps) {
  const std::string name = facts.built.info.text, mesh = mesh_text(facts);
  const uint32_t ranks = facts.info.ranks;
  const std::string seconds = "about " + about_text(facts.submission_seconds()) + " per ";
  std::vector<std::string> out;
  out.push_back(name.substr(0, name.find(':')) + ": " +
                parameters_text(*facts.built.model, facts.info) + ", " + std::to_string(ranks) +
                (ranks == 1 ? " rank" : " ranks") + (mesh.empty() ? "" : " (" + mesh + ")") + ", " +
                schedule_text(facts.info) + ", " + size_text(facts) +
                "; predicted: " + bytes_text(facts.predicted.peak_bytes) +
                (ranks == 1 ? "" : " on the largest rank") + ", " + seconds +
                (weft_plan_updates(facts.built.plan.get()) > 1 ? "segment" : "step"));
  if (facts.windows() > 0) out.push_back(data_line(facts, steps));
  return out;
}

std::vector<std::string> run_warnings(const RunFacts& facts, uint32_t ranks_here) {
  std::vector<std::string> out;
  if (facts.submission_seconds() >= kLongStep)
    out.push_back("a step of " + size_text(facts) + " is predicted to take " +
                  duration_text(facts.submission_seconds()) + "; a smaller " +
                  options_that_shorten(facts) + " makes it shorter");
  int64_t bytes = 0;
  for (uint32_t r = 0; r < ranks_here; ++r) bytes += weft_plan_bytes(facts.built.plan.get(), r);
  const int64_t machine = machine_bytes();
  if (static_cast<double>(bytes) >= kMostOfMemory * static_cast<double>(machine))
    out.push_back(
        (ranks_here == 1 ? "this rank needs "
                         : "the " + std::to_string(ranks_here) + " ranks on this machine need ") +
        bytes_text(bytes) + " of its " + bytes_text(machine) +
        " of memory; a smaller --micro-batch-size" +
        (facts.built.info.tokens ? " or --seq-len" : "") + ", or --recompute stage, needs less");
  if (facts.windows() > 0 && facts.steps_per_epoch() < 1)
    out.push_back(
        "a step takes " + count_of(1 / facts.steps_per_epoch(), "epoch") +
        " of the data; a smaller --micro-batch-size or --micro-batches makes smaller steps");
  return out;
}

JsonObject memory_json(const weft_plan* plan, uint32_t rank) {
  JsonObject out;
  for (const auto& [name, kind] : kKinds) out.add(name, weft_plan_memory(plan, rank, kind));
  return out;
}

JsonObject run_json(const RunFacts& facts, uint64_t first_step, uint64_t steps) {
  const weft_plan* plan = facts.built.plan.get();
  std::vector<JsonObject> memory;
  for (uint32_t r = 0; r < facts.info.ranks; ++r) memory.push_back(memory_json(plan, r));
  const std::vector<uint32_t> in_turn = stage_replicas(plan);
  JsonObject out;
  out.add("event", "run")
      .add("model", facts.built.info.text)
      .add("parameters", weft_model_parameters(facts.built.model.get()))
      .add("trained_parameters", facts.info.trained)
      .add("ranks", facts.info.ranks)
      .add("mesh", JsonObject()
                       .add("data", facts.plan.data)
                       .add("stage", ranks_of_pipeline(facts, in_turn))
                       .add("tensor", facts.plan.shard_ranks))
      .add("schedule", facts.info.schedule)
      .add("micro_batches", facts.info.micro_batches)
      .add("micro_batch_size", facts.plan.micro_batch_size);
  if (!in_turn.empty()) out.add("stage_replicas", in_turn);
  if (facts.built.info.tokens) out.add("seq_len", facts.built.info.seq_len);
  if (facts.windows() > 0) {
    out.add("sequences", facts.windows()).add("steps_per_epoch", facts.steps_per_epoch());
    add_long_samples(facts.data, out);
  }
  return out.add("unit", facts.unit())
      .add("from_step", first_step)
      .add("to_step", steps)
      .add("predicted_seconds", facts.submission_seconds())
      .add("predicted_idle", facts.predicted.idle)
      .add("memory_by_rank", memory)
      .add("links", links_json(*facts.prediction));
}

}  // namespace weft::cli
