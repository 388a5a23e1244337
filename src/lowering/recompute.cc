#include "lowering/recompute.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace weft {

Result<Recompute> parse_recompute(std::string_view text) {
  if (text.empty() || text == "none") return Recompute{};
  if (text == "stage") return Recompute{Recompute::Kind::stage, Recompute::kWhole};
  if (text == "auto") return Recompute{Recompute::Kind::fit, 0};
  constexpr std::string_view kEvery = "every:";
  if (text.starts_with(kEvery)) {
    Recompute out{Recompute::Kind::every, 0};
    const std::string_view number = text.substr(kEvery.size());
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), out.every);
    if (error == std::errc() && end == number.data() + number.size() && out.every > 0 &&
        out.every <= Recompute::kWhole)
      return out;
  }
  return Status(
      Code::invalid,
      cat("recompute is '", text, "', expected none, stage, every:N (N nodes, 1 or more) or auto"));
}

namespace {

// Whether the backward of each micro-batch directly follows its forward, so that the activations of
// one micro-batch at a time are kept in any case.
std::vector<bool> turn_at_once(const Schedule& schedule) {
  std::vector<bool> out(static_cast<size_t>(schedule.stages), true);
  for (const auto& row : schedule.rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i].kind != Kind::F) continue;
      const bool turns = i + 1 < row.size() && row[i + 1].stage == row[i].stage &&
                         row[i + 1].micro_batch == row[i].micro_batch;
      if (!turns) out[static_cast<size_t>(row[i].stage)] = false;
    }
  return out;
}

}  // namespace

std::vector<int32_t> calls_per_block(const Recompute& recompute, const Schedule& schedule) {
  std::vector<int32_t> out(static_cast<size_t>(schedule.stages), recompute.every);
  if (recompute.kind == Recompute::Kind::stage) {
    const std::vector<bool> keep = turn_at_once(schedule);
    for (size_t s = 0; s < out.size(); ++s)
      if (keep[s]) out[s] = 0;
  }
  for (const auto& row : schedule.rows)
    for (const Action& action : row)
      if (int32_t& calls = out[static_cast<size_t>(action.stage)];
          action.kind == Kind::R && calls == 0)
        calls = Recompute::kWhole;
  return out;
}

void add_recompute(Schedule& schedule, std::vector<bool> wanted) {
  for (const auto& row : schedule.rows)
    for (const Action& action : row)
      if (action.kind == Kind::R) wanted[static_cast<size_t>(action.stage)] = false;
  if (std::none_of(wanted.begin(), wanted.end(), [](bool w) { return w; })) return;
  for (auto& row : schedule.rows) {
    std::vector<Action> out;
    for (const Action& action : row) {
      if (wanted[static_cast<size_t>(action.stage)] &&
          (action.kind == Kind::I || action.kind == Kind::B))
        out.push_back({action.stage, Kind::R, action.micro_batch});
      out.push_back(action);
    }
    row = std::move(out);
  }
}

std::vector<std::vector<int32_t>> ways_of(const std::vector<std::vector<RecomputeOption>>& stages,
                                          int64_t room) {
  constexpr size_t kMostWays = 4096;
  size_t all = 1;
  for (const auto& options : stages) all = std::min(all * options.size(), kMostWays + 1);
  struct Way {
    std::vector<int32_t> calls_per_block;  // per stage
    double seconds = 0;
    int64_t bytes = 0;
  };
  std::vector<Way> ways;
  std::vector<size_t> pick(stages.size(), 0);
  const auto add = [&] {
    Way way;
    int64_t kept = stages[0][0].kept, scratch = 0;
    for (size_t s = 0; s < stages.size(); ++s) {
      const RecomputeOption& option = stages[s][pick[s]];
      way.calls_per_block.push_back(option.calls_per_block);
      way.seconds += option.seconds;
      kept += option.kept - stages[s][0].kept;
      scratch = std::max(scratch, option.scratch);
    }
    way.bytes = kept + scratch;
    ways.push_back(std::move(way));
  };
  if (all > kMostWays) {  // one option for all stages, or for the first ones
    for (size_t option = 0; option < stages[0].size(); ++option)
      for (size_t upto = 1; upto <= stages.size(); ++upto) {
        for (size_t s = 0; s < stages.size(); ++s)
          pick[s] = s < upto ? std::min(option, stages[s].size() - 1) : 0;
        add();
      }
  }
  for (size_t s = 0; all <= kMostWays && s < stages.size();) {
    add();
    for (s = 0; s < stages.size() && ++pick[s] == stages[s].size(); ++s) pick[s] = 0;
  }
  std::stable_sort(ways.begin(), ways.end(), [room](const Way& a, const Way& b) {
    const bool fits = a.bytes <= room;
    if (fits != (b.bytes <= room)) return fits;
    if (fits && a.seconds != b.seconds) return a.seconds < b.seconds;
    return a.bytes < b.bytes;
  });
  constexpr int kMostOver = 3;
  int over = 0;
  std::vector<std::vector<int32_t>> out;
  for (Way& way : ways)
    if (way.bytes <= room || over++ < kMostOver) out.push_back(std::move(way.calls_per_block));
  return out;
}

}  // namespace weft
