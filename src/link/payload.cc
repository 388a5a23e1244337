#include "link/payload.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/text.h"

namespace weft {

namespace {

// Larger than any rank, stage or micro-batch, and than any time that a rank can have waited. The
// most milliseconds also fit into an int64_t as nanoseconds.
constexpr int32_t kMostRank = kNobody, kMostStage = 1 << 16, kMostMicroBatch = 1 << 30;
constexpr int64_t kMostTime = int64_t{1} << 43;

void write(ByteWriter& out, const Activity& a) {
  out.number(a.state).number(a.job).number(a.awaited).number(a.mode);
  out.number(a.stage).number(a.micro_batch).number(a.from).number(a.step);
}

// `sound` becomes false if a field has a value that no rank sends.
Activity read_activity(ByteReader& in, bool& sound) {
  const auto within = [&sound](auto value, auto least, auto most) {
    sound = sound && value >= least && value <= most;
    return value;
  };
  Activity a;
  a.state = static_cast<Activity::State>(within(in.number<uint8_t>(), 0, int{kActivityStates} - 1));
  a.job = in.number<char>();
  a.awaited =
      static_cast<Activity::Awaited>(within(in.number<uint8_t>(), 0, int{kAwaitedKinds} - 1));
  a.mode = within(in.number<uint8_t>(), 0, int{Activity::kFill});
  a.stage = within(in.number<int32_t>(), -1, kMostStage);
  a.micro_batch = within(in.number<int32_t>(), -1, kMostMicroBatch);
  a.from = within(in.number<int32_t>(), -1, kMostRank);
  a.step = in.number<uint64_t>();
  sound = sound && (a.job == 0 || is_job(a.job)) &&
          is_action(a.job) == (a.stage >= 0 && a.micro_batch >= 0);
  return a;
}

Origin read_facts(ByteReader& in, bool& sound) {
  const auto time = [&] {
    const int64_t ms = in.number<int64_t>();
    sound = sound && ms >= -1 && ms <= kMostTime;
    return ms;
  };
  Origin o;
  o.rank = in.number<int32_t>();
  const int32_t code = in.number<int32_t>();
  const uint8_t cause = in.number<uint8_t>(), joining = in.number<uint8_t>();
  o.other = in.number<int32_t>();
  o.limit_ms = time();
  o.count = in.number<int64_t>();
  o.heard_ms = time();
  o.reported_ms = time();
  o.activity = read_activity(in, sound);
  o.process.pid = in.number<uint32_t>();
  o.process.host = in.text();
  o.detail = in.text();
  sound = sound && o.rank >= -1 && o.rank <= kMostRank && o.other >= -1 && o.other <= kMostRank;
  sound =
      sound && cause >= 1 && cause <= kCauses && joining <= 1 && o.limit_ms >= 0 && o.count >= 0;
  sound =
      sound && code < static_cast<int32_t>(Code::ok) && code >= static_cast<int32_t>(Code::data);
  sound = sound && o.process.host.size() <= kMaxName && o.detail.size() <= kMaxDetail;
  o.code = static_cast<Code>(code);
  o.cause = static_cast<Cause>(cause);
  o.joining = joining == 1;
  o.process.host = head_of(printable(std::move(o.process.host)), kMaxName);
  o.detail = head_of(printable(std::move(o.detail)), kMaxDetail);
  return o;
}

}  // namespace

std::vector<std::byte> encode_hello(const Identity& identity) {
  std::vector<std::byte> out;
  ByteWriter writer(out);
  writer.number(identity.incarnation).text(identity.version).text(identity.profile);
  for (const Digest* d : {&identity.run, &identity.model, &identity.partition, &identity.schedule,
                          &identity.settings})
    writer.number(d->high).number(d->low);
  writer.number(identity.process.pid).text(identity.process.host.substr(0, kMaxName));
  return out;
}

Result<Identity> decode_hello(std::span<const std::byte> payload) {
  ByteReader in(payload);
  Identity identity;
  identity.incarnation = in.number<uint32_t>();
  identity.version = in.text();
  identity.profile = in.text();
  for (Digest* d : {&identity.run, &identity.model, &identity.partition, &identity.schedule,
                    &identity.settings}) {
    d->high = in.number<uint64_t>();
    d->low = in.number<uint64_t>();
  }
  identity.process.pid = in.number<uint32_t>();
  identity.process.host = in.text();
  if (!in.at_end())
    return Status(Code::protocol,
                  cat("hello of ", payload.size(), " bytes, which its fields do not fill"));
  for (const std::string* name : {&identity.version, &identity.profile, &identity.process.host})
    if (name->size() > kMaxName)
      return Status(Code::protocol,
                    cat("hello with a name of ", name->size(), " bytes, at most ", kMaxName));
  std::string& host = identity.process.host;
  host = head_of(printable(std::move(host)), kMaxName);
  return identity;
}

Status compare_identity(int32_t self, const Identity& mine, int32_t peer, const Identity& theirs) {
  // The higher rank is refused, so that both ends report the same error.
  const bool swap = peer < self;
  const Identity& low = swap ? theirs : mine;
  const Identity& high = swap ? mine : theirs;
  // The value of the lower rank is not sent, because the refused process may not belong to the run.
  auto differs = [&](const char* section, const std::string& found = "") {
    return Status(Code::peer, cat("its ", section, found.empty() ? "" : " ", found,
                                  " differs from that of ", rank_name(std::min(self, peer))));
  };
  if (low.version != high.version) return differs("weft version", quoted(high.version, 32));
  if (low.profile != high.profile) return differs("numeric profile", quoted(high.profile, 64));
  const struct {
    const char* section;
    const Digest &a, &b;
  } digests[] = {{"run", low.run, high.run},
                 {"model", low.model, high.model},
                 {"partition", low.partition, high.partition},
                 {"schedule", low.schedule, high.schedule},
                 {"settings", low.settings, high.settings}};
  for (const auto& d : digests)
    if (d.a != d.b) return differs(d.section);
  if (low.incarnation != high.incarnation) return differs("incarnation");
  return {};
}

void encode_activity(const Activity& activity, std::vector<std::byte>& out) {
  out.clear();
  if (activity.state == Activity::State::unknown) return;
  ByteWriter writer(out);
  write(writer, activity);
}

Result<Activity> decode_activity(std::span<const std::byte> payload) {
  if (payload.empty()) return Activity();
  ByteReader in(payload);
  bool sound = true;
  const Activity activity = read_activity(in, sound);
  if (sound && in.at_end()) return activity;
  return Status(Code::protocol, cat("a status of ", payload.size(), " bytes that no rank has"));
}

std::vector<std::byte> encode_origin(const Origin& o) {
  std::vector<std::byte> out;
  ByteWriter writer(out);
  writer.number(o.rank).number(o.code).number(o.cause).number(uint8_t{o.joining}).number(o.other);
  writer.number(o.limit_ms).number(o.count).number(o.heard_ms).number(o.reported_ms);
  write(writer, o.activity);
  writer.number(o.process.pid)
      .text(o.process.host.substr(0, kMaxName))
      .text(std::string(head_of(o.detail, kMaxDetail)));
  return out;
}

Result<Origin> decode_origin(std::span<const std::byte> payload) {
  ByteReader in(payload);
  bool sound = true;
  Origin origin = read_facts(in, sound);
  if (!in.at_end())
    return Status(Code::protocol,
                  cat("a failure of ", payload.size(), " bytes, which its fields do not fill"));
  if (!sound)
    return Status(Code::protocol,
                  cat("a failure of ", payload.size(), " bytes with a value that no failure has"));
  return origin;
}

}  // namespace weft
