#include "io/plan_file.h"

#include "base/text.h"
#include "io/names.h"
#include "io/strict_json.h"

namespace weft {

namespace {

constexpr uint64_t kFormat = 1;

// One list of fields serves both ways.
template <typename File, typename F>
void numbers(File& p, F&& field) {
  field("ranks", p.ranks);
  field("micro_batches", p.micro_batches);
  field("micro_batch_size", p.micro_batch_size);
  field("short_size", p.short_size);
  field("chunks", p.chunks);
  field("group", p.group);
  field("warm_up", p.warm_up);
  field("memory_limit", p.memory_limit);
  field("seed", p.seed);
  field("slack", p.slack);
  field("segment", p.segment);
}

template <typename File, typename F>
void reals(File& p, F&& field) {
  field("rate", p.rate);
  field("momentum", p.momentum);
  field("beta1", p.beta1);
  field("beta2", p.beta2);
  field("eps", p.eps);
  field("weight_decay", p.weight_decay);
  field("min_rate", p.min_rate);
  field("clip", p.clip);
}

Status read_optimizer(const Json& value, PlanFile& out) {
  Fields fields(value, "'optimizer': ");
  Status status;
  reals(out, [&](const char* key, double& to) {
    if (status.ok()) status = fields.real(key, to);
  });
  WEFT_TRY(status);
  WEFT_TRY(fields.text("rule", out.rule));
  WEFT_TRY(fields.text("curve", out.curve));
  WEFT_TRY(fields.flag("decay_all", out.decay_all));
  WEFT_TRY(fields.number("warmup", out.warmup));
  WEFT_TRY(fields.number("total", out.total));
  return fields.finish();
}

}  // namespace

Result<std::string> print_plan(const PlanFile& plan) {
  bool good = true;
  for (const std::string* text : {&plan.weft, &plan.schedule, &plan.recompute, &plan.rule, &plan.curve}) good = good && valid_utf8(*text);
  for (const auto* list : {&plan.rows, &plan.cuts})
    for (const std::string& text : *list) good = good && valid_utf8(text);
  if (!good) return Status(Code::invalid, "a text of the plan is not UTF-8");
  Json optimizer = {
      {"rule", plan.rule}, {"curve", plan.curve}, {"decay_all", plan.decay_all}, {"warmup", plan.warmup}, {"total", plan.total}};
  reals(plan, [&](const char* key, double value) { optimizer[key] = value; });
  Json body = {{"format", kFormat},         {"weft", plan.weft},           {"model_hash", plan.model_hash.hex()},
               {"schedule", plan.schedule}, {"recompute", plan.recompute}, {"vertical_sync", plan.vertical_sync},
               {"rows", plan.rows},         {"cuts", plan.cuts},           {"optimizer", optimizer}};
  if (plan.plan_hash) body["plan_hash"] = plan.plan_hash->hex();
  numbers(plan, [&](const char* key, uint64_t value) { body[key] = value; });
  return body.dump(1) + "\n";
}

Result<PlanFile> parse_plan(std::string_view text) {
  WEFT_TRY_ASSIGN(const Json root, read_json(text, Fractions::allow));
  PlanFile out;
  Fields fields(root, "");
  WEFT_TRY(fields.format(kFormat));
  WEFT_TRY(fields.text("weft", out.weft));
  WEFT_TRY(fields.digest("model_hash", out.model_hash));
  if (fields.has("plan_hash")) WEFT_TRY(fields.digest("plan_hash", out.plan_hash.emplace()));
  WEFT_TRY(fields.text("schedule", out.schedule));
  WEFT_TRY(fields.text("recompute", out.recompute));
  WEFT_TRY(fields.flag("vertical_sync", out.vertical_sync));
  Status status;
  numbers(out, [&](const char* key, uint64_t& to) {
    if (status.ok()) status = fields.number(key, to);
  });
  WEFT_TRY(status);
  WEFT_TRY_ASSIGN(const Json* rows, fields.list("rows"));
  WEFT_TRY(read_texts(*rows, "'rows'", out.rows));
  WEFT_TRY_ASSIGN(const Json* cuts, fields.list("cuts"));
  WEFT_TRY(read_texts(*cuts, "'cuts'", out.cuts));
  WEFT_TRY_ASSIGN(const Json* optimizer, fields.object("optimizer"));
  WEFT_TRY(read_optimizer(*optimizer, out));
  WEFT_TRY(fields.finish());
  return out;
}

}  // namespace weft
