// Generators of asynchronous schedules, and their requirements for a plan. A segment is 1f1b over
// the micro-batches and updates of several steps; the pipeline drains only at its end.
#include "plan/asynchronous.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/text.h"
#include "schedule/rows.h"

namespace weft {

namespace {

Status check_segment(int64_t updates) {
  if (updates >= 1 && updates <= kMaxSegment) return {};
  return Status(Code::invalid,
                cat("segment is ", updates, " updates, expected 1 to ", kMaxSegment));
}

// 1f1b over all micro-batches of a segment. An update follows the last backward of its
// micro-batches. With `double_buffered`, it also follows the first forward of the next update, so
// that every stage, including the last one, uses the weights of one update earlier.
Result<Schedule> make_segment(const ScheduleSizes& sizes, bool double_buffered) {
  const int32_t updates = sizes.segment == 0 ? kDefaultSegment : sizes.segment;
  WEFT_TRY(check_segment(updates));
  const int64_t all = int64_t{sizes.micro_batches} * updates;
  if (all > INT32_MAX)
    return Status(Code::invalid,
                  cat(updates, " updates of ", sizes.micro_batches, " micro-batches are too many"));
  WEFT_TRY_ASSIGN(Schedule schedule,
                  make_1f1b({.ranks = sizes.ranks, .micro_batches = static_cast<int32_t>(all)}));
  schedule.updates = updates;
  for (auto& row : schedule.rows) {
    std::vector<Action> with_updates;
    int32_t forwards = 0, owed = -1;
    for (const Action& action : row) {
      with_updates.push_back(action);
      forwards += action.kind == Kind::F;
      if (action.kind == Kind::B && (action.micro_batch + 1) % sizes.micro_batches == 0)
        owed = action.micro_batch / sizes.micro_batches;
      if (owed < 0 ||
          (double_buffered && owed + 1 < updates && forwards <= (owed + 1) * sizes.micro_batches))
        continue;
      with_updates.push_back({action.stage, Kind::O, owed});
      owed = -1;
    }
    row = std::move(with_updates);
  }
  return schedule;
}

Status check_rounds(const ScheduleSizes& sizes) {
  WEFT_TRY(check_segment(sizes.segment));
  for (size_t s = 0; s < sizes.replicas.size(); ++s)
    if (sizes.segment % sizes.replicas[s] != 0)
      return Status(Code::invalid,
                    cat("segment is ", sizes.segment, ", expected a multiple of the ",
                        sizes.replicas[s], " replicas of stage ", s));
  return {};
}

// 1F1B-RR: the replicas of a stage run its micro-batches in turn, and each runs 1f1b over its own.
Result<Schedule> make_round_robin(ScheduleSizes sizes) {
  if (sizes.segment == 0) {
    int64_t all = 1;
    for (const int32_t r : sizes.replicas)
      all = std::min(std::lcm(all, int64_t{r}), int64_t{kMaxSegment} + 1);
    const int64_t segment = (kDefaultSegment + all - 1) / all * all;
    WEFT_TRY(check_segment(segment));
    sizes.segment = static_cast<int32_t>(segment);
  }
  WEFT_TRY(check_rounds(sizes));
  Schedule schedule{.stages = static_cast<int32_t>(sizes.replicas.size()),
                    .micro_batches = sizes.segment,
                    .updates = sizes.segment,
                    .rank_of_stage = {},
                    .rows = {},
                    .replicas = sizes.replicas};
  const PipedreamNumbers numbers = pipedream_numbers(sizes.replicas);
  for (int32_t s = 0; s < schedule.stages; ++s) {
    schedule.rank_of_stage.push_back(schedule.ranks());
    const int32_t own = schedule.replicas_of(s), rounds = schedule.updates_of(s),
                  warm_up = std::min(numbers.warm_up[static_cast<size_t>(s)], rounds);
    for (int32_t i = 0; i < own; ++i) {
      std::vector<Action>& row = schedule.rows.emplace_back();
      for (int32_t k = 0; k < warm_up; ++k) row.push_back({s, Kind::F, k * own + i});
      for (int32_t k = 0; k < rounds; ++k) {
        if (k + warm_up < rounds) row.push_back({s, Kind::F, (k + warm_up) * own + i});
        row.push_back({s, Kind::B, k * own + i});
        row.push_back({s, Kind::O, k});
      }
    }
  }
  return schedule;
}

// The stages that update a parameter, if there are several.
std::string apart(const Plan& plan, const Param& param) {
  if (param.training.frozen) return {};
  const int32_t first = plan.stage_of_node[static_cast<size_t>(param.uses.front().node)];
  for (const Param::Use& use : param.uses)
    if (const int32_t stage = plan.stage_of_node[static_cast<size_t>(use.node)]; stage != first)
      return cat(first, " and ", stage);
  return {};
}

}  // namespace

Result<Schedule> make_pipedream(const ScheduleSizes& sizes) {
  WEFT_TRY(begin_schedule({.name = "pipedream", .kinds = 3}, sizes).status());
  if (sizes.micro_batches != 1)
    return Status(
        Code::invalid,
        cat("schedule 'pipedream' makes an update of every micro-batch: micro_batches is ",
            sizes.micro_batches, ", expected 1; 'pipedream-2bw' gathers several"));
  const bool replicated =
      std::any_of(sizes.replicas.begin(), sizes.replicas.end(), [](int32_t r) { return r > 1; });
  return replicated ? make_round_robin(sizes) : make_segment(sizes, false);
}

Result<Schedule> make_pipedream_2bw(const ScheduleSizes& sizes) {
  WEFT_TRY(begin_schedule({.name = "pipedream-2bw", .kinds = 3}, sizes).status());
  if (sizes.micro_batches < sizes.ranks)
    return Status(Code::invalid,
                  cat("schedule 'pipedream-2bw' needs as many micro-batches per update as ranks, ",
                      sizes.ranks, ", or more: micro_batches is ", sizes.micro_batches));
  return make_segment(sizes, true);
}

Result<std::vector<int32_t>> replicas_of(const PlanConfig& config) {
  std::vector<int32_t> out;
  const auto wrong = [&config](std::string_view what) {
    return Status(Code::invalid,
                  cat("stage_replicas is '", config.stage_replicas, "', expected ", what));
  };
  int64_t all = 0;
  for (size_t at = 0; at < config.stage_replicas.size();) {
    const char* begin = config.stage_replicas.data() + at;
    const char* end = config.stage_replicas.data() + config.stage_replicas.size();
    int32_t ranks = 0;
    const auto [stop, error] = std::from_chars(begin, end, ranks);
    if (error != std::errc() || ranks < 1 || (stop != end && (*stop != ',' || stop + 1 == end)))
      return wrong("the ranks of each stage, as '3,1'");
    out.push_back(ranks);
    all += ranks;
    at = static_cast<size_t>(stop - config.stage_replicas.data()) + 1;
  }
  if (!out.empty() && all != config.ranks)
    return wrong(cat("as many ranks in all as the plan has, ", config.ranks));
  return out;
}

PipedreamNumbers pipedream_numbers(std::span<const int32_t> replicas) {
  PipedreamNumbers out;
  const int32_t all = std::accumulate(replicas.begin(), replicas.end(), 0);
  int32_t left = all;
  for (const int32_t r : replicas) {
    out.warm_up.push_back((left - 1) / r);
    out.versions.push_back(out.warm_up.back() + 1);
    left -= r;
  }
  if (!replicas.empty()) out.noam = (all + replicas.front() - 1) / replicas.front();
  return out;
}

Status check_asynchronous(const Plan& plan, const Schedule& train) {
  const PlanConfig& c = plan.config;
  const std::string name = c.schedule_text.empty() ? cat("schedule '", c.schedule, "'")
                                                   : std::string("the schedule in schedule_text");
  const auto refuse = [&name](std::string text) {
    return Status(Code::invalid, cat(name, " ", text));
  };
  if (train.updates == 0) {
    if (c.segment) return refuse(cat("is synchronous: segment is ", c.segment, ", expected 0"));
    return c.vertical_sync ? refuse("is synchronous: vertical sync is for 'pipedream'") : Status();
  }
  if (c.shard_ranks > 1)
    return refuse(cat("is asynchronous, which needs one rank per stage: axis 'tensor' has ",
                      c.shard_ranks, " ranks"));
  if (train.replicas.empty() && train.stages != train.ranks())
    return refuse(cat("is asynchronous, which needs one stage per rank: there are ", train.stages,
                      " stages on ", train.ranks(), " ranks"));
  if (plan.gathers())
    return refuse("keeps versions of the values: shard is parameters, expected optimizer or none");
  if (c.optim.clip != 0)
    return refuse(
        cat("makes updates without a flush, so no global norm is known to clip to: clip is ",
            c.optim.clip, ", expected 0"));
  if (c.data > 1) return refuse(cat("is asynchronous, which needs one replica: data is ", c.data));
  if (c.gradient_groups > 1)
    return refuse(cat("adds the gradients of an update one after another: gradient_groups is ",
                      c.gradient_groups, ", expected 1"));
  for (const Param& param : plan.model->params())
    if (const std::string stages = apart(plan, param); !stages.empty())
      return refuse(cat("makes updates without a flush, but parameter '", param.name,
                        "' is tied across stages ", stages));
  return {};
}

}  // namespace weft
