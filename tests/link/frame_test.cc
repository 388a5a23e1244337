#include "link/frame.h"

#include <gtest/gtest.h>

#include <cstring>

#include <vector>

#include "link/payload.h"

namespace weft {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (int v : values) out.push_back(static_cast<std::byte>(v));
  return out;
}

std::vector<std::byte> encode(const FrameHeader& header, std::span<const std::byte> payload) {
  std::vector<std::byte> frame(kHeaderBytes);
  encode_header(header, payload, std::span<std::byte, kHeaderBytes>(frame.data(), kHeaderBytes));
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

FrameHeader sample(uint32_t length) {
  FrameHeader h;
  h.kind = FrameKind::data;
  h.incarnation = 0x01020304;
  h.source = 0x0506;
  h.destination = 0x0708;
  h.step = 0x1112131415161718;
  h.micro_batch = 0x21222324;
  h.edge = 0x31323334;
  h.sequence = 0x4142434445464748;
  h.total = length;
  h.length = length;
  return h;
}

std::string refusal(std::span<const std::byte> frame) {
  std::span<const std::byte> payload;
  const auto decoded = decode_frame(frame, &payload);
  if (decoded.ok()) return "accepted";
  EXPECT_EQ(decoded.status().code(), Code::protocol);
  return decoded.status().text();
}

TEST(Frame, ReadsWhatItWrote) {
  for (uint32_t length : {0u, 1u, 7u, 4096u, static_cast<uint32_t>(kMaxPayload)}) {
    const std::vector<std::byte> payload(length, std::byte{0x5a});
    for (int kind = 1; kind <= 8; ++kind) {
      FrameHeader h = sample(length);
      h.kind = static_cast<FrameKind>(kind);
      const auto frame = encode(h, payload);
      std::span<const std::byte> rest;
      const auto decoded = decode_frame(frame, &rest);
      ASSERT_TRUE(decoded.ok()) << decoded.status().text();
      EXPECT_EQ(decoded.value(), h);
      EXPECT_TRUE(std::equal(rest.begin(), rest.end(), payload.begin(), payload.end()));
    }
  }
}

// The wire format, byte by byte: another build or machine must write the same.
TEST(Frame, GoldenBytes) {
  const auto payload = bytes_of({'w', 'e', 'f', 't'});
  const auto frame = encode(sample(4), payload);
  const auto golden = bytes_of({
      'W',  'E',  'F',  'T',  2,    0,    2,    0,     // magic, version, kind, flags
      0x04, 0x03, 0x02, 0x01, 0x06, 0x05, 0x08, 0x07,  // incarnation, source, destination
      0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,  // step
      0x24, 0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31,  // micro-batch, edge
      0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41,  // sequence
      4,    0,    0,    0,    0,    0,    0,    0,     // total
      0,    0,    0,    0,    4,    0,    0,    0,     // piece, length
      0x82, 0x40, 0x30, 0xf1, 0x3f, 0x05, 0x11, 0xc6,  // checks, by another program
      'w',  'e',  'f',  't',
  });
  EXPECT_EQ(frame, golden);
}

TEST(Frame, EverySingleBitFlipIsRefused) {
  std::vector<std::byte> payload(37);
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 7);
  const auto frame = encode(sample(37), payload);
  for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
    auto flipped = frame;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_NE(refusal(flipped), "accepted") << "bit " << bit;
  }
}

TEST(Frame, EveryTruncationIsRefused) {
  const auto frame = encode(sample(16), std::vector<std::byte>(16));
  for (size_t size = 0; size < frame.size(); ++size)
    EXPECT_NE(refusal(std::span(frame).first(size)), "accepted") << size;
  auto longer = frame;
  longer.push_back({});
  EXPECT_NE(refusal(longer), "accepted");
}

