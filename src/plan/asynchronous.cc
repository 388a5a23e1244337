// Generators of asynchronous schedules, and their requirements for a plan. A segment is 1f1b over
// the micro-batches and updates of several steps; the pipeline drains only at its end.
#include "plan/asynchronous.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>

#include "base/text.h"
#include "schedule/rows.h"

namespace weft {

namespace {

// The updates of a segment, of which each stage makes one per rank that it has.
Result<int32_t> updates_of(const ScheduleSizes& sizes, const std::vector<int32_t>& ranks_of) {
  int64_t all = 1;
  for (const int32_t r : ranks_of)
    all = std::min(std::lcm(all, int64_t{r}), int64_t{kMaxSegment} + 1);
  const int64_t updates =
      sizes.segment == 0 ? (kDefaultSegment + all - 1) / all * all : sizes.segment;
  if (updates < 1 || updates > kMaxSegment)
    return Status(Code::invalid,
                  cat("segment is ", updates, " updates, expected 1 to ", kMaxSegment));
  for (size_t s = 0; s < ranks_of.size(); ++s)
    if (updates % ranks_of[s] != 0)
      return Status(Code::invalid, cat("segment is ", updates, ", expected a multiple of the ",
                                       ranks_of[s], " replicas of stage ", s));
  if (updates * sizes.micro_batches > INT32_MAX)
    return Status(Code::invalid,
                  cat(updates, " updates of ", sizes.micro_batches, " micro-batches are too many"));
  return static_cast<int32_t>(updates);
}

// What one rank of a stage runs: 1f1b over its micro-batches, of which each update has `each`. An
// update follows the last backward of its micro-batches. With `double_buffered`, it also follows
// the first forward of the next update, so that every stage, including the last one, uses the
// weights of one update earlier.
class Row {
 public:
  Row(int32_t stage, int32_t ranks, int32_t replica, int32_t each, int32_t updates)
      : stage_(stage), ranks_(ranks), replica_(replica), each_(each), updates_(updates) {}

  std::vector<Action> make(int32_t warm_up, bool double_buffered) {
    double_buffered_ = double_buffered;
    const int32_t all = each_ * updates_;
    while (forwards_ < std::min(warm_up, all)) add(Kind::F, forwards_);
    for (int32_t k = 0; k < all; ++k) {
      if (forwards_ < all) add(Kind::F, forwards_);
      add(Kind::B, k);
    }
    return std::move(row_);
  }

 private:
  void add(Kind kind, int32_t k) {
    row_.push_back({stage_, kind, k * ranks_ + replica_});
    forwards_ += kind == Kind::F;
    if (kind == Kind::B && (k + 1) % each_ == 0) owed_ = k / each_;
    const bool waits = double_buffered_ && owed_ + 1 < updates_ && forwards_ <= (owed_ + 1) * each_;
    if (owed_ < 0 || waits) return;
    row_.push_back({stage_, Kind::O, owed_});
    owed_ = -1;
  }

