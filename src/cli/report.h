// What `weft train` prints while it runs: JSON lines, or a line for a person.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/files.h"
#include "cli/json.h"
#include "weft.h"

namespace weft::cli {

struct StepReport {
  uint64_t step = 0;  // counts from 1
  double loss = 0, rate = 0, grad_norm = 0, per_second = 0, seconds = 0, elapsed = 0;
  double idle = 0;
  std::vector<double> micro_batch_losses, idle_by_rank;
};

struct DoneReport {
  std::string digest, optimizer_digest, kernels;
  uint64_t steps = 0;
  double seconds = 0;
  int64_t parameters = 0;
  std::vector<int64_t> planned_bytes, measured_bytes;
};

struct ReportOptions {
  bool json = false, quiet = false;
  uint64_t steps = 0;           // of the run
  const char* unit = "tokens";  // what per_second counts
  double predicted = 0;         // seconds of a submission
};

class Report {
 public:
  explicit Report(const ReportOptions& options)
      : o_(options), progress_(options.json || options.quiet) {}

  // Also writes all lines of --json to a file.
  Outcome log_to(const std::string& path, bool append) { return log_.open(path, append); }
  Outcome log_failure() const { return log_.failure(); }
  // `lines` for a person, `json` for a program.
  void run(const std::vector<std::string>& lines, const JsonObject& json);
  // Steps from first to last are computed together.
  void begin(uint64_t first, uint64_t last, uint64_t micro_batches);
  void micro_batch() { ++done_; }
  void tick();  // while a step is computed
  void step(const StepReport& report);
  void evaluated(uint64_t step, double loss, int64_t windows);
  void saved(uint64_t step, const std::string& path);
  void restarted(uint32_t number, const std::string& reason);
  void done(const DoneReport& report);
  void clear() { progress_.clear(); }
  // The answer to the first signal. Without `computes_step`, an evaluation or a save is being made.
  void stopping(int signal, bool computes_step);

 private:
  using Clock = std::chrono::steady_clock;
  void add(const JsonObject& line);
  double step_seconds() const;  // of a submission: as measured, by its progress, or as predicted
  double elapsed() const;       // of the current one
  std::string current_steps() const;

  const ReportOptions o_;
  Progress progress_;
  JsonLog log_;
  StepReport last_;
  bool stopping_ = false;
  std::optional<double> eval_loss_;
  uint64_t eval_step_ = 0;
  // The submission that is computed.
  uint64_t first_ = 0, final_ = 0, micro_batches_ = 0, done_ = 0;
  Clock::time_point begin_;
  double spent_ = 0;                           // seconds in earlier submissions,
  uint64_t submissions_ = 0, steps_done_ = 0;  // and their number
};

}  // namespace weft::cli
