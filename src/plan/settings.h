// All settings of a plan by name, in one list for the hash, the plan file and the message to other
// ranks: a new one is a row here. Not in it are the cuts and the rows of a schedule, which are
// lists and hashed as such, and what a plan's cuts were made from.
#pragma once

#include "plan/plan.h"

namespace weft {

// Calls visit(name, field) for each.
template <typename Config, typename Visit>
void each_plan_setting(Config& c, Visit&& visit) {
  visit("ranks", c.ranks);
  visit("data", c.data);
  visit("shard_ranks", c.shard_ranks);
  visit("tensor", c.tensor);
  visit("micro_batches", c.micro_batches);
  visit("micro_batch_size", c.micro_batch_size);
  visit("short_size", c.short_size);
  visit("chunks", c.chunks);
  visit("group", c.group);
  visit("warm_up", c.warm_up);
  visit("slack", c.slack);
  visit("memory_limit", c.memory_limit);
  visit("seed", c.seed);
  visit("segment", c.segment);
  visit("vertical_sync", c.vertical_sync);
  visit("gradient_groups", c.gradient_groups);
  visit("step_kinds", c.step_kinds);
  visit("schedule", c.schedule);
  visit("recompute", c.recompute);
}

template <typename Optim, typename Visit>
void each_optim_setting(Optim& o, Visit&& visit) {
  visit("rule", o.rule);
  visit("curve", o.curve);
  visit("decay_all", o.decay_all);
  visit("rate", o.rate);
  visit("momentum", o.momentum);
  visit("beta1", o.beta1);
  visit("beta2", o.beta2);
  visit("eps", o.eps);
  visit("weight_decay", o.weight_decay);
  visit("warmup", o.warmup);
  visit("total", o.total);
  visit("min_rate", o.min_rate);
  visit("clip", o.clip);
}

}  // namespace weft