  const int32_t stage_, ranks_, replica_, each_, updates_;
  bool double_buffered_ = false;
  int32_t forwards_ = 0, owed_ = -1;  // an update that waits
  std::vector<Action> row_;
};

bool takes_turns(const ScheduleSizes& sizes) {
  return std::any_of(sizes.replicas.begin(), sizes.replicas.end(), [](int32_t r) { return r > 1; });
}

// 1F1B-RR: the ranks of a stage run its micro-batches in turn.
Result<Schedule> make_segment(const ScheduleSizes& sizes, bool double_buffered) {
  const std::vector<int32_t> ranks_of =
      takes_turns(sizes) ? sizes.replicas
                         : std::vector<int32_t>(static_cast<size_t>(sizes.ranks), 1);
  WEFT_TRY_ASSIGN(const int32_t updates, updates_of(sizes, ranks_of));
  Schedule schedule{.stages = static_cast<int32_t>(ranks_of.size()),
                    .micro_batches = sizes.micro_batches * updates,
                    .updates = updates,
                    .rank_of_stage = {},
                    .rows = {}};
  WEFT_TRY(check_sizes({.ranks = sizes.ranks, .micro_batches = schedule.micro_batches}, 1, 3));
  if (takes_turns(sizes)) schedule.replicas = ranks_of;
  const PipedreamNumbers numbers = pipedream_numbers(ranks_of);
  for (int32_t s = 0; s < schedule.stages; ++s) {
    schedule.rank_of_stage.push_back(schedule.ranks());
    const int32_t own = schedule.replicas_of(s);
    for (int32_t i = 0; i < own; ++i)
      schedule.rows.push_back(Row(s, own, i, sizes.micro_batches, schedule.updates_of(s))
                                  .make(numbers.warm_up[static_cast<size_t>(s)], double_buffered));
  }
  return schedule;
}

std::string name_of_schedule(const PlanConfig& config) {
  return config.schedule_text.empty() ? cat("schedule '", config.schedule, "'")
                                      : std::string("the schedule in schedule_text");
}

}  // namespace

Result<Schedule> make_pipedream(const ScheduleSizes& sizes) {
  WEFT_TRY(begin_schedule({.name = "pipedream", .kinds = 3}, sizes).status());
  if (sizes.micro_batches != 1)
    return Status(
        Code::invalid,
        cat("schedule 'pipedream' makes an update of every micro-batch: micro_batches is ",
            sizes.micro_batches, ", expected 1; 'pipedream-2bw' gathers several"));
  return make_segment(sizes, false);
}

Result<Schedule> make_pipedream_2bw(const ScheduleSizes& sizes) {
  WEFT_TRY(begin_schedule({.name = "pipedream-2bw", .kinds = 3}, sizes).status());
  const std::vector<int32_t>& r = sizes.replicas;
  if (const auto other = std::adjacent_find(r.begin(), r.end(), std::not_equal_to());
      other != r.end())
    return Status(
        Code::invalid,
        cat("schedule 'pipedream-2bw' makes the same updates at every stage: stage_replicas "
            "has ",
            other[0], " and ", other[1], ", expected equal numbers"));
  const auto stages = r.empty() ? sizes.ranks : static_cast<int32_t>(r.size());
  if (sizes.micro_batches < stages)
    return Status(Code::invalid,
                  cat("schedule 'pipedream-2bw' needs as many micro-batches per update as stages, ",
                      stages, ", or more: micro_batches is ", sizes.micro_batches));
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
  const auto refuse = [&c](std::string text) {
    return Status(Code::invalid, cat(name_of_schedule(c), " ", text));
  };
  if (train.updates == 0) {
    if (c.segment) return refuse(cat("is synchronous: segment is ", c.segment, ", expected 0"));
    return c.vertical_sync ? refuse("is synchronous: vertical sync is for asynchronous schedules")
                           : Status();
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
  return {};
}

Status check_tied_versions(const Plan& plan) {
  const auto versions_of = [&plan](const Param::Use& use) -> const WeightVersions& {
    return plan.versions[static_cast<size_t>(plan.rank_of_node(use.node, 0))];
  };
  for (const Param& param : plan.model->params()) {
    const Param::Use& first = param.uses.front();
    for (const Param::Use& use : param.uses) {
      if (param.training.frozen || versions_of(use).of_update == versions_of(first).of_update)
        continue;
      const bool same_replicas = versions_of(use).round == versions_of(first).round;
      return Status(Code::invalid,
                    cat(name_of_schedule(plan.config), " updates without a flush, and stages ",
                        plan.stage_of_node[static_cast<size_t>(first.node)], " and ",
                        plan.stage_of_node[static_cast<size_t>(use.node)],
                        " use different versions of the tied parameter '", param.name, "': ",
                        same_replicas ? "vertical_sync is 0, expected 1"
                                      : "expected as many replicas of both"));
    }
  }
  return {};
}

}  // namespace weft
