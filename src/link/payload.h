// What control frames say in their payload: who speaks (hello), and why a run has failed (abort).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"

namespace weft {

// What both ends must agree on, section by section; a difference refuses the link and names the
// section.
struct Identity {
  uint32_t incarnation = 0;
  std::string version;  // of weft
  std::string profile;  // numeric profile
  Digest run, model, partition, schedule, settings;
  friend bool operator==(const Identity&, const Identity&) = default;
};

// Why a run failed, as every rank tells it.
struct Origin {
  int32_t rank = -1;  // the rank that failed (not the one that noticed)
  Code code = Code::peer;
  std::string text;  // "rank 2 lost: connection closed, in 2B5 of step 12"
  friend bool operator==(const Origin&, const Origin&) = default;
};

constexpr uint16_t kNobody = 0xffff;  // the rank of a process that has none yet

// As texts call it: "rank 2".
std::string rank_name(int32_t rank);

constexpr size_t kMaxName = 256;         // bytes of a version or profile
constexpr size_t kMaxOriginText = 4096;  // longer ones are cut

std::vector<std::byte> encode_hello(const Identity& identity);
Result<Identity> decode_hello(std::span<const std::byte> payload);

// Ok if equal. The text names the first section that differs and says the same on both ends.
Status compare_identity(int32_t self, const Identity& mine, int32_t peer, const Identity& theirs);

std::vector<std::byte> encode_origin(const Origin& origin);
Result<Origin> decode_origin(std::span<const std::byte> payload);

}  // namespace weft
