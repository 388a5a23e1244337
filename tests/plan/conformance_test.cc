// What every schedule of the table must hold: a golden timetable, and the closed forms of its family where they are known.
//
// A timetable is drawn by playing the schedule in lock step: every action takes one slot, a message none, and a rank waits for
// the data of its next action. One row per rank; "." is an idle slot. Forwards are digits, backwards letters: 0 and a belong to
// micro-batch 0, 1 and b to 1, and so on. A schedule whose actions are split is drawn with I as letters and W as capitals.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "plan/check.h"
#include "plan/schedule.h"

namespace weft {
namespace {

struct Timetable {
  std::vector<std::string> rows;
  std::map<std::string, int32_t> slot;   // by Action::text()
};

char drawn(const Action& action) {
  const char first = action.kind == Kind::F ? '0' : action.kind == Kind::W ? 'A' : 'a';
  return static_cast<char>(first + action.micro_batch);
}

// Stages form a chain. Stops when nobody moves, so a schedule that cannot run is drawn short.
Timetable play(const Schedule& schedule) {
  Timetable table;
  table.rows.resize(schedule.rows.size());
  std::vector<size_t> next(schedule.rows.size(), 0);
  std::map<std::string, int32_t> done;   // slot after which the result is there
  const auto ready = [&](const Action& action, int32_t now) {
    const auto there = [&](int32_t stage, Kind kind) {
      const auto found = done.find(Action{stage, kind, action.micro_batch}.text());
      return found != done.end() && found->second <= now;
    };
    if (action.kind == Kind::F) return action.stage == 0 || there(action.stage - 1, Kind::F);
    if (action.kind == Kind::W) return true;
    return action.stage + 1 == schedule.stages || there(action.stage + 1, Kind::I) || there(action.stage + 1, Kind::B);
  };
  for (bool moved = true; moved;) {
    moved = false;
    const int32_t now = static_cast<int32_t>(table.rows[0].size());
    std::vector<Action> ran;
    for (size_t r = 0; r < schedule.rows.size(); ++r) {
      const auto& row = schedule.rows[r];
      const bool runs = next[r] < row.size() && ready(row[next[r]], now);
      table.rows[r] += runs ? drawn(row[next[r]]) : '.';
      if (runs) ran.push_back(row[next[r]++]);
    }
    for (const Action& action : ran) {
      done[action.text()] = now + 1;
      table.slot[action.text()] = now;
      moved = true;
    }
  }
  for (auto& row : table.rows) row.pop_back();   // the slot in which nobody moved
  return table;
}

struct Golden {
  std::string_view name;
  ScheduleSizes sizes;
  std::vector<std::string> rows;
};

const std::vector<Golden>& goldens() {
  static const std::vector<Golden> list = {
      {"gpipe", {4, 8}, {
          "01234567......abcdefgh",
          ".01234567....abcdefgh.",
          "..01234567..abcdefgh..",
          "...01234567abcdefgh..."}},
      {"gpipe", {4, 2}, {
          "01......ab",
          ".01....ab.",
          "..01..ab..",
          "...01ab..."}},
      {"gpipe", {1, 3}, {"012abc"}},
      {"gpipe", {2, 1}, {
          "0..a",
          ".0a."}},
      {"1f1b", {4, 8}, {
          "0123...a4b5c6d7e.f.g.h",
          ".012..a3b4c5d6e7f.g.h.",
          "..01.a2b3c4d5e6f7g.h..",
          "...0a1b2c3d4e5f6g7h..."}},
      {"1f1b", {4, 2}, {
          "01.....a.b",
          ".01...a.b.",
          "..01.a.b..",
          "...0a1b..."}},
      {"1f1b", {1, 3}, {"0a1b2c"}},
      {"1f1b", {2, 1}, {
          "0..a",
          ".0a."}},
      {"forward", {4, 8}, {
          "01234567...",
          ".01234567..",
          "..01234567.",
          "...01234567"}},
      {"forward", {4, 2}, {
          "01...",
          ".01..",
          "..01.",
          "...01"}},
      {"forward", {1, 3}, {"012"}},
      {"forward", {2, 1}, {
          "0.",
          ".0"}},
  };
  return list;
}

Schedule made(std::string_view name, ScheduleSizes sizes) {
  const ScheduleKind* kind = find_schedule(name);
  EXPECT_NE(kind, nullptr) << name;
  if (!kind) return {};
  Result<Schedule> schedule = kind->make(sizes);
  EXPECT_TRUE(schedule.ok()) << schedule.status().text();
  return schedule.ok() ? schedule.take() : Schedule();
}

std::string lines(const std::vector<std::string>& rows) {
  std::string out;
  for (const auto& row : rows) out += row + "\n";
  return out;
}

TEST(Golden, EveryScheduleHasATimetable) {
  for (const ScheduleKind& kind : all_schedules())
    EXPECT_TRUE(std::any_of(goldens().begin(), goldens().end(), [&](const Golden& g) { return g.name == kind.name; }))
        << "no golden timetable for schedule '" << kind.name << "'";
}

TEST(Golden, TimetablesAreAsDrawn) {
  for (const Golden& golden : goldens())
    EXPECT_EQ(lines(play(made(golden.name, golden.sizes)).rows), lines(golden.rows))
        << golden.name << ", " << golden.sizes.ranks << " ranks, " << golden.sizes.micro_batches << " micro-batches";
}

// A chain, and a skip from the first stage to every later one.
std::vector<StageEdge> chain_and_skips(int32_t stages) {
  std::vector<StageEdge> edges;
  for (int32_t s = 0; s + 1 < stages; ++s) edges.push_back({.from = s, .to = s + 1});
  for (int32_t s = 2; s < stages; ++s) edges.push_back({.from = 0, .to = s});
  return edges;
}

TEST(Conformance, CanRunWhereverItIsMade) {
  for (const ScheduleKind& kind : all_schedules())
    for (int32_t p = 1; p <= 8; ++p)
      for (int32_t m = 1; m <= 20; ++m) {
        SCOPED_TRACE(cat(kind.name, " p ", p, " m ", m));
        const Result<Schedule> schedule = kind.make({p, m});
        if (!schedule.ok()) {
          // A schedule may refuse sizes, but not without naming one.
          EXPECT_NE(schedule.status().text().find_first_of("0123456789"), std::string::npos) << schedule.status().text();
          continue;
        }
        EXPECT_EQ(schedule.value().ranks(), p);
        EXPECT_EQ(schedule.value().micro_batches, m);
        for (int32_t slack = 0; slack < 3; ++slack) {
          const Result<Checked> checked = check_schedule(schedule.value(), chain_and_skips(schedule.value().stages), slack);
          EXPECT_TRUE(checked.ok()) << checked.status().text();
        }
      }
}

TEST(ClosedForm, Peaks) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t m = 1; m <= 20; ++m) {
      SCOPED_TRACE(cat("p ", p, " m ", m));
      const Result<Checked> one = check_schedule(made("1f1b", {p, m}), chain_and_skips(p));
      const Result<Checked> all = check_schedule(made("gpipe", {p, m}), chain_and_skips(p));
      ASSERT_TRUE(one.ok() && all.ok());
      for (int32_t r = 0; r < p; ++r) {
        const StagePeaks& few = one.value().peaks[static_cast<size_t>(r)];
        EXPECT_EQ(few.f_to_i, std::min(p - r, m));
        EXPECT_EQ(few.f_to_w, std::min(p - r, m));
        EXPECT_EQ(few.i_to_w, 1);
        const StagePeaks& many = all.value().peaks[static_cast<size_t>(r)];
        EXPECT_EQ(many.f_to_i, m);
        EXPECT_EQ(many.f_to_w, m);
        EXPECT_EQ(many.i_to_w, 1);
      }
    }
}

