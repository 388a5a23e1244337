// Plans that are saved and used again as they are.
#include "io/plan_file.h"

#include "api/handles.h"
#include "io/file.h"

using namespace weft;
using namespace weft::api;

namespace {

constexpr size_t kMostBytes = size_t{1} << 30;
constexpr const char* kRules[] = {"adamw", "adam", "sgd"};
constexpr Rule kRuleOf[] = {Rule::adamw, Rule::adam, Rule::sgd};
constexpr const char* kCurves[] = {"constant", "cosine"};
constexpr RateCurve kCurveOf[] = {RateCurve::constant, RateCurve::cosine};

// Settings of the two sides in one list.
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
  for (const Digest& d : {plan.hash.model, plan.hash.partition, plan.hash.schedule, plan.hash.settings}) hasher.number(d.high).number(d.low);
  return hasher.finish();
}

PlanFile to_file(const Plan& plan) {
  const PlanConfig& c = plan.config;
  PlanFile out;
  out.weft = weft_version();
  out.model_hash = plan.hash.model;
  out.plan_hash = hash_of(plan);
  out.ranks = static_cast<uint64_t>(c.ranks);
  out.micro_batches = static_cast<uint64_t>(c.micro_batches);
  out.micro_batch_size = static_cast<uint64_t>(c.micro_batch_size);
  out.short_size = static_cast<uint64_t>(c.short_size);
  out.chunks = static_cast<uint64_t>(c.chunks);
  out.group = static_cast<uint64_t>(c.group);
  out.warm_up = static_cast<uint64_t>(c.warm_up);
  out.memory_limit = static_cast<uint64_t>(c.memory_limit);
  out.seed = c.seed;
  out.slack = static_cast<uint64_t>(c.slack);
  out.segment = static_cast<uint64_t>(c.segment);
  out.vertical_sync = c.vertical_sync;
  out.schedule = c.schedule;
  out.recompute = c.recompute;
  out.cuts = c.cuts;
  for (size_t begin = 0; begin < c.schedule_text.size();) {
    const size_t end = std::min(c.schedule_text.find('\n', begin), c.schedule_text.size());
    out.rows.push_back(c.schedule_text.substr(begin, end - begin));
    begin = end + 1;
  }
  for (size_t i = 0; i < std::size(kRules); ++i)
    if (kRuleOf[i] == c.optim.rule) out.rule = kRules[i];
  for (size_t i = 0; i < std::size(kCurves); ++i)
    if (kCurveOf[i] == c.optim.curve) out.curve = kCurves[i];
  out.decay_all = c.optim.decay_all;
  each_real(out, c.optim, [](double& to, double from) { to = from; });
  out.warmup = c.optim.warmup;
  out.total = c.optim.total;
  return out;
}

Result<PlanConfig> from_file(const PlanFile& file) {
  PlanConfig out;
  constexpr uint64_t kMost = uint64_t{1} << 30;
  for (uint64_t n : {file.ranks, file.micro_batches, file.chunks, file.group, file.warm_up, file.slack, file.segment})
    if (n > kMost) return Status(Code::data, cat("a number of the plan is ", n, ", expected at most ", kMost));
  for (uint64_t n : {file.micro_batch_size, file.short_size, file.memory_limit})
    if (n > INT64_MAX) return Status(Code::data, cat("a number of the plan is ", n, ", expected 63 bits"));
  out.ranks = static_cast<int32_t>(file.ranks);
  out.micro_batches = static_cast<int32_t>(file.micro_batches);
  out.micro_batch_size = static_cast<int64_t>(file.micro_batch_size);
  out.short_size = static_cast<int64_t>(file.short_size);
  out.chunks = static_cast<int32_t>(file.chunks);
  out.group = static_cast<int32_t>(file.group);
  out.warm_up = static_cast<int32_t>(file.warm_up);
  out.memory_limit = static_cast<int64_t>(file.memory_limit);
  out.seed = file.seed;
  out.slack = static_cast<int32_t>(file.slack);
  out.segment = static_cast<int32_t>(file.segment);
  out.vertical_sync = file.vertical_sync;
  out.schedule = file.schedule;
  out.recompute = file.recompute;
  out.cuts = file.cuts;
  out.split = SplitBy::uniform;   // of a single stage
  for (const std::string& row : file.rows) out.schedule_text += row + "\n";
  bool rule = false, curve = false;
  for (size_t i = 0; i < std::size(kRules); ++i)
    if (file.rule == kRules[i]) out.optim.rule = kRuleOf[i], rule = true;
  for (size_t i = 0; i < std::size(kCurves); ++i)
    if (file.curve == kCurves[i]) out.optim.curve = kCurveOf[i], curve = true;
  if (!rule) return Status(Code::data, cat("'rule' is '", file.rule, "', expected adamw, adam or sgd"));
  if (!curve) return Status(Code::data, cat("'curve' is '", file.curve, "', expected constant or cosine"));
  out.optim.decay_all = file.decay_all;
  each_real(file, out.optim, [](double from, double& to) { to = from; });
  out.optim.warmup = file.warmup;
  out.optim.total = file.total;
  return out;
}

Result<std::shared_ptr<const Plan>> load(const std::shared_ptr<const Model>& model, const std::string& text) {
  WEFT_TRY_ASSIGN(const PlanFile file, parse_plan(text));
  if (file.model_hash != model->hash()) return Status(Code::invalid, "is of another model");
  WEFT_TRY_ASSIGN(const PlanConfig config, from_file(file));
  return make_plan(model, config);
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
