// A failure as text: whom it names, what that rank did, and why it failed.
#include "base/origin.h"

#include <gtest/gtest.h>

#include <numeric>

namespace weft {
namespace {

Activity action(char job, int32_t stage, int32_t micro_batch) {
  return {.state = Activity::State::runs,
          .job = job,
          .stage = stage,
          .micro_batch = micro_batch,
          .step = 11};
}

TEST(OriginText, AFailureNamesTheStagesTheProcessAndTheAction) {
  Origin origin{.rank = 1,
                .code = Code::user,
                .process = {.pid = 77, .host = "node3"},
                .activity = action('F', 3, 2),
                .detail = "node 'x': forward returned 7",
                .stages = {1, 3}};
  EXPECT_EQ(origin_text(origin),
            "rank 1 (stages 1 and 3, pid 77 on node3) failed in 3F2 of step 12: node 'x': forward "
            "returned 7");
  origin.process = {};
  origin.stages = {1};
  origin.activity = {};
  EXPECT_EQ(origin_text(origin), "rank 1 (stage 1) failed: node 'x': forward returned 7");
  origin.stages = {};
  origin.detail = "";
  EXPECT_EQ(origin_text(origin), "rank 1 failed: no reason given");
  EXPECT_EQ(origin_text({.rank = -1, .detail = "out of memory"}), "out of memory");
}

TEST(OriginText, ALossNamesWhatWasHeardLast) {
  const Origin origin{.rank = 2,
                      .cause = Cause::closed,
                      .activity = action('B', 2, 5),
                      .heard_ms = 340,
                      .reported_ms = 520,
                      .detail = "connection reset",
                      .stages = {2}};
  EXPECT_EQ(origin_text(origin),
            "rank 2 (stage 2) lost: connection reset; last frame 0.3 s ago; last status 0.5 s ago: "
            "in 2B5 of step 12");
  Origin joining = origin;
  joining.joining = true;
  joining.activity = {};
  joining.cause = Cause::silent;
  joining.limit_ms = 5000;
  EXPECT_EQ(origin_text(joining),
            "rank 2 (stage 2) lost before it joined: silent for 5 s; last frame 0.3 s ago");
}

TEST(OriginText, OfAConnectionBlamesNeitherRank) {
  const Origin origin{
      .rank = 2, .cause = Cause::missing, .other = 1, .limit_ms = 20000, .count = 3, .stages = {2}};
  EXPECT_EQ(origin_text(origin),
            "the connection between rank 1 and rank 2 was lost: 3 data frames did not "
            "arrive within 20 s; rank 0 is connected to both");
}

TEST(OriginText, EveryOtherCauseHasItsOwn) {
  const auto text = [](Cause cause, int32_t rank, const char* detail, int64_t limit = 0) {
    return origin_text({.rank = rank, .cause = cause, .limit_ms = limit, .detail = detail});
  };
  EXPECT_EQ(text(Cause::unreachable, 1, "no route"), "rank 1 did not connect: no route");
  EXPECT_EQ(text(Cause::unreachable, 1, "no route", 9000),
            "rank 1 did not connect within 9 s (no route)");
  EXPECT_EQ(text(Cause::unreachable, 1, "", 9000), "rank 1 did not connect within 9 s");
  EXPECT_EQ(text(Cause::late, 1, "answer bye", 5000), "rank 1 did not answer bye within 5 s");
  EXPECT_EQ(text(Cause::refused, 1, "its model differs"), "rank 1 refused: its model differs");
  EXPECT_EQ(text(Cause::refused, kNobody, "its model differs"),
            "refused by rank 0: its model differs");
  EXPECT_EQ(text(Cause::protocol, 1, "a frame is repeated"), "rank 1: a frame is repeated");
  EXPECT_EQ(text(Cause::no_run, 0, "out of memory"), "rank 0 began no run: out of memory");
}

TEST(OriginText, ManyStagesAreCut) {
  Origin origin{.rank = 0, .detail = "x", .stages = std::vector<uint32_t>(20)};
  std::iota(origin.stages.begin(), origin.stages.end(), 0);
  EXPECT_EQ(origin_text(origin), "rank 0 (stages 0, 1, 2, 3, 4, 5, 6, 7 and 12 more) failed: x");
}

TEST(ActivityText, SaysWhatARankWaitsFor) {
  Activity a = action('B', 2, 5);
  a.state = Activity::State::waits;
  a.awaited = Activity::Awaited::gradient;
  a.from = 3;
  EXPECT_EQ(activity_text(a),
            "before 2B5 of step 12, waits for the gradient of micro-batch 5 from rank 3");
  a.awaited = Activity::Awaited::release;
  a.mode = Activity::kEval;
  EXPECT_EQ(activity_text(a), "before 2B5 of an evaluation, waits for its messages to be sent");
  a.mode = Activity::kFill;
  EXPECT_EQ(activity_text(a),
            "before 2B5 of a step that fills caches, waits for its messages to be sent");
  a = {.state = Activity::State::waits,
       .job = Activity::kUpdate,
       .awaited = Activity::Awaited::commit};
  EXPECT_EQ(activity_text(a), "before updating weights of step 1, waits for the commit");
  EXPECT_EQ(activity_text({.state = Activity::State::idle, .step = 25}), "between steps, 25 done");
}

TEST(Status, KeepsTheFactsOfAFailure) {
  const Origin origin{.rank = 3, .code = Code::io, .detail = "disk full"};
  const Status status(origin);
  EXPECT_EQ(status.code(), Code::io);
  EXPECT_EQ(status.text(), origin_text(origin));
  const Status outer = status.within("saving");
  EXPECT_EQ(outer.text(), "saving: " + origin_text(origin));
  ASSERT_NE(outer.origin(), nullptr);
  EXPECT_EQ(*outer.origin(), origin);
  EXPECT_EQ(Status(Code::io, "x").origin(), nullptr);
}

}  // namespace
}  // namespace weft