// The closed form that DeepSpeed's TrainSchedule is built on: F_i of stage s at slot 2i + s, B_i at slot 2i + 2p - 1 - s.
TEST(ClosedForm, OneForwardOneBackwardRowsFollowTheSlots) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t m = 1; m <= 20; ++m) {
      const Schedule schedule = made("1f1b", {p, m});
      for (int32_t s = 0; s < p; ++s) {
        std::map<int32_t, Action> by_slot;
        for (int32_t i = 0; i < m; ++i) {
          by_slot[2 * i + s] = {s, Kind::F, i};
          by_slot[2 * i + 2 * p - 1 - s] = {s, Kind::B, i};
        }
        std::vector<Action> row;
        for (const auto& [slot, action] : by_slot) row.push_back(action);
        EXPECT_EQ(schedule.rows[static_cast<size_t>(s)], row) << "p " << p << " m " << m << " stage " << s;
      }
    }
}

TEST(ClosedForm, OneForwardOneBackwardPlayed) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t m = 1; m <= 20; ++m) {
      SCOPED_TRACE(cat("p ", p, " m ", m));
      const Timetable table = play(made("1f1b", {p, m}));
      EXPECT_EQ(table.rows[0].size(), static_cast<size_t>(2 * (m + p - 1)));
      for (int32_t s = 0; s < p; ++s)
        for (int32_t i = 0; i < m; ++i) {
          EXPECT_EQ(table.slot.at(Action{s, Kind::B, i}.text()), 2 * i + 2 * p - 1 - s);
          // Greedy play runs warm-up forwards as soon as it can; the closed form spaces them two slots apart.
          const int32_t forward = table.slot.at(Action{s, Kind::F, i}.text());
          if (i < p - s) {
            EXPECT_EQ(forward, i + s);
          } else {
            EXPECT_EQ(forward, 2 * i + s);
          }
        }
    }
}

TEST(ClosedForm, AllForwardThenAllBackward) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t m = 1; m <= 20; ++m) {
      SCOPED_TRACE(cat("p ", p, " m ", m));
      const Timetable table = play(made("gpipe", {p, m}));
      EXPECT_EQ(table.rows[0].size(), static_cast<size_t>(2 * (m + p - 1)));
      for (int32_t s = 0; s < p; ++s)
        for (int32_t i = 0; i < m; ++i) {
          EXPECT_EQ(table.slot.at(Action{s, Kind::F, i}.text()), i + s);
          EXPECT_EQ(table.slot.at(Action{s, Kind::B, i}.text()), m + p - 1 + (p - 1 - s) + i);
        }
    }
}

}  // namespace
}  // namespace weft
