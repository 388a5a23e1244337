#include "simulator.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace weft {
namespace {

using Part = std::tuple<int32_t, Kind, int32_t>;  // stage, F, R, I or W, micro-batch

std::vector<Part> parts_of(const Action& action) {
  if (action.kind != Kind::B) return {{action.stage, action.kind, action.micro_batch}};
  return {{action.stage, Kind::I, action.micro_batch}, {action.stage, Kind::W, action.micro_batch}};
}

std::string malformed(const Schedule& schedule) {
  std::multiset<Part> found, wanted;
  for (size_t r = 0; r < schedule.rows.size(); ++r) {
    if (schedule.rows[r].empty()) return "an idle rank";
    for (size_t a = 0; a < schedule.rows[r].size(); ++a) {
      const Action& action = schedule.rows[r][a];
      if (action.stage < 0 || action.stage >= schedule.stages) return "no such stage";
      if (schedule.rank_of_stage[static_cast<size_t>(action.stage)] != static_cast<int32_t>(r))
        return "stage of another rank";
      for (const Part& part : parts_of(action)) {
        const auto [stage, kind, micro_batch] = part;
        found.insert(part);
        for (size_t before = 0; before < a; ++before)
          for (const Part& earlier : parts_of(schedule.rows[r][before]))
            if (std::get<0>(earlier) == stage && std::get<1>(earlier) == kind &&
                std::get<2>(earlier) >= micro_batch)
              return "not ascending";
        // What a micro-batch must have been through on this very stage, in this very row.
        const auto earlier_in_row = [&, s = stage, k = micro_batch](Kind wanted_kind) {
          if (wanted_kind == Kind::I && action.kind == Kind::B) return true;
          for (size_t before = 0; before < a; ++before)
            for (const Part& part_before : parts_of(schedule.rows[r][before]))
              if (part_before == Part{s, wanted_kind, k}) return true;
          return false;
        };
        if (kind == Kind::R && !earlier_in_row(Kind::F)) return "R before F";
        if (kind == Kind::R && earlier_in_row(Kind::I)) return "R after I";
        if (kind == Kind::I && !earlier_in_row(Kind::F)) return "I before F";
        if (kind == Kind::W && !earlier_in_row(Kind::I)) return "W before I";
      }
    }
  }
  for (int32_t s = 0; s < schedule.stages; ++s) {
    const bool again = std::any_of(found.begin(), found.end(), [s](const Part& p) {
      return std::get<0>(p) == s && std::get<1>(p) == Kind::R;
    });
    for (int32_t k = 0; k < schedule.micro_batches; ++k)
      for (Kind kind : {Kind::F, Kind::R, Kind::I, Kind::W})
        if (kind == Kind::F || (!schedule.forward_only && (kind != Kind::R || again)))
          wanted.insert({s, kind, k});
  }
  return found == wanted ? "" : "actions missing or too many";
}

// One direction of one edge.
struct Lane {
  int32_t source = 0, target = 0;  // stages
  Kind makes = Kind::F, until = Kind::F;
  int32_t slots = 0;
  std::vector<int32_t> outgoing;  // made, not sent: in order
  std::set<int32_t> landed;
  int32_t in_use = 0;
};

std::vector<Lane> lanes_of(const Schedule& schedule, const std::vector<StageEdge>& edges,
                           const std::vector<EdgeSlots>& slots) {
  std::vector<Lane> lanes;
  for (size_t e = 0; e < edges.size(); ++e) {
    const StageEdge& edge = edges[e];
    Lane lane;
    lane.source = edge.from;
    lane.target = edge.to;
    lane.until = schedule.forward_only ? Kind::F : edge.forward_until;
    lane.slots = slots[e].forward;
    lanes.push_back(lane);
    if (!edge.gradient || schedule.forward_only) continue;
    lane.source = edge.to;
    lane.target = edge.from;
    lane.makes = Kind::I;
    lane.until = edge.gradient_until;
    lane.slots = slots[e].gradient;
    lanes.push_back(lane);
  }
  return lanes;
}

bool deliver(std::vector<Lane>& lanes) {
  bool moved = false;
  for (Lane& lane : lanes)
    while (!lane.outgoing.empty() && lane.in_use < lane.slots) {
      lane.landed.insert(lane.outgoing.front());
      lane.outgoing.erase(lane.outgoing.begin());
      ++lane.in_use;
      moved = true;
    }
  return moved;
}

bool try_run(const Action& action, std::vector<Lane>& lanes) {
  const std::vector<Part> parts = parts_of(action);
  const auto does = [&](int32_t stage, Kind kind) {
    return std::find(parts.begin(), parts.end(), Part{stage, kind, action.micro_batch}) !=
           parts.end();
  };
  for (const Lane& lane : lanes)
    if (does(lane.target, lane.makes) && !lane.landed.count(action.micro_batch)) return false;
  for (Lane& lane : lanes) {
    if (does(lane.source, lane.makes)) lane.outgoing.push_back(action.micro_batch);
    if (does(lane.target, lane.until)) --lane.in_use;
  }
  return true;
}

// Most micro-batches that are past the start of `begin` and not past the end of `end`, on one
// stage, action by action.
int32_t most_between(const Schedule& schedule, int32_t stage, Kind begin, Kind end) {
  int32_t most = 0;
  std::set<int32_t> open;
  for (const Action& action :
       schedule.rows[static_cast<size_t>(schedule.rank_of_stage[static_cast<size_t>(stage)])])
    for (const auto& [part_stage, kind, micro_batch] : parts_of(action)) {
      if (part_stage != stage) continue;
      if (kind == begin) open.insert(micro_batch);
      most = std::max(most, static_cast<int32_t>(open.size()));
      if (kind == end) open.erase(micro_batch);
    }
  return most;
}

void measure(const Schedule& schedule, const std::vector<StageEdge>& edges, Simulated& out) {
  for (int32_t s = 0; s < schedule.stages; ++s) {
    StagePeaks peaks;
    if (!schedule.forward_only)
      peaks = {.f_to_r = most_between(schedule, s, Kind::F, Kind::R),
               .f_to_i = most_between(schedule, s, Kind::F, Kind::I),
               .f_to_w = most_between(schedule, s, Kind::F, Kind::W),
               .i_to_w = most_between(schedule, s, Kind::I, Kind::W)};
    out.peaks.push_back(peaks);
  }
  for (const StageEdge& edge : edges) {
    const Kind until = schedule.forward_only ? Kind::F : edge.forward_until;
    const bool back = edge.gradient && !schedule.forward_only;
    out.held.push_back(
        {most_between(schedule, edge.to, Kind::F, until),
         back ? most_between(schedule, edge.from, Kind::I, edge.gradient_until) : 0});
  }
}

}  // namespace

Simulated simulate(const Schedule& schedule, const std::vector<StageEdge>& edges,
                   const std::vector<EdgeSlots>& slots) {
  Simulated out;
  out.why = malformed(schedule);
  out.well_formed = out.why.empty();
  if (!out.well_formed) return out;
  std::vector<Lane> lanes = lanes_of(schedule, edges, slots);
  std::vector<size_t> next(schedule.rows.size(), 0);
  for (bool moved = true; moved;) {
    moved = deliver(lanes);
    for (size_t r = 0; r < next.size(); ++r)
      if (next[r] < schedule.rows[r].size() && try_run(schedule.rows[r][next[r]], lanes)) {
        ++next[r];
        moved = true;
      }
  }
  for (size_t r = 0; r < next.size(); ++r)
    if (next[r] < schedule.rows[r].size())
      out.why += " stuck before " + schedule.rows[r][next[r]].text();
  out.ran = out.why.empty();
  if (out.ran) measure(schedule, edges, out);
  return out;
}

}  // namespace weft
