// Prints frames and payloads as they leave a rank, with the values that are in them, for
// man_wire.py to hold weft-wire(7) against.
//
//   name <hex>         the bytes
//   name.field value   what a field holds: a number, or a text in quotes
#include <cstdio>
#include <string>
#include <vector>

#include "base/text.h"
#include "engine/trace.h"
#include "link/frame.h"
#include "link/payload.h"
#include "node/control_codec.h"
#include "runtime/mesh.h"
#include "runtime/welcome.h"

namespace {

using namespace weft;

void print_bytes(const char* name, std::span<const std::byte> bytes) {
  std::printf("%s ", name);
  for (std::byte b : bytes) std::printf("%02x", std::to_integer<unsigned>(b));
  std::printf("\n");
}

template <typename T>
void print(const char* field, T value) {
  std::printf("%s %s\n", field, cat(value).c_str());
}

void print_header() {
  const std::vector<std::byte> payload(77, std::byte{3});
  const FrameHeader h{.kind = FrameKind::data,
                      .flags = 0,
                      .incarnation = 0x01020304,
                      .source = 0x0506,
                      .destination = 0x0708,
                      .step = 0x1112131415161718,
                      .micro_batch = 0x21222324,
                      .edge = 0x31323334,
                      .sequence = 0x4142434445464748,
                      .total = 3 * kMaxPayload + 77,
                      .piece = 3,
                      .length = 77};
  std::array<std::byte, kHeaderBytes> bytes;
  encode_header(h, payload, bytes);
  print_bytes("header", bytes);
  print("header.magic", kMagic);
  print("header.major", int{kWireMajor});
  print("header.minor", int{kWireMinor});
  print("header.kind", static_cast<int>(h.kind));
  print("header.flags", int{h.flags});
  print("header.incarnation", h.incarnation);
  print("header.source", h.source);
  print("header.destination", h.destination);
  print("header.step", h.step);
  print("header.micro-batch", h.micro_batch);
  print("header.edge", h.edge);
  print("header.sequence", h.sequence);
  print("header.total", h.total);
  print("header.piece", h.piece);
  print("header.length", h.length);
  print("header.payload-check", static_cast<uint32_t>(hash64(payload.data(), payload.size())));
  print("header.header-check", static_cast<uint32_t>(hash64(bytes.data(), 60)));
}

void print_payloads() {
  Identity id;
  id.incarnation = 0x01020304;
  id.version = "0.1.0";
  id.profile = "a profile";
  id.run = {0, 11}, id.model = {0, 12}, id.partition = {0, 13}, id.schedule = {0, 14},
  id.settings = {0, 15};
  id.process = {.pid = 21, .host = "node3"};
  print_bytes("hello", encode_hello(id));
  print("hello.incarnation", id.incarnation);
  std::printf("hello.version \"%s\"\nhello.profile \"%s\"\n", id.version.c_str(),
              id.profile.c_str());
  const char* const digests[] = {"hello.run", "hello.model", "hello.partition", "hello.schedule",
                                 "hello.settings"};
  for (int i = 0; i < 5; ++i) print(digests[i], cat("0:", 11 + i));
  std::printf("hello.pid 21\nhello.host \"node3\"\n");
}

void print_failure() {
  const Origin origin{.rank = 2,
                      .code = Code::peer,
                      .cause = Cause::missing,
                      .other = 1,
                      .joining = true,
                      .process = {.pid = 31, .host = "node3"},
                      .activity = {.state = Activity::State::waits,
                                   .job = 'B',
                                   .awaited = Activity::Awaited::gradient,
                                   .mode = Activity::kEval,
                                   .stage = 32,
                                   .micro_batch = 33,
                                   .from = 34,
                                   .step = 35},
                      .limit_ms = 36,
                      .count = 37,
                      .heard_ms = 38,
                      .reported_ms = 39,
                      .detail = "a detail"};
  std::vector<std::byte> bytes;
  encode_activity(origin.activity, bytes);
  print_bytes("status", bytes);
  std::printf(
      "status.state 3\nstatus.job 66\nstatus.awaited 5\nstatus.mode 1\nstatus.stage 32\n"
      "status.micro-batch 33\nstatus.from 34\nstatus.step 35\n");
  print_bytes("abort", encode_origin(origin));
  std::printf(
      "abort.rank 2\nabort.code %u\nabort.cause 4\nabort.joining 1\nabort.other 1\nabort.limit 36\n"
      "abort.count 37\nabort.heard 38\nabort.reported 39\nabort.pid 31\nabort.host \"node3\"\n"
      "abort.detail \"a detail\"\n",
      static_cast<uint32_t>(origin.code));
  print_bytes("abort.status", bytes);
}

void print_control() {
  std::vector<std::byte> bytes;
  const std::vector<double> denominators = {2, 2};
  const StepDescriptor step{.sequence = 71,
                            .step = 72,
                            .mode = Mode::eval,
                            .update = true,
                            .micro_batches = 73,
                            .short_last = true,
                            .overlaps = true,
                            .denominator = 2,
                            .per_update = 74,
                            .rate = 0.5,
                            .denominators = denominators};
  encode_control(
      {.kind = ControlKind::begin, .step = step, .sequence = 71, .scale = 1, .squares = {}}, bytes);
  print_bytes("begin", bytes);
  std::printf(
      "begin.kind 0\nbegin.sequence 71\nbegin.step 72\nbegin.mode 1\nbegin.update "
      "1\nbegin.overlaps 1\nbegin.micro-batches 73\nbegin.short-last 1\n"
      "begin.denominator 4611686018427387904\nbegin.rate 4602678819172646912\nbegin.per-update "
      "74\nbegin.count 2\n");  // the bits of 2.0 and 0.5

  const std::vector<double> squares = {2, 2, 2};
  encode_control(
      {.kind = ControlKind::ready, .step = {}, .sequence = 81, .scale = 1, .squares = squares},
      bytes);
  print_bytes("ready", bytes);
  std::printf("ready.kind 1\nready.sequence 81\nready.count 3\n");

  encode_control(
      {.kind = ControlKind::commit, .step = {}, .sequence = 91, .scale = 2, .squares = {}}, bytes);
  print_bytes("commit", bytes);
  std::printf("commit.kind 2\ncommit.sequence 91\ncommit.scale 4611686018427387904\n");

  encode_control({.kind = ControlKind::done,
                  .step = {},
                  .sequence = 101,
                  .scale = 1,
                  .squares = {},
                  .times = {102, 204, 103, 101, 205}},
                 bytes);
  print_bytes("done", bytes);
  std::printf(
      "done.kind 3\ndone.sequence 101\ndone.begin 102\ndone.end 204\ndone.busy 103\ndone.received "
      "101\ndone.sent 205\n");
}

void print_lobby() {
  JoinRequest join{.wanted_rank = 5,
                   .endpoint = "ipc:///there",
                   .ops = {"own 1", "other 7"},
                   .plan = PlanHash{{0, 21}, {0, 22}, {0, 23}, {0, 24}, {{0, 25}, {0, 26}}},
                   .key = {}};
  join.key.fill('k');
  print_bytes("join", encode_join(join));
  std::printf(
      "join.wanted-rank 5\njoin.endpoint \"ipc:///there\"\njoin.ops 2\njoin.op \"own 1\" \"other "
      "7\"\n"
      "join.key 6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b\njoin.has-plan 1\n"
      "join.model 0:21\njoin.partition 0:22\njoin.schedule 0:23\njoin.settings 0:24\njoin.values "
      "2\n");

  Welcome welcome{.rank = 1,
                  .incarnation = 31,
                  .peer_timeout_ms = 33,
                  .run = {0, 32},
                  .model = {},
                  .config = {},
                  .endpoints = {"tcp://a:1", "tcp://b:2"},
                  .keys = {}};
  welcome.keys.resize(2);
  welcome.keys[0].fill('0');
  welcome.keys[1].fill('1');
  welcome.model.assign(3, std::byte{'m'});
  welcome.config.assign(2, std::byte{'c'});
  print_bytes("welcome", encode_welcome(welcome));
  std::printf(
      "welcome.rank 1\nwelcome.incarnation 31\nwelcome.peer-timeout 33\nwelcome.run "
      "0:32\nwelcome.model \"mmm\"\nwelcome.config \"cc\"\n"
      "welcome.endpoints 2\nwelcome.endpoint \"tcp://a:1\" \"tcp://b:2\"\n"
      "welcome.key 3030303030303030303030303030303030303030303030303030303030303030 "
      "3131313131313131313131313131313131313131313131313131313131313131\n");

  const std::vector<std::byte> bytes(4, std::byte{'x'});
  print_bytes(
      "request",
      rpc::encode({.param = 41, .part = Part::state1, .offset = 42, .count = 43, .bytes = bytes}));
  std::printf(
      "request.parameter 41\nrequest.part 3\nrequest.offset 42\nrequest.count 43\nrequest.bytes "
      "\"xxxx\"\n");

  const TraceSpan span{
      .step = 51, .time = {52, 53}, .job = 54, .mode = Mode::infer, .sequence = 55};
  static_assert(sizeof span == 32);
  print_bytes("span", std::as_bytes(std::span(&span, 1)));
  std::printf(
      "span.step 51\nspan.begin 52\nspan.end 53\nspan.job 54\nspan.mode 2\nspan.unused 0\n"
      "span.sequence 55\n");
}

}  // namespace

int main() {
  print_header();
  print_payloads();
  print_failure();
  print_control();
  print_lobby();
  for (int kind = 1; kind <= 8; ++kind)
    std::printf("kind.%s %d\n", frame_kind_name(static_cast<FrameKind>(kind)), kind);
  return 0;
}
