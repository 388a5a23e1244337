#include "cli/report.h"

#include <cmath>
#include <csignal>

#include "cli/units.h"

namespace weft::cli {

namespace {

// A step that takes longer shows its progress.
constexpr double kLong = 1;  // seconds

std::string counted(uint64_t step, uint64_t steps) {
  return "step " + std::to_string(step) + "/" + std::to_string(steps);
}

}  // namespace

double Report::elapsed() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count();
}

double Report::step_seconds() const {
  if (submissions_) return spent_ / static_cast<double>(submissions_);
  if (done_ == 0) return o_.predicted;
  return elapsed() * static_cast<double>(micro_batches_) / static_cast<double>(done_);
}

std::string Report::current_steps() const {
  const std::string first = std::to_string(first_);
  return first_ == final_ ? "step " + first : "steps " + first + " to " + std::to_string(final_);
}

void Report::add(const JsonObject& line) {
  if (o_.json) print_line(line.text());
  log_.add(line);
}

void Report::run(const std::vector<std::string>& lines, const JsonObject& json) {
  add(json);
  if (o_.json) return;
  for (const std::string& line : lines) progress_.note(line);
}

void Report::begin(uint64_t first, uint64_t last, uint64_t micro_batches) {
  first_ = first;
  final_ = last;
  micro_batches_ = micro_batches;
  done_ = 0;
  begin_ = Clock::now();
}

void Report::tick() {
  if (!progress_.terminal() || elapsed() < kLong || micro_batches_ == 0) return;
  const double whole = step_seconds();
  progress_.show(counted(final_, o_.steps) + "  " + std::to_string(done_) + "/" +
                 std::to_string(micro_batches_) + " micro-batches  " + duration_text(elapsed()) +
                 (whole > elapsed() ? " of about " + duration_text(whole) : ""));
}

void Report::stopping(int signal, bool computes_step) {
  stopping_ = true;
  if (o_.quiet) return;
  progress_.clear();
  const std::string again = signal == SIGINT   ? "^C again"
                            : signal == SIGHUP ? "SIGTERM"
                                               : "the same signal again";
  const double left = step_seconds() - elapsed();
  const std::string what = computes_step ? current_steps() : "what was begun";
  complain("train", "finishing " + what +
                        (computes_step && left >= 1 ? ", about " + duration_text(left) : "") +
                        "; " + again + " stops now");
}

void Report::step(const StepReport& report) {
  last_ = report;
  ++steps_done_;
  if (report.step == final_) {
    spent_ += elapsed();
    ++submissions_;
    micro_batches_ = 0;
  }
  add(JsonObject()
          .add("event", "step")
          .add("step", report.step)
          .add("loss", report.loss)
          .add("micro_batch_losses", report.micro_batch_losses)
          .add("learning_rate", report.rate)
          .add("grad_norm", report.grad_norm)
          .add("tokens_per_second", report.per_second)
          .add("idle", report.idle)
          .add("idle_by_rank", report.idle_by_rank)
          .add("seconds", report.seconds)
          .add("elapsed", report.elapsed));
  if (o_.json) return;
  std::string line = counted(report.step, o_.steps) + "  loss " + fixed_text(report.loss, 4) +
                     "  lr " + short_text(report.rate) + "  " + fixed_text(report.per_second, 0) +
                     " " + o_.unit + "/s  idle " + fixed_text(100 * report.idle, 0) + "%";
  if (submissions_ && report.step < o_.steps && !stopping_)
    line += "  " +
            duration_text(spent_ / static_cast<double>(steps_done_) *
                          static_cast<double>(o_.steps - report.step)) +
            " left";
  progress_.show(line);
}

void Report::evaluated(uint64_t step, double loss, int64_t windows) {
  eval_loss_ = loss;
  eval_step_ = step;
  add(JsonObject()
          .add("event", "eval")
          .add("step", step)
          .add("eval_loss", loss)
          .add("windows", windows));
  if (o_.json) return;
  std::string line = "step " + std::to_string(step) + "  held-out loss " + fixed_text(loss, 4);
  if (std::string_view(o_.unit) == "tokens")
    line += "  perplexity " + fixed_text(std::exp(loss), 2);
  progress_.note(line);
}

void Report::saved(uint64_t step, const std::string& path) {
  add(JsonObject().add("event", "checkpoint").add("step", step).add("path", path));
  if (!o_.json) progress_.note("step " + std::to_string(step) + "  saved " + path);
}

void Report::restarted(uint32_t number, const std::string& reason) {
  add(JsonObject().add("event", "restart").add("restart", number).add("reason", reason));
}

void Report::done(const DoneReport& r) {
  progress_.clear();
  add(JsonObject()
          .add("event", "done")
          .add("digest", r.digest)
          .add("optimizer_digest", r.optimizer_digest)
          .add("steps", r.steps)
          .add("seconds", r.seconds)
          .add("parameters", r.parameters)
          .add("peak_bytes_by_rank",
               JsonObject().add("planned", r.planned_bytes).add("measured", r.measured_bytes))
          .add("kernels", r.kernels));
  if (o_.json) return;
  std::string line = "step " + std::to_string(r.steps);
  if (last_.step) line += "  loss " + fixed_text(last_.loss, 4);
  if (eval_loss_) line += "  held-out loss " + fixed_text(*eval_loss_, 4);
  if (eval_loss_ && eval_step_ != r.steps) line += " (step " + std::to_string(eval_step_) + ")";
  print_line(line + "  " + fixed_text(r.seconds, 1) + " s");
  print_line("digest " + r.digest);
}

}  // namespace weft::cli
