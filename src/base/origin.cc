#include "base/origin.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace weft {

namespace {

std::string seconds(int64_t ms) { return cat(static_cast<double>(ms / 100) / 10, " s"); }

std::string job_text(const Activity& a) {
  switch (a.job) {
    case Activity::kClear: return "clearing gradients";
    case Activity::kReduce: return "reducing gradients";
    case Activity::kUpdate: return "updating weights";
    case Activity::kFinish: return "finishing";
    default: return cat(a.stage, std::string(1, a.job), a.micro_batch);
  }
}

// In texts steps are counted from 1, as in the command and in checkpoints.
std::string step_text(const Activity& a) {
  if (a.mode == Activity::kTrain) return cat(" of step ", a.step + 1);
  if (a.mode == Activity::kEval) return " of an evaluation";
  return a.mode == Activity::kFill ? " of a step that fills caches" : " of a forward step";
}

std::string awaited_text(const Activity& a) {
  const auto of = [&a](const char* what) {
    return cat("the ", what, " of micro-batch ", std::max(a.micro_batch, 0), " from rank ", a.from);
  };
  switch (a.awaited) {
    case Activity::Awaited::nothing: break;
    case Activity::Awaited::commit: return "the commit";
    case Activity::Awaited::release: return "its messages to be sent";
    case Activity::Awaited::input: return of("input");
    case Activity::Awaited::activation: return of("activation");
    case Activity::Awaited::gradient: return of("gradient");
    case Activity::Awaited::message: return cat("a message from rank ", a.from);
  }
  return "nothing";
}

std::string stages_text(const std::vector<uint32_t>& stages) {
  constexpr size_t kMost = 8;
  std::string out = stages.size() > 1 ? "stages " : "stage ";
  const size_t shown = std::min(stages.size(), kMost);
  for (size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == stages.size();
    append(out, i == 0 ? "" : last ? " and " : ", ", stages[i]);
  }
  if (shown < stages.size()) append(out, " and ", stages.size() - shown, " more");
  return out;
}

// "rank 2 (stages 2 and 5, pid 77 on node3)"
std::string who(const Origin& o) {
  std::string more = o.stages.empty() ? "" : stages_text(o.stages);
  if (o.process.pid) append(more, more.empty() ? "" : ", ", "pid ", o.process.pid);
  if (o.process.pid && !o.process.host.empty()) append(more, " on ", o.process.host);
  return more.empty() ? rank_name(o.rank) : cat(rank_name(o.rank), " (", more, ")");
}

std::string loss(const Origin& o) {
  switch (o.cause) {
    case Cause::silent: return cat("silent for ", seconds(o.limit_ms));
    case Cause::missing:
      return cat(o.count, " data frames did not arrive within ", seconds(o.limit_ms));
    case Cause::unreachable: return cat("did not connect", o.detail.empty() ? "" : ": ", o.detail);
    default: return o.detail.empty() ? "connection closed" : o.detail;
  }
}

// The status came with a heartbeat. Other frames may have arrived since, and the rank may be
// further.
std::string last_seen(const Origin& o) {
  std::string out;
  if (o.heard_ms >= 0) append(out, "; last frame ", seconds(o.heard_ms), " ago");
  if (o.reported_ms >= 0 && o.activity.state != Activity::State::unknown)
    append(out, "; last status ", seconds(o.reported_ms), " ago: ", activity_text(o.activity));
  return out;
}

std::string lost_text(const Origin& o) {
  if (o.other >= 0)
    return cat("the connection between rank ", std::min(o.rank, o.other), " and rank ",
               std::max(o.rank, o.other), " was lost: ", loss(o), "; rank 0 is connected to both");
  return cat(who(o), o.joining ? " lost before it joined: " : " lost: ", loss(o), last_seen(o));
}

std::string failed_text(const Origin& o, const std::string& detail) {
  const bool worked =
      o.activity.state == Activity::State::runs || o.activity.state == Activity::State::waits;
  return cat(who(o), " failed", worked ? " " : "", worked ? activity_text(o.activity) : "", ": ",
             detail);
}

std::string unreachable_text(const Origin& o) {
  const std::string text = cat(who(o), " did not connect");
  if (o.limit_ms == 0) return cat(text, ": ", o.detail);
  return cat(text, " within ", seconds(o.limit_ms),
             o.detail.empty() ? "" : cat(" (", o.detail, ")"));
}

}  // namespace

bool is_action(char letter) { return letter != 0 && std::strchr("FIWBRO", letter); }

bool is_job(char letter) {
  return is_action(letter) || (letter != 0 && std::strchr("cgue", letter));
}

std::string activity_text(const Activity& a) {
  switch (a.state) {
    case Activity::State::unknown: return "unknown";
    case Activity::State::idle: return cat("between steps, ", a.step, " done");
    case Activity::State::runs: return cat("in ", job_text(a), step_text(a));
    case Activity::State::waits:
      return cat("before ", job_text(a), step_text(a), ", waits for ", awaited_text(a));
  }
  return "unknown";
}

std::string rank_name(int32_t rank) {
  return rank == kNobody ? "a process without a rank" : cat("rank ", rank);
}

std::string origin_text(const Origin& o) {
  const std::string detail = o.detail.empty() ? "no reason given" : o.detail;
  switch (o.cause) {
    case Cause::failed: return o.rank < 0 ? detail : failed_text(o, detail);
    case Cause::closed:
    case Cause::silent:
    case Cause::missing: return lost_text(o);
    case Cause::unreachable: return o.other < 0 ? unreachable_text(o) : lost_text(o);
    case Cause::late: return cat(who(o), " did not ", detail, " within ", seconds(o.limit_ms));
    case Cause::refused:
      return o.rank == kNobody ? cat("refused by rank 0: ", detail)
                               : cat(who(o), " refused: ", detail);
    case Cause::protocol: return cat(who(o), ": ", detail);
    case Cause::no_run: return cat("rank 0 began no run: ", detail);
  }
  return detail;
}

}  // namespace weft
