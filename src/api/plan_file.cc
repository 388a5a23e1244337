// Saves plans and loads them unchanged.
#include "io/plan_file.h"

#include <cmath>
#include <concepts>
#include <limits>

#include "api/handles.h"
#include "io/checkpoint_names.h"
#include "io/file.h"
#include "io/names.h"
#include "plan/settings.h"
#include "tune/make_plan.h"

using namespace weft;
using namespace weft::api;

namespace {

constexpr size_t kMostFileBytes = size_t{1} << 30;

Digest hash_of(const Plan& plan) {
  Hasher hasher;
  for (const Digest& d :
       {plan.hash.model, plan.hash.partition, plan.hash.schedule, plan.hash.settings})
    hasher.number(d.high).number(d.low);
  return hasher.finish();
}

// A setting as JSON.
template <typename T>
FileValue to_value(const T& value) {
  if constexpr (std::is_same_v<T, Rule>)
    return std::string(rule_name(value));
  else if constexpr (std::is_same_v<T, RateCurve>)
    return std::string(curve_name(value));
  else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
    return static_cast<uint64_t>(value);
  else
    return value;
}

PlanFile to_file(const Plan& plan) {
  const PlanConfig& c = plan.config;
  PlanFile out;
  out.weft = weft_version();
  out.model_hash = plan.hash.model;
  out.plan_hash = hash_of(plan);
  out.cuts = c.cuts;
  for (std::string_view rest = c.schedule_text; !rest.empty();)
    out.rows.emplace_back(take_item(rest, '\n'));
  each_plan_setting(
      c, [&out](const char* name, const auto& value) { out.settings[name] = to_value(value); });
  each_optim_setting(c.optim, [&out](const char* name, const auto& value) {
    out.optimizer[name] = to_value(value);
  });
  for (const ParamGroup& group : c.groups)
    each_group_setting(group,
                       [&to = out.groups.emplace_back()](const char* name, const auto& value) {
                         to[name] = to_value(value);
                       });
  return out;
}

// Reads the settings of a file one by one; each must exist, and there may be no others.
class ValueReader {
 public:
  ValueReader(FileValues values, const char* where) : values_(std::move(values)), where_(where) {}

  template <typename T>
  void operator()(const char* name, T& to) {
    if (!status_.ok()) return;
    const auto at = values_.find(name);
    if (at == values_.end())
      status_ = Status(Code::data, cat(where_, "has no '", name, "'"));
    else
      status_ = take(name, at->second, to);
    if (status_.ok()) values_.erase(at);
  }
  Status finish() const {
    if (!status_.ok() || values_.empty()) return status_;
    return Status(Code::data, cat(where_, "unknown key ", shown(values_.begin()->first)));
  }

 private:
  Status fault(const char* name, auto... what) const {
    return Status(Code::data, cat(where_, "'", name, "' ", what...));
  }

  Status take(const char* name, const FileValue& from, bool& to) const {
    return take_as(name, from, to);
  }
  Status take(const char* name, const FileValue& from, std::string& to) const {
    return take_as(name, from, to);
  }
  Status take(const char* name, const FileValue& from, double& to) const {
    if (const auto* whole = std::get_if<uint64_t>(&from)) {
      to = static_cast<double>(*whole);
      return {};
    }
    WEFT_TRY(take_as(name, from, to));
    return std::isfinite(to) && to >= 0
               ? Status()
               : fault(name, "is ", to, ", expected a finite number from 0");
  }
  Status take(const char* name, const FileValue& from, Rule& to) const {
    std::string text;
    WEFT_TRY(take_as(name, from, text));
    WEFT_TRY_ASSIGN(to, rule_named(text));
    return {};
  }
  Status take(const char* name, const FileValue& from, RateCurve& to) const {
    std::string text;
    WEFT_TRY(take_as(name, from, text));
    WEFT_TRY_ASSIGN(to, curve_named(text));
    return {};
  }
  template <std::integral T>
  Status take(const char* name, const FileValue& from, T& to) const {
    uint64_t number = 0;
    WEFT_TRY(take_as(name, from, number));
    constexpr uint64_t kMost =
        sizeof(T) == 4 ? uint64_t{1} << 30 : static_cast<uint64_t>(std::numeric_limits<T>::max());
    if (number > kMost) return fault(name, "is ", number, ", expected at most ", kMost);
    to = static_cast<T>(number);
    return {};
  }
  template <typename T>
  Status take_as(const char* name, const FileValue& from, T& to) const {
    const auto* value = std::get_if<T>(&from);
    if (!value) return fault(name, "expects ", value_kind(T()), ", found ", value_text(from));
    to = *value;
    return {};
  }

  FileValues values_;
  const char* where_;
  Status status_;
};

Result<PlanConfig> from_file(const PlanFile& file) {
  PlanConfig out;
  ValueReader settings(file.settings, ""), optimizer(file.optimizer, "'optimizer': ");
  each_plan_setting(out, settings);
  WEFT_TRY(settings.finish());
  each_optim_setting(out.optim, optimizer);
  WEFT_TRY(optimizer.finish());
  for (const FileValues& values : file.groups) {
    ValueReader group(values, "'groups': ");
    each_group_setting(out.groups.emplace_back(), group);
    WEFT_TRY(group.finish());
  }
  out.cuts = file.cuts;
  out.split = SplitBy::uniform;  // for a plan with one stage
  for (const std::string& row : file.rows) out.schedule_text += row + "\n";
  return out;
}

Result<std::shared_ptr<const Plan>> load(const std::shared_ptr<const Model>& model,
                                         const std::string& text) {
  WEFT_TRY_ASSIGN(const PlanFile file, parse_plan(text));
  if (file.model_hash != model->hash())
    return Status(
        Code::invalid,
        cat("is of another model: 'model_hash' is ", file.model_hash.hex(), ", expected ",
            model->hash().hex(),
            "; another length of sequences or dropout, adapters, and samples that share windows "
            "make another model"));
  WEFT_TRY_ASSIGN(const PlanConfig config, from_file(file));
  WEFT_TRY_ASSIGN(auto plan, make_plan(model, config));
  if (const Digest made = hash_of(*plan); file.plan_hash && *file.plan_hash != made)
    return Status(Code::invalid,
                  cat("makes the plan ", made.hex(), ", but 'plan_hash' is ", file.plan_hash->hex(),
                      ": it was edited, or written by a weft that places "
                      "differently (",
                      file.weft, ", this is ", weft_version(),
                      "); without 'plan_hash' it is loaded unchecked"));
  return plan;
}

}  // namespace

weft_status weft_plan_save(const weft_plan* plan, const char* path, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(plan, "plan"));
    WEFT_TRY(require(path, "path"));
    WEFT_TRY_ASSIGN(const std::string text, print_plan(to_file(*plan->plan)));
    return save_text(path, text);
  });
}

weft_status weft_plan_load(weft_model* model, const char* path, weft_plan** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    WEFT_TRY(require(path, "path"));
    WEFT_TRY(require(out, "out"));
    WEFT_TRY(model->model->check());
    WEFT_TRY_ASSIGN(const std::string text, read_text(path, kMostFileBytes));
    WEFT_TRY_ASSIGN(auto plan, load(model->model, text).within(cat("plan '", path, "'")));
    *out = new weft_plan(std::move(plan), nullptr);
    model->model->freeze();
    return {};
  });
}
