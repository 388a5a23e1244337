#include "link/frame.h"

#include "base/hash.h"
#include "base/hex.h"
#include "base/text.h"

namespace weft {

namespace {

constexpr size_t kPayloadCheckAt = 56, kHeaderCheckAt = 60;

template <typename T>
void put_le(std::byte* out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    out[i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
}

template <typename T>
T get_le(const std::byte* in) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<uint64_t>(in[i]) << (8 * i);
  return static_cast<T>(value);
}

uint32_t check_of(std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(hash64(bytes.data(), bytes.size()));
}

Status wrong(std::string text) { return Status(Code::protocol, std::move(text)); }

std::string hex(uint32_t value) {
  std::string out = "0x";
  append_hex(out, value, 8);
  return out;
}

// Whether the payload agrees with the header, and the fields of the header with each other.
Status check_sizes(const FrameHeader& h, size_t payload) {
  if (h.length > kMaxPayload)
    return wrong(cat("payload of ", h.length, " bytes, a frame has at most ", kMaxPayload));
  if (h.length != payload)
    return wrong(cat("header with ", h.length, " bytes of payload, the frame has ", payload));
  if (h.piece > 0 && h.offset() >= h.total)
    return wrong(cat("piece ", h.piece, " of ", h.total, " bytes, which end before it"));
  if (h.length != piece_length(h.total, h.piece))
    return wrong(cat("piece ", h.piece, " of ", h.total, " bytes has ", h.length, ", expected ",
                     piece_length(h.total, h.piece)));
  return {};
}

}  // namespace

const char* frame_kind_name(FrameKind kind) {
  switch (kind) {
    case FrameKind::hello: return "hello";
    case FrameKind::data: return "data";
    case FrameKind::grant: return "grant";
    case FrameKind::message: return "message";
    case FrameKind::heartbeat: return "heartbeat";
    case FrameKind::abort: return "abort";
    case FrameKind::abort_ack: return "abort-ack";
    case FrameKind::bye: return "bye";
  }
  return "?";
}

void encode_header(const FrameHeader& h, std::span<const std::byte> payload,
                   std::span<std::byte, kHeaderBytes> out) {
  std::byte* p = out.data();
  put_le(p, kMagic);
  put_le(p + 4, kWireMajor);
  put_le(p + 5, kWireMinor);
  put_le(p + 6, static_cast<uint8_t>(h.kind));
  put_le(p + 7, h.flags);
  put_le(p + 8, h.incarnation);
  put_le(p + 12, h.source);
  put_le(p + 14, h.destination);
  put_le(p + 16, h.step);
  put_le(p + 24, h.micro_batch);
  put_le(p + 28, h.edge);
  put_le(p + 32, h.sequence);
  put_le(p + 40, h.total);
  put_le(p + 48, h.piece);
  put_le(p + 52, h.length);
  put_le(p + kPayloadCheckAt, check_of(payload));
  put_le(p + kHeaderCheckAt, check_of(out.first(kHeaderCheckAt)));
}

Result<FrameHeader> decode_frame(std::span<const std::byte> frame,
                                 std::span<const std::byte>* payload) {
  if (frame.size() < kHeaderBytes)
    return wrong(cat("frame of ", frame.size(), " bytes, a header has ", kHeaderBytes));
  const std::byte* p = frame.data();
  if (const uint32_t magic = get_le<uint32_t>(p); magic != kMagic)
    return wrong(cat("magic ", hex(magic), ", expected ", hex(kMagic), " (WEFT)"));
  if (const uint8_t major = get_le<uint8_t>(p + 4); major != kWireMajor)
    return wrong(cat("wire version ", major, ", this weft has ", kWireMajor));
  if (const uint32_t check = check_of(frame.first(kHeaderCheckAt)),
      stored = get_le<uint32_t>(p + kHeaderCheckAt);
      check != stored)
    return wrong(cat("header check ", hex(stored), ", its bytes give ", hex(check)));
  const uint8_t kind = get_le<uint8_t>(p + 6);
  if (kind < static_cast<uint8_t>(FrameKind::hello) || kind > static_cast<uint8_t>(FrameKind::bye))
    return wrong(cat("frame of kind ", kind, ", which is unknown"));
  FrameHeader h;
  h.kind = static_cast<FrameKind>(kind);
  h.flags = get_le<uint8_t>(p + 7);
  if (h.flags != 0) return wrong(cat("flags ", h.flags, ", expected 0"));
  h.incarnation = get_le<uint32_t>(p + 8);
  h.source = get_le<uint16_t>(p + 12);
  h.destination = get_le<uint16_t>(p + 14);
  h.step = get_le<uint64_t>(p + 16);
  h.micro_batch = get_le<uint32_t>(p + 24);
  h.edge = get_le<uint32_t>(p + 28);
  h.sequence = get_le<uint64_t>(p + 32);
  h.total = get_le<uint64_t>(p + 40);
  h.piece = get_le<uint32_t>(p + 48);
  h.length = get_le<uint32_t>(p + 52);
  const auto rest = frame.subspan(kHeaderBytes);
  WEFT_TRY(check_sizes(h, rest.size()));
  if (const uint32_t check = check_of(rest), stored = get_le<uint32_t>(p + kPayloadCheckAt);
      check != stored)
    return wrong(cat("payload check ", hex(stored), ", its bytes give ", hex(check)));
  *payload = rest;
  return h;
}

}  // namespace weft
