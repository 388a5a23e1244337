#include "link/payload.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/text.h"

namespace weft {

std::string rank_name(int32_t rank) {
  return rank == kNobody ? "a process without a rank" : cat("rank ", rank);
}

std::vector<std::byte> encode_hello(const Identity& identity) {
  std::vector<std::byte> out;
  ByteWriter writer(out);
  writer.number(identity.incarnation).text(identity.version).text(identity.profile);
  for (const Digest* d : {&identity.run, &identity.model, &identity.partition, &identity.schedule,
                          &identity.settings})
    writer.number(d->high).number(d->low);
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
  if (!in.at_end())
    return Status(Code::protocol,
                  cat("hello of ", payload.size(), " bytes, which its fields do not fill"));
  for (const std::string* name : {&identity.version, &identity.profile})
    if (name->size() > kMaxName)
      return Status(Code::protocol,
                    cat("hello with a name of ", name->size(), " bytes, at most ", kMaxName));
  return identity;
}

Status compare_identity(int32_t self, const Identity& mine, int32_t peer, const Identity& theirs) {
  // The higher rank is the one that is refused, so both ends tell one story.
  const bool swap = peer < self;
  const Identity& low = swap ? theirs : mine;
  const Identity& high = swap ? mine : theirs;
  // What the lower one has is not said: who is refused may be a stranger.
  auto differs = [&](const char* section, const std::string& found = "") {
    return Status(Code::peer, cat(rank_name(std::max(self, peer)), " refused: its ", section,
                                  found.empty() ? "" : " ", found, " differs from that of ",
                                  rank_name(std::min(self, peer))));
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

std::vector<std::byte> encode_origin(const Origin& origin) {
  std::vector<std::byte> out;
  ByteWriter(out)
      .number(origin.rank)
      .number(static_cast<int32_t>(origin.code))
      .text(origin.text.substr(0, kMaxOriginText));
  return out;
}

Result<Origin> decode_origin(std::span<const std::byte> payload) {
  ByteReader in(payload);
  Origin origin;
  origin.rank = in.number<int32_t>();
  const int32_t code = in.number<int32_t>();
  origin.text = in.text();
  if (!in.at_end() || origin.text.size() > kMaxOriginText)
    return Status(Code::protocol,
                  cat("abort of ", payload.size(), " bytes, which its fields do not fill"));
  if (code >= static_cast<int32_t>(Code::ok) || code < static_cast<int32_t>(Code::data))
    return Status(Code::protocol, cat("abort with code ", code, ", which is no failure"));
  origin.code = static_cast<Code>(code);
  if (origin.text.empty()) origin.text = "no reason given";
  return origin;
}

}  // namespace weft
