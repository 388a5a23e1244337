// A frame: one message of the transport, a header of 64 bytes and at most 1 MiB of payload. All
// numbers are little-endian.
//
//   0 magic u32 "WEFT"    4 major u8           5 minor u8     6 kind u8    7 flags u8
//   8 incarnation u32    12 source u16        14 destination u16
//  16 step u64           24 micro-batch u32   28 edge u32
//  32 sequence u64       40 total u64
//  48 piece u32          52 length u32        56 payload check u32    60 header check u32
//
// A longer tensor or message is sent in pieces: piece k begins at byte k * 2^20 of `total`, and all
// pieces except the last one are full. So piece and total determine offset and length, a header
// that contradicts itself is refused, and a tensor can have 4 PiB.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace weft {

constexpr size_t kHeaderBytes = 64;
constexpr size_t kMaxPayload = size_t{1} << 20;
constexpr size_t kMaxFrame = kHeaderBytes + kMaxPayload;
constexpr uint32_t kMagic = 0x54464557;  // "WEFT"
constexpr uint8_t kWireMajor = 2, kWireMinor = 0;

enum class FrameKind : uint8_t {
  hello = 1,      // control lane, first frame in each direction: the sender and its run
  data = 2,       // data lane: a piece of a tensor of (step, edge, micro-batch)
  grant = 3,      // control lane: permission to send (step, edge, micro-batch)
  message = 4,    // control lane: a piece of a message of the runtime; `edge` is its type
  heartbeat = 5,  // control lane: the event loop runs; `step`: data frames sent so far; payload:
                  // the Activity of the rank
  abort = 6,      // control lane: the run has failed; payload: its Origin
  abort_ack = 7,  // control lane: an abort has arrived
  bye = 8,        // control lane: normal end
};
const char* frame_kind_name(FrameKind kind);

struct FrameHeader {
  FrameKind kind = FrameKind::data;
  uint8_t flags = 0;                     // 0
  uint32_t incarnation = 0;              // of the run; a frame of another one is refused
  uint16_t source = 0, destination = 0;  // ranks
  uint64_t step = 0;                     // sequence of the step
  uint32_t micro_batch = 0;
  uint32_t edge = 0;
  uint64_t sequence = 0;  // per lane and direction, from 0 without gaps
  uint64_t total = 0;     // bytes of the whole
  uint32_t piece = 0;
  uint32_t length = 0;  // payload bytes that follow
  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;

  uint64_t offset() const { return uint64_t{piece} * kMaxPayload; }
  bool last() const { return offset() + length == total; }
};

// Bytes of this piece.
inline uint32_t piece_length(uint64_t total, uint32_t piece) {
  const uint64_t offset = uint64_t{piece} * kMaxPayload;
  return offset >= total ? 0
                         : static_cast<uint32_t>(std::min<uint64_t>(kMaxPayload, total - offset));
}

// Writes the 64 bytes, with checks (XXH3-64, low 32 bits) over payload and header.
void encode_header(const FrameHeader& header, std::span<const std::byte> payload,
                   std::span<std::byte, kHeaderBytes> out);

// Checks lengths, magic, major version, both checks, kind, flags and the piece; `payload` is the
// rest of the frame. Errors have Code::protocol and contain what was expected and found.
Result<FrameHeader> decode_frame(std::span<const std::byte> frame,
                                 std::span<const std::byte>* payload);

}  // namespace weft
