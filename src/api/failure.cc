#include "api/failure.h"

#include <algorithm>
#include <cstring>

#include "api/run_handle.h"

using namespace weft;
using namespace weft::api;

namespace {

#define WEFT_SAME_CAUSE_(inner, outer) \
  static_assert(static_cast<uint32_t>(Cause::inner) == WEFT_CAUSE_##outer)
WEFT_SAME_CAUSE_(failed, FAILED);
WEFT_SAME_CAUSE_(closed, CLOSED);
WEFT_SAME_CAUSE_(silent, SILENT);
WEFT_SAME_CAUSE_(missing, MISSING);
WEFT_SAME_CAUSE_(unreachable, UNREACHABLE);
WEFT_SAME_CAUSE_(late, LATE);
WEFT_SAME_CAUSE_(refused, REFUSED);
WEFT_SAME_CAUSE_(protocol, PROTOCOL);
WEFT_SAME_CAUSE_(no_run, NO_RUN);
#define WEFT_SAME_STATE_(inner, outer) \
  static_assert(static_cast<uint32_t>(Activity::State::inner) == WEFT_ACTIVITY_##outer)
WEFT_SAME_STATE_(unknown, UNKNOWN);
WEFT_SAME_STATE_(idle, IDLE);
WEFT_SAME_STATE_(runs, RUNS);
WEFT_SAME_STATE_(waits, WAITS);
#define WEFT_SAME_AWAITED_(inner, outer) \
  static_assert(static_cast<uint32_t>(Activity::Awaited::inner) == WEFT_AWAITS_##outer)
WEFT_SAME_AWAITED_(nothing, NOTHING);
WEFT_SAME_AWAITED_(commit, COMMIT);
WEFT_SAME_AWAITED_(release, RELEASE);
WEFT_SAME_AWAITED_(input, INPUT);
WEFT_SAME_AWAITED_(activation, ACTIVATION);
WEFT_SAME_AWAITED_(gradient, GRADIENT);
WEFT_SAME_AWAITED_(message, MESSAGE);

constexpr weft_step_mode kStepModes[] = {WEFT_TRAIN, WEFT_EVAL, WEFT_FORWARD, WEFT_FILL};

// -1: unknown.
int64_t to_ms(int64_t ns) { return ns < 0 ? -1 : ns / kMillisecond; }
int64_t from_ms(int64_t ms) { return ms < 0 ? -1 : ms * kMillisecond; }

Activity activity_of(const weft_failure& f) {
  Activity out;
  if (f.activity < kActivityStates) out.state = static_cast<Activity::State>(f.activity);
  if (f.job < 128 && is_job(static_cast<char>(f.job))) out.job = static_cast<char>(f.job);
  if (f.awaited < kAwaitedKinds) out.awaited = static_cast<Activity::Awaited>(f.awaited);
  for (uint8_t mode = 0; mode < std::size(kStepModes); ++mode)
    if (f.mode == kStepModes[mode]) out.mode = mode;
  out.stage = f.stage;
  out.micro_batch = f.micro_batch;
  out.from = f.awaited_rank;
  out.step = f.step;
  return out;
}

Origin origin_of(const weft_failure& f) {
  Origin out{.rank = f.rank, .code = static_cast<Code>(f.status)};
  if (f.cause >= 1 && f.cause <= kCauses) out.cause = static_cast<Cause>(f.cause);
  out.other = f.other;
  out.joining = f.joining != 0;
  out.process.pid = f.pid;
  if (f.host) out.process.host = f.host;
  if (f.detail) out.detail = f.detail;
  if (f.stages) out.stages.assign(f.stages, f.stages + f.n_stages);
  out.activity = activity_of(f);
  out.limit_ms = to_ms(f.limit_ns);
  out.count = f.count;
  out.heard_ms = to_ms(f.heard_ns);
  out.reported_ms = to_ms(f.reported_ns);
  return out;
}

}  // namespace

Origin weft::api::origin_of(const Status& status) {
  if (status.origin()) return *status.origin();
  return {.code = status.code(), .cause = Cause::failed, .detail = status.text()};
}

weft_failure weft::api::failure_of(const Origin& o) {
  weft_failure out = {};
  out.size = sizeof out;
  out.cause = static_cast<weft_cause>(o.cause);
  out.status = static_cast<weft_status>(o.code);
  out.rank = o.rank == kNobody ? -1 : o.rank;
  out.other = o.other;
  out.joining = o.joining;
  out.pid = o.process.pid;
  out.n_stages = static_cast<uint32_t>(o.stages.size());
  out.stages = o.stages.data();
  out.host = o.process.host.c_str();
  out.detail = o.detail.c_str();
  out.activity = static_cast<weft_activity>(o.activity.state);
  out.job = static_cast<uint32_t>(o.activity.job);
  out.stage = o.activity.stage;
  out.micro_batch = o.activity.micro_batch;
  out.mode = kStepModes[o.activity.mode];
  out.awaited = static_cast<weft_awaited>(o.activity.awaited);
  out.awaited_rank = o.activity.from;
  out.step = o.activity.step;
  out.limit_ns = from_ms(o.limit_ms);
  out.count = o.count;
  out.heard_ns = from_ms(o.heard_ms);
  out.reported_ns = from_ms(o.reported_ms);
  return out;
}

Status weft::api::result_of(std::string_view callback, int32_t code, weft_error& err) {
  if (code == 0) return {};
  err.text[sizeof err.text - 1] = '\0';
  return Status(Code::user, cat(callback, " returned ", code, err.text[0] ? ": " : "",
                                printable(static_cast<const char*>(err.text))));
}

weft_status weft_run_failure(const weft_run* run, weft_failure* out) {
  weft_status found = 0;
  const weft_status status = guard(nullptr, [&]() -> Status {
    WEFT_TRY(require(run, "run"));
    WEFT_TRY(require(out, "out"));
    WEFT_TRY(check_result(*out));
    if (!run->failure) return {};
    fill_result(out, failure_of(*run->failure));
    found = 1;
    return {};
  });
  return status < 0 ? status : found;
}

size_t weft_failure_text(const weft_failure* failure, char* buffer, size_t size) {
  std::string text;
  (void)guard(nullptr, [&]() -> Status {
    WEFT_TRY(require(failure, "failure"));
    WEFT_TRY(check_result(*failure));
    weft_failure whole = {};
    std::memcpy(&whole, failure, std::min<size_t>(failure->size, sizeof whole));
    text = printable(origin_text(::origin_of(whole)));
    return {};
  });
  return print_to(text, buffer, size);
}
