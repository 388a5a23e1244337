// Schedules as text, and the sizes that generators refuse.
#include "schedule/schedule.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace weft {
namespace {

std::string fault_of(std::string_view text) {
  const Result<Schedule> parsed = parse_schedule(text);
  EXPECT_FALSE(parsed.ok()) << text;
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.status().code(), Code::data);
  return parsed.status().text();
}

TEST(ScheduleText, ReadsBackWhatItPrints) {
  for (const ScheduleKind& kind : all_schedules())
    for (int32_t ranks = 1; ranks <= 9; ++ranks)
      for (int32_t micro_batches = 1; micro_batches <= 12; ++micro_batches) {
        SCOPED_TRACE(cat(kind.name, " ", ranks, " ", micro_batches));
        const Result<Schedule> made = kind.make({.ranks = ranks, .micro_batches = micro_batches});
        if (kind.asynchronous && !made.ok()) continue;  // it takes few sizes
        ASSERT_TRUE(made.ok()) << made.status().text();
        const std::string plain = made.value().text();
        for (const std::string& text :
             {plain, cat("# ", kind.name, "\n\n# ", kind.about, "\r\n", plain, "\n")}) {
          const Result<Schedule> read = parse_schedule(text);
          ASSERT_TRUE(read.ok()) << read.status().text();
          EXPECT_EQ(read.value(), made.value());
        }
      }
}

TEST(ScheduleText, ReadsBackChunksGroupsAndWarmUps) {
  for (const ScheduleSizes& sizes : {ScheduleSizes{3, 7, 3, 2}, {3, 7, 4, 7}, {1, 2, 5, 1}})
    for (const char* name : {"interleaved", "interleaved-zb"}) {
      const Schedule made = find_schedule(name)->make(sizes).take();
      EXPECT_EQ(made.stages, sizes.ranks * sizes.chunks);
      EXPECT_EQ(parse_schedule(made.text()).take(), made);
    }
  const Schedule eager = make_1f1b({.ranks = 3, .micro_batches = 7, .warm_up = 2}).take();
  EXPECT_EQ(parse_schedule(eager.text()).take(), eager);
}

TEST(ScheduleText, ReadsChunksSplitBackwardsAndComments) {
  const Result<Schedule> read = parse_schedule(
      "# two ranks, three stages: a V\r\n"
      "\n"
      "  # written by hand\n"
      "0F0 2F0 2B0\t0I0  0W0\r\n"
      "1F0 1I0 1W0   \n"
      "\n");
  ASSERT_TRUE(read.ok()) << read.status().text();
  const Schedule& schedule = read.value();
  EXPECT_EQ(schedule.stages, 3);
  EXPECT_EQ(schedule.micro_batches, 1);
  EXPECT_FALSE(schedule.forward_only);
  EXPECT_EQ(schedule.rank_of_stage, (std::vector<int32_t>{0, 1, 0}));
  EXPECT_EQ(schedule.text(), "0F0 2F0 2B0 0I0 0W0\n1F0 1I0 1W0\n");
}

TEST(ScheduleText, LastLineNeedsNoEnd) {
  const Result<Schedule> read = parse_schedule("0F0 0F1\n1F0 1F1");
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_TRUE(read.value().forward_only);
  EXPECT_EQ(read.value().ranks(), 2);
}

TEST(ScheduleText, FaultsNameLineRankColumnAndWord) {
  EXPECT_EQ(fault_of("# x\n0F0 0B0\n1F0  1X0\n"),
            "line 3 (row of rank 1), column 6: expected an action such as 2F0, found '1X0'");
  EXPECT_EQ(fault_of("0F0 F0"),
            "line 1 (row of rank 0), column 5: expected an action such as 2F0, found 'F0'");
  for (const char* word :
       {"0F", "0", "F", "0F0x", "0f0", "-1F0", "0F-1", "+1F0", "0F0,", "0F0.5", "0SEND_F0",
        "0F2147483647", "2147483647F0", "4294967296F0", "0F99999999999999999999"})
    EXPECT_EQ(fault_of(word),
              cat("line 1 (row of rank 0), column 1: expected an action such as 2F0, found '", word,
                  "'"));
  EXPECT_EQ(fault_of("0F0 \x01\xff"),
            "line 1 (row of rank 0), column 5: expected an action such as 2F0, found '\\x01\\xff'");
  EXPECT_EQ(fault_of(std::string(500, '7')),
            "line 1 (row of rank 0), column 1: expected an action such as 2F0, found "
            "'777777777777777777777777...'");
  EXPECT_EQ(fault_of("0F0\n# late\n"),
            "line 2 (row of rank 1), column 1: expected an action such as 2F0, found '#'");
  EXPECT_EQ(fault_of("0F0\n\n1F0\n"),
            "line 3 (row of rank 1), column 1: expected no row after an empty line");
}