TEST(Frame, RefusalsSayWhatWasExpectedAndFound) {
  EXPECT_EQ(refusal(std::vector<std::byte>(40)), "frame of 40 bytes, a header has 64");
  auto frame = encode(sample(0), {});
  frame[0] = std::byte{'X'};
  EXPECT_EQ(refusal(frame), "magic 0x54464558, expected 0x54464557 (WEFT)");
  frame = encode(sample(0), {});
  frame[4] = std::byte{3};
  EXPECT_EQ(refusal(frame), "wire version 3, this weft has 2");

  FrameHeader h = sample(0);
  h.kind = static_cast<FrameKind>(9);
  EXPECT_EQ(refusal(encode(h, {})), "frame of kind 9, which is unknown");
  h = sample(0);
  h.flags = 3;
  EXPECT_EQ(refusal(encode(h, {})), "flags 3, expected 0");
  h = sample(5);
  EXPECT_EQ(refusal(encode(h, std::vector<std::byte>(4))),
            "header with 5 bytes of payload, the frame has 4");
  h = sample(5);
  h.total = 6;
  EXPECT_EQ(refusal(encode(h, std::vector<std::byte>(5))), "piece 0 of 6 bytes has 5, expected 6");
  h = sample(1);
  h.total = kMaxPayload + 1;
  EXPECT_EQ(refusal(encode(h, std::vector<std::byte>(1))),
            "piece 0 of 1048577 bytes has 1, expected 1048576");
  h.piece = 1;
  EXPECT_EQ(refusal(encode(h, std::vector<std::byte>(1))), "accepted");
  h.piece = 2;
  EXPECT_EQ(refusal(encode(h, std::vector<std::byte>(1))),
            "piece 2 of 1048577 bytes, which end before it");
  h = sample(0);
  h.length = kMaxPayload + 1;
  EXPECT_EQ(refusal(encode(h, {})), "payload of 1048577 bytes, a frame has at most 1048576");
}

TEST(Frame, PiecesOfATensorAbove4GiB) {
  const uint64_t total = (uint64_t{5} << 30) + 3;
  FrameHeader h = sample(3);
  h.total = total;
  h.piece = 5 * 1024;
  EXPECT_EQ(h.offset(), uint64_t{5} << 30);
  EXPECT_TRUE(h.last());
  EXPECT_EQ(piece_length(total, h.piece), 3u);
  EXPECT_EQ(piece_length(total, h.piece - 1), kMaxPayload);
  EXPECT_EQ(piece_length(total, h.piece + 1), 0u);
  EXPECT_EQ(refusal(encode(h, std::vector<std::byte>(3))), "accepted");
}

TEST(Payload, AHelloReadsBackAndRefusesWhatIsCut) {
  Identity id;
  id.incarnation = 7;
  id.version = "1.2.3";
  id.profile = "p";
  id.run = {1, 2};
  id.settings = {3, 4};
  const auto hello = encode_hello(id);
  ASSERT_TRUE(decode_hello(hello).ok());
  EXPECT_EQ(decode_hello(hello).value(), id);
  for (size_t size = 0; size < hello.size(); ++size)
    EXPECT_FALSE(decode_hello(std::span(hello).first(size)).ok());

  id.process = {.pid = 1, .host = std::string(kMaxName, 'h')};
  EXPECT_EQ(decode_hello(encode_hello(id)).value(), id);
}

// Every field has a different value.
Origin full_origin() {
  return {.rank = 3,
          .code = Code::user,
          .cause = Cause::missing,
          .other = 2,
          .joining = true,
          .process = {.pid = 77, .host = "node3"},
          .activity = {.state = Activity::State::waits,
                       .job = 'B',
                       .awaited = Activity::Awaited::gradient,
                       .mode = Activity::kEval,
                       .stage = 5,
                       .micro_batch = 6,
                       .from = 7,
                       .step = 8},
          .limit_ms = 9,
          .count = 10,
          .heard_ms = 11,
          .reported_ms = 12,
          .detail = "op 'x' failed"};
}

