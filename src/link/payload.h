// Payloads of control frames: the process and its run (hello), the activity of the rank
// (heartbeat), the reason why the run has failed (abort).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/origin.h"
#include "base/result.h"

namespace weft {

// The sections that must be equal on both ends; if one differs, the link is refused with its name.
struct Identity {
  uint32_t incarnation = 0;
  std::string version;  // of weft
  std::string profile;  // numeric profile
  Digest run, model, partition, schedule, settings;
  Process process;  // not compared: it belongs to this end
  friend bool operator==(const Identity&, const Identity&) = default;
};

constexpr size_t kMaxName = 256;     // bytes of a version, profile or host
constexpr size_t kMaxDetail = 4096;  // of an origin; a longer one is cut
constexpr size_t kActivityBytes = 24;

std::vector<std::byte> encode_hello(const Identity& identity);
Result<Identity> decode_hello(std::span<const std::byte> payload);

// Ok if equal. The text names the first section in which the higher rank differs, and is the same
// on both ends.
Status compare_identity(int32_t self, const Identity& mine, int32_t peer, const Identity& theirs);

// Replaces the content of `out`; allocates nothing if that has the capacity (kActivityBytes).
void encode_activity(const Activity& activity, std::vector<std::byte>& out);
// An empty payload is an unknown activity.
Result<Activity> decode_activity(std::span<const std::byte> payload);

// Without the stages.
std::vector<std::byte> encode_origin(const Origin& origin);
Result<Origin> decode_origin(std::span<const std::byte> payload);

}  // namespace weft
