#include "sim/predict.h"

#include <algorithm>
#include <cmath>

#include "base/nanoseconds.h"
#include "base/text.h"
#include "engine/steps.h"
#include "sim/costs.h"

namespace weft {

namespace {

// What one exchange in the middle of an action takes at least between two processes of a machine,
// beside kActionOverhead: measured, by two processes on a core each (75, 120 and 320 microseconds
// for 32, 128 and 512 KiB, overhead included). Nothing hides it, as the rank waits for it; so it
// counts where links take no time otherwise.
constexpr double kExchangeLatency = 50e-6, kExchangeSpeed = 2e9;

std::vector<std::vector<TraceSpan>> trace_spans(const SimStep& done, Mode mode) {
  std::vector<std::vector<TraceSpan>> out(done.ranks.size());
  for (const SimSpan& s : done.spans)
    out[static_cast<size_t>(s.rank)].push_back(
        {.time = {nanoseconds(s.begin), nanoseconds(s.end)}, .job = s.job, .mode = mode});
  return out;
}

SimCosts costs_of(const Plan& plan, const Cluster* cluster, const JobCosts& jobs) {
  SimCosts costs;
  costs.job = [&jobs](int32_t rank, const RankProgram&, const Job& job) {
    return jobs.of(rank, job);
  };
  const double measured = plan.config.machines.overhead;
  costs.overhead = cluster ? cluster->overhead : measured > 0 ? measured : kActionOverhead;
  const int32_t sharing = plan.config.shard_ranks;
  const SimLink own{plan.config.machines.latency, plan.config.machines.bandwidth};
  costs.link_of = [cluster, own, sharing](int32_t from, int32_t to) {
    SimLink link = own;
    if (cluster) {
      const ClusterLink given = cluster->link(from, to);
      link = {given.latency, given.bandwidth};
    }
    if (sharing == 1 || from / sharing != to / sharing) return link;
    const double speed = link.bytes_per_time;
    return SimLink{std::max(link.latency, kExchangeLatency),
                   speed > 0 ? std::min(speed, kExchangeSpeed) : kExchangeSpeed};
  };
  return costs;
}

std::vector<double> speeds_of(const Cluster& cluster, int32_t ranks) {
  std::vector<double> out;
  for (int32_t r = 0; r < ranks; ++r) out.push_back(cluster.speed(r));
  return out;
}

JobCosts job_costs(const Plan& plan, const Cluster* cluster) {
  return JobCosts(plan, plan.main_mode(), plan.config.times,
                  cluster ? speeds_of(*cluster, plan.config.ranks) : plan.config.machines.speeds);
}

double share(double idle, double of) { return of > 0 ? std::max(0.0, idle / of) : 0; }

}  // namespace

int64_t Prediction::peak_bytes() const {
  int64_t most = 0;
  for (const RankPrediction& r : ranks) most = std::max(most, r.peak_bytes);
  return most;
}

int64_t Prediction::bytes() const {
  int64_t sum = 0;
  for (const SimTraffic& link : links) sum += link.bytes;
  return sum;
}

Status explain(const std::shared_ptr<const Plan>& plan, const Cluster* cluster, Prediction& out) {
  const JobCosts jobs = job_costs(*plan, cluster);
  WEFT_TRY(jobs.check());
  SimCosts costs = costs_of(*plan, cluster, jobs);
  costs.link_of = {};
  WEFT_TRY_ASSIGN(const SimStep done,
                  Sim(plan, std::move(costs)).step(largest_step(*plan, out.mode)));
  out.waiting = std::max(0.0, done.makespan - out.work);
  return {};
}

Result<Prediction> predict(const std::shared_ptr<const Plan>& plan, const Cluster* cluster,
                           bool spans) {
  Prediction out;
  out.mode = plan->main_mode();
  if (cluster) WEFT_TRY(check_ranks(*cluster, plan->config.ranks));
  const JobCosts jobs = job_costs(*plan, cluster);
  WEFT_TRY(jobs.check());
  Sim sim(plan, costs_of(*plan, cluster, jobs));
  if (spans) sim.keep_spans();
  WEFT_TRY_ASSIGN(SimStep done, sim.step(largest_step(*plan, out.mode)));

  constexpr double kMost = 9e9;  // in nanoseconds, a number of 64 bits
  if (!(done.makespan <= kMost))
    return Status(Code::invalid, cat("a step takes ", done.makespan, " s, expected at most ", kMost,
                                     ": a speed, a link or a time of the profile is out of range"));
  out.seconds = done.makespan;
  out.commit = done.commit;
  for (size_t r = 0; r < done.ranks.size(); ++r) {
    const SimRank& did = done.ranks[r];
    const double own = did.last - did.first;
    out.work = std::max(out.work, did.work);
    out.ranks.push_back({.first = did.first,
                         .last = did.last,
                         .busy = did.busy,
                         .idle = share(done.commit - did.before_commit, done.commit),
                         .idle_own = share(own - did.busy, own),
                         .peak_bytes = plan->arena_bytes[r]});
    out.idle += out.ranks.back().idle / static_cast<double>(done.ranks.size());
    out.idle_own += out.ranks.back().idle_own / static_cast<double>(done.ranks.size());
  }
  out.links = std::move(done.traffic);
  if (spans) out.spans = trace_spans(done, out.mode);
  return out;
}

Machines machines_of(const std::shared_ptr<const Cluster>& given, int32_t ranks) {
  const Cluster& cluster = *given;
  Machines out;
  out.link = [given](size_t from, size_t to) {
    const ClusterLink link = given->link(static_cast<int64_t>(from), static_cast<int64_t>(to));
    return LinkSpeed{link.latency, link.bandwidth};
  };
  out.speeds = speeds_of(cluster, ranks);
  LinkSpeed slowest;
  for (int32_t r = 0; r < ranks; ++r) {
    out.memory.push_back(cluster.memory(r));
    if (r == 0) continue;
    slowest.keep_slower(out.between(static_cast<size_t>(r - 1), static_cast<size_t>(r)));
  }
  out.latency = slowest.latency;
  out.bandwidth = slowest.bandwidth;
  return out;
}

int64_t memory_of(const Cluster& cluster, int32_t ranks) {
  int64_t most = 0;
  for (int32_t r = 0; r < ranks; ++r) {
    if (cluster.memory(r) == 0) return 0;
    most = std::max(most, cluster.memory(r));
  }
  return most;
}

Status check_memory(const Plan& plan, const Cluster* cluster, int64_t limit) {
  for (size_t r = 0; r < plan.arena_bytes.size(); ++r) {
    const int64_t bytes = plan.arena_bytes[r],
                  given = cluster ? cluster->memory(static_cast<int64_t>(r)) : 0;
    if (limit > 0 && bytes > limit)
      return Status(Code::invalid, cat("rank ", r, " needs ", bytes_text(bytes), ", the limit is ",
                                       bytes_text(limit)));
    if (given > 0 && bytes > given)
      return Status(Code::invalid, cat("rank ", r, " needs ", bytes_text(bytes), ", machine '",
                                       cluster->machine(static_cast<int64_t>(r)), "' has ",
                                       bytes_text(given), " for it"));
  }
  return {};
}

Status check_ranks(const Cluster& cluster, int32_t ranks) {
  if (cluster.ranks() == ranks) return {};
  return Status(Code::invalid,
                cat("the cluster has ", cluster.ranks(), " ranks, the plan has ", ranks));
}

}  // namespace weft
