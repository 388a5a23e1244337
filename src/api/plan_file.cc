// Plans that are saved and used again as they are.
#include "io/plan_file.h"

#include <limits>

#include "api/handles.h"
#include "io/file.h"

using namespace weft;
using namespace weft::api;

namespace {

constexpr size_t kMostBytes = size_t{1} << 30;

// Settings of the two sides in one list.
template <typename File, typename Config, typename F>
void each_number(File& file, Config& config, F&& f) {
  f(file.ranks, config.ranks);
  f(file.micro_batches, config.micro_batches);
  f(file.micro_batch_size, config.micro_batch_size);
  f(file.short_size, config.short_size);
  f(file.chunks, config.chunks);
  f(file.group, config.group);
  f(file.warm_up, config.warm_up);
  f(file.slack, config.slack);
  f(file.memory_limit, config.memory_limit);
  f(file.seed, config.seed);
  f(file.segment, config.segment);
  f(file.warmup, config.optim.warmup);
  f(file.total, config.optim.total);
}

template <typename File, typename Optim, typename F>
void each_real(File& file, Optim& optim, F&& f) {
  f(file.rate, optim.rate);
  f(file.momentum, optim.momentum);
  f(file.beta1, optim.beta1);
  f(file.beta2, optim.beta2);
  f(file.eps, optim.eps);
  f(file.weight_decay, optim.weight_decay);
  f(file.min_rate, optim.min_rate);
  f(file.clip, optim.clip);
}

Digest hash_of(const Plan& plan) {
  Hasher hasher;
  for (const Digest& d : {plan.hash.model, plan.hash.partition, plan.hash.schedule, plan.hash.settings})
    hasher.number(d.high).number(d.low);
  return hasher.finish();
}

PlanFile to_file(const Plan& plan) {
  const PlanConfig& c = plan.config;
  PlanFile out;
  out.weft = weft_version();
  out.model_hash = plan.hash.model;
  out.plan_hash = hash_of(plan);
  each_number(out, c, [](uint64_t& to, auto from) { to = static_cast<uint64_t>(from); });
  out.vertical_sync = c.vertical_sync;
  out.schedule = c.schedule;
  out.recompute = c.recompute;
  out.cuts = c.cuts;
  for (size_t begin = 0; begin < c.schedule_text.size();) {
    const size_t end = std::min(c.schedule_text.find('\n', begin), c.schedule_text.size());
    out.rows.push_back(c.schedule_text.substr(begin, end - begin));
    begin = end + 1;
  }
  out.rule = rule_name(c.optim.rule);
  out.curve = curve_name(c.optim.curve);
  out.decay_all = c.optim.decay_all;
  each_real(out, c.optim, [](double& to, double from) { to = from; });
  return out;
}

Result<PlanConfig> from_file(const PlanFile& file) {
  PlanConfig out;
  Status status;
  each_number(file, out, [&status](uint64_t from, auto& to) {
    using Number = std::remove_reference_t<decltype(to)>;
    constexpr uint64_t kMost = sizeof(Number) == 4 ? uint64_t{1} << 30 : static_cast<uint64_t>(std::numeric_limits<Number>::max());
    if (from > kMost && status.ok()) status = Status(Code::data, cat("a number of the plan is ", from, ", expected at most ", kMost));
    to = static_cast<Number>(from);
  });
  WEFT_TRY(status);
  out.vertical_sync = file.vertical_sync;
  out.schedule = file.schedule;
  out.recompute = file.recompute;
  out.cuts = file.cuts;
  out.split = SplitBy::uniform;  // of a single stage
  for (const std::string& row : file.rows) out.schedule_text += row + "\n";
  WEFT_TRY_ASSIGN(out.optim.rule, rule_named(file.rule));
  WEFT_TRY_ASSIGN(out.optim.curve, curve_named(file.curve));
  out.optim.decay_all = file.decay_all;
  each_real(file, out.optim, [](double from, double& to) { to = from; });
  return out;
}

Result<std::shared_ptr<const Plan>> load(const std::shared_ptr<const Model>& model, const std::string& text) {
  WEFT_TRY_ASSIGN(const PlanFile file, parse_plan(text));
  if (file.model_hash != model->hash())
    return Status(Code::invalid, cat("is of another model: 'model_hash' is ", file.model_hash.hex(), ", expected ", model->hash().hex()));
  WEFT_TRY_ASSIGN(const PlanConfig config, from_file(file));
  WEFT_TRY_ASSIGN(auto plan, make_plan(model, config));
  if (const Digest made = hash_of(*plan); file.plan_hash && *file.plan_hash != made)
    return Status(Code::invalid, cat("makes the plan ", made.hex(), ", but 'plan_hash' is ", file.plan_hash->hex(),
                                     ": it was edited, or written by a weft that places "
                                     "differently (",
                                     file.weft, ", this is ", weft_version(), "); without 'plan_hash' it is taken as it stands"));
  return plan;
}

}  // namespace

weft_status weft_plan_save(const weft_plan* plan, const char* path, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(plan, "plan"));
    WEFT_TRY(require(path, "path"));
    WEFT_TRY_ASSIGN(const std::string text, print_plan(to_file(*plan->plan)));
    return replace_text(path, text);
  });
}

weft_status weft_plan_load(weft_model* model, const char* path, weft_plan** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    WEFT_TRY(require(path, "path"));
    WEFT_TRY(require(out, "out"));
    WEFT_TRY(model->model->finish());
    WEFT_TRY_ASSIGN(const std::string text, read_text(path, kMostBytes));
    auto plan = load(model->model, text);
    if (!plan.ok()) return plan.status().within(cat("plan '", path, "'"));
    *out = new weft_plan{plan.take(), nullptr};
    return {};
  });
}
