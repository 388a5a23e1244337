#include "engine/trace.h"

#include <algorithm>

#include "base/text.h"

namespace weft {

namespace {

std::string job_name(const RankProgram& program, const Job& job) {
  switch (job.kind) {
    case JobKind::clear: return "clear";
    case JobKind::send_ties: return "send ties";
    case JobKind::reduce: return "reduce";
    case JobKind::update: return "update";
    case JobKind::finish: return "finish";
    case JobKind::action: {
      const ActionProgram& action = program.programs[static_cast<size_t>(job.program)];
      return Action{action.stage, action.kind, job.micro_batch}.text();
    }
  }
  return "?";
}

std::string category(const RankProgram& program, const Job& job) {
  if (job.kind != JobKind::action) return "step";
  return std::string(1, kind_letter(program.programs[static_cast<size_t>(job.program)].kind));
}

}  // namespace

std::string trace_text(const Plan& plan, const std::vector<std::vector<TraceSpan>>& spans) {
  int64_t first = INT64_MAX;
  for (const auto& rank : spans)
    for (const TraceSpan& s : rank) first = std::min(first, s.time.begin);
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  for (size_t r = 0; r < spans.size(); ++r) {
    out += cat(r ? ",\n" : "\n", "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":", r,
               ",\"args\":{\"name\":\"rank ", r, "\"}}");
    for (const TraceSpan& s : spans[r]) {
      const RankProgram& program = plan.mode(s.mode).ranks[r];
      const Job& job = program.jobs[static_cast<size_t>(s.job)];
      // Chrome counts in microseconds.
      out += cat(",\n{\"ph\":\"X\",\"pid\":", r, ",\"tid\":0,\"name\":\"", job_name(program, job),
                 "\",\"cat\":\"", category(program, job),
                 "\",\"ts\":", static_cast<double>(s.time.begin - first) / 1000,
                 ",\"dur\":", static_cast<double>(s.time.end - s.time.begin) / 1000,
                 ",\"args\":{\"step\":", s.step, ",\"mode\":\"", mode_name(s.mode), "\"}}");
    }
  }
  return out + "\n]}\n";
}

}  // namespace weft