TEST(Payload, AnOriginAndAnActivityReadBackAndRefuseWhatIsCut) {
  const Origin origin = full_origin();
  const auto words = encode_origin(origin);
  ASSERT_TRUE(decode_origin(words).ok());
  EXPECT_EQ(decode_origin(words).value(), origin);
  for (size_t size = 0; size < words.size(); ++size)
    EXPECT_FALSE(decode_origin(std::span(words).first(size)).ok()) << size;
  std::vector<std::byte> bytes;
  encode_activity(origin.activity, bytes);
  EXPECT_EQ(bytes.size(), kActivityBytes);
  EXPECT_EQ(decode_activity(bytes).value(), origin.activity);
  for (size_t size = 1; size < bytes.size(); ++size)
    EXPECT_FALSE(decode_activity(std::span(bytes).first(size)).ok()) << size;
  EXPECT_EQ(decode_activity({}).value(), Activity());
}

TEST(Payload, ValuesThatNoOriginHasAreRefused) {
  const auto refused = [](auto change) {
    Origin origin = full_origin();
    change(origin);
    return !decode_origin(encode_origin(origin)).ok();
  };
  EXPECT_TRUE(refused([](Origin& o) { o.rank = -2; }));
  EXPECT_TRUE(refused([](Origin& o) { o.heard_ms = INT64_MAX / 1000000 + 1; }));
  EXPECT_TRUE(refused([](Origin& o) { o.rank = kNobody + 1; }));
  EXPECT_TRUE(refused([](Origin& o) { o.other = -2; }));
  EXPECT_TRUE(refused([](Origin& o) { o.other = kNobody + 1; }));
  EXPECT_TRUE(refused([](Origin& o) { o.code = Code::ok; }));
  EXPECT_TRUE(refused([](Origin& o) { o.code = static_cast<Code>(-15); }));
  EXPECT_TRUE(refused([](Origin& o) { o.cause = static_cast<Cause>(0); }));
  EXPECT_TRUE(refused([](Origin& o) { o.cause = static_cast<Cause>(kCauses + 1); }));
  EXPECT_TRUE(refused([](Origin& o) { o.limit_ms = -1; }));
  EXPECT_TRUE(refused([](Origin& o) { o.count = -1; }));
  EXPECT_TRUE(refused([](Origin& o) { o.heard_ms = -2; }));
  EXPECT_TRUE(refused([](Origin& o) { o.reported_ms = INT64_MAX; }));
  EXPECT_TRUE(refused([](Origin& o) { o.activity.state = static_cast<Activity::State>(4); }));
  EXPECT_TRUE(refused([](Origin& o) { o.activity.job = 'X'; }));
  EXPECT_TRUE(refused([](Origin& o) { o.activity.job = 0; }));  // an action without a letter
  EXPECT_TRUE(refused([](Origin& o) { o.activity.job = Activity::kClear; }));
  EXPECT_TRUE(refused([](Origin& o) { o.activity.awaited = static_cast<Activity::Awaited>(7); }));
  EXPECT_TRUE(refused([](Origin& o) { o.activity.mode = 4; }));
  EXPECT_TRUE(refused([](Origin& o) { o.activity.stage = -1; }));  // an action of no stage
  EXPECT_TRUE(refused([](Origin& o) { o.activity.stage = INT32_MAX; }));
  EXPECT_TRUE(refused([](Origin& o) { o.activity.micro_batch = INT32_MIN; }));
  EXPECT_TRUE(refused([](Origin& o) { o.activity.from = kNobody + 1; }));
  EXPECT_FALSE(refused([](Origin& o) { o.activity.from = kNobody; }));
  // Long texts are cut where they are written, so only other programs send longer ones.
  Origin longest = full_origin();
  longest.detail = std::string(kMaxDetail + 1, 'x');
  auto words = encode_origin(longest);
  EXPECT_EQ(decode_origin(words).value().detail.size(), kMaxDetail);
  const size_t length = words.size() - kMaxDetail - sizeof(uint64_t);
  const uint64_t more = kMaxDetail + 1;
  std::memcpy(words.data() + length, &more, sizeof more);
  words.push_back(std::byte{'x'});
  EXPECT_FALSE(decode_origin(words).ok());
  longest.detail = std::string(kMaxDetail - 1, 'x') + "\xc3\xa4";
  EXPECT_EQ(decode_origin(encode_origin(longest)).value().detail, std::string(kMaxDetail - 1, 'x'));
}

}  // namespace
}  // namespace weft