TEST(ScheduleText, FaultsOfTheWhole) {
  EXPECT_EQ(fault_of(""), "expected a row of actions per rank, found none");
  EXPECT_EQ(fault_of("# only words\n\n"), "expected a row of actions per rank, found none");
  EXPECT_EQ(fault_of("0F0\n2F0\n"), "stage 2 requires at least 3 actions, found 2");
  EXPECT_EQ(fault_of("0F0 0F1 0F2\n2F0\n"), "stage 1 has no action, but stage 2 has");
  // A large number in a small file takes no memory.
  EXPECT_EQ(fault_of("2147483646F0"),
            "stage 2147483646 requires at least 2147483647 actions, found 1");
}

TEST(ScheduleTable, FindsByName) {
  ASSERT_NE(find_schedule("1f1b"), nullptr);
  EXPECT_EQ(find_schedule("1f1b")->make, &make_1f1b);
  EXPECT_EQ(find_schedule("1F1B"), nullptr);
  EXPECT_EQ(find_schedule(""), nullptr);
  for (const ScheduleKind& kind : all_schedules())
    EXPECT_EQ(find_schedule(kind.name), &kind) << "a name twice: " << kind.name;
}

TEST(ScheduleSizesRefused, NamingTheNumbers) {
  for (const ScheduleKind& kind : all_schedules()) {
    SCOPED_TRACE(kind.name);
    EXPECT_EQ(kind.make({.ranks = 0, .micro_batches = 4}).status().text(),
              "ranks is 0, expected 1 or more");
    EXPECT_EQ(kind.make({.ranks = 2, .micro_batches = -3}).status().text(),
              "micro_batches is -3, expected 1 or more");
    const Status huge = kind.make({.ranks = 2147483647, .micro_batches = 2147483647}).status();
    EXPECT_EQ(huge.code(), Code::invalid);
    EXPECT_NE(huge.text().find("2147483647 ranks and 2147483647 micro-batches"), std::string::npos)
        << huge.text();
  }
}

TEST(ScheduleSizesRefused, WhatAScheduleDoesNotTake) {
  const auto fault = [](const char* name, const ScheduleSizes& sizes) {
    return find_schedule(name)->make(sizes).status().text();
  };
  EXPECT_EQ(fault("zb-v", {.ranks = 2, .micro_batches = 2, .chunks = 3}),
            "schedule 'zb-v' has 2 stages per rank, found chunks 3; interleaved, looped-bfs and "
            "interleaved-zb take any number");
  EXPECT_EQ(fault("1f1b", {.ranks = 2, .micro_batches = 2, .chunks = 2}),
            "schedule '1f1b' has 1 stage per rank, found chunks 2; interleaved, looped-bfs and "
            "interleaved-zb take any number");
  EXPECT_EQ(fault("interleaved", {.ranks = 2, .micro_batches = 2, .chunks = -1}),
            "chunks is -1, expected 1 or more");
  EXPECT_EQ(fault("interleaved", {.ranks = 2, .micro_batches = 2, .group = -1}),
            "group is -1, expected 1 or more");
  EXPECT_EQ(fault("1f1b", {.ranks = 2, .micro_batches = 2, .warm_up = -1}),
            "warm_up is -1, expected 1 or more");
  EXPECT_EQ(fault("gpipe", {.ranks = 2, .micro_batches = 2, .group = 4}),
            "group is 4, but schedule 'gpipe' has no groups of micro-batches, expected 0; "
            "use interleaved, interleaved-zb or 1f1b-delayed-w");
  EXPECT_EQ(fault("zb-h1", {.ranks = 2, .micro_batches = 2, .warm_up = 2}),
            "warm_up is 2, but schedule 'zb-h1' has a fixed warm-up, expected 1; use 1f1b");
  EXPECT_EQ(fault("looped-bfs", {.ranks = 2, .micro_batches = 2, .chunks = 2147483647}),
            "2 ranks and 2 micro-batches with 2147483647 stages per rank make more than 67108864 "
            "actions");
}

// One line for a person, with the sizes that it allows.
TEST(ScheduleTable, SaysWhatItAllows) {
  for (const ScheduleKind& kind : all_schedules()) {
    EXPECT_NE(kind.about.find("any p"), std::string_view::npos) << kind.name;
    EXPECT_EQ(kind.about.find('\n'), std::string_view::npos) << kind.name;
  }
}

}  // namespace
}  // namespace weft
