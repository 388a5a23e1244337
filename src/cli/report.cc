#include "cli/report.h"
#include "cli/json.h"

#include <cstdio>

namespace weft::cli {

namespace {

std::string fixed(double value, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return buffer;
}

}  // namespace

void Report::step(const StepReport& report) {
  last_ = report;
  if (json_) {
    print_line(JsonObject()
                   .add("event", "step")
                   .add("step", report.step)
                   .add("loss", report.loss)
                   .add("micro_batch_losses", report.micro_batch_losses)
                   .add("grad_norm", report.grad_norm)
                   .add("tokens_per_second", report.per_second)
                   .add("idle", report.idle)
                   .add("idle_by_rank", report.idle_by_rank)
                   .text());
    return;
  }
  progress_.show("step " + std::to_string(report.step) + "/" + std::to_string(steps_) + "  loss " +
                 fixed(report.loss, 4) + "  " + fixed(report.per_second, 0) + " " + unit_ +
                 "/s  idle " + fixed(100 * report.idle, 0) + "%");
}

void Report::evaluated(uint64_t step, double loss, int64_t windows) {
  eval_loss_ = loss;
  eval_step_ = step;
  if (json_)
    print_line(JsonObject()
                   .add("event", "eval")
                   .add("step", step)
                   .add("eval_loss", loss)
                   .add("windows", windows)
                   .text());
  else
    progress_.note("step " + std::to_string(step) + "  held-out loss " + fixed(loss, 4));
}

void Report::saved(uint64_t step, const std::string& path) {
  if (json_)
    print_line(JsonObject().add("event", "checkpoint").add("step", step).add("path", path).text());
  else
    progress_.note("step " + std::to_string(step) + "  saved " + path);
}

void Report::done(const DoneReport& r) {
  progress_.clear();
  if (json_) {
    print_line(
        JsonObject()
            .add("event", "done")
            .add("digest", r.digest)
            .add("optimizer_digest", r.optimizer_digest)
            .add("steps", r.steps)
            .add("seconds", r.seconds)
            .add("parameters", r.parameters)
            .add("peak_bytes_by_rank",
                 JsonObject().add("planned", r.planned_bytes).add("measured", r.measured_bytes))
            .add("kernels", r.kernels)
            .text());
    return;
  }
  std::string line = "step " + std::to_string(r.steps);
  if (last_.step) line += "  loss " + fixed(last_.loss, 4);
  if (eval_loss_ >= 0) line += "  held-out loss " + fixed(eval_loss_, 4);
  if (eval_loss_ >= 0 && eval_step_ != r.steps)
    line += " (step " + std::to_string(eval_step_) + ")";
  print_line(line + "  " + fixed(r.seconds, 1) + " s");
  print_line("digest " + r.digest);
}

}  // namespace weft::cli
