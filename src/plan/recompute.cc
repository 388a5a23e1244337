#include "plan/recompute.h"

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
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), out.every);
    if (error == std::errc() && end == number.data() + number.size() && out.every > 0 && out.every <= Recompute::kWhole) return out;
  }
  return Status(Code::invalid, cat("recompute is '", text, "', expected none, stage, every:N (N nodes, 1 or more) or auto"));
}

std::vector<int32_t> segments_of(const Recompute& recompute, const Schedule& schedule) {
  std::vector<int32_t> out(static_cast<size_t>(schedule.stages), recompute.every);
  for (const auto& row : schedule.rows)
    for (const Action& action : row)
      if (int32_t& segment = out[static_cast<size_t>(action.stage)]; action.kind == Kind::R && segment == 0) segment = Recompute::kWhole;
  return out;
}

void add_recompute(Schedule& schedule, const std::vector<StageWork>& work) {
  std::vector<bool> wanted;
  for (const StageWork& stage : work) wanted.push_back(!stage.calls[kPhaseR].empty());
  for (const auto& row : schedule.rows)
    for (const Action& action : row)
      if (action.kind == Kind::R) wanted[static_cast<size_t>(action.stage)] = false;
  if (std::none_of(wanted.begin(), wanted.end(), [](bool w) { return w; })) return;
  for (auto& row : schedule.rows) {
    std::vector<Action> out;
    for (const Action& action : row) {
      if (wanted[static_cast<size_t>(action.stage)] && (action.kind == Kind::I || action.kind == Kind::B))
        out.push_back({action.stage, Kind::R, action.micro_batch});
      out.push_back(action);
    }
    row = std::move(out);
  }
}

}  // namespace weft
