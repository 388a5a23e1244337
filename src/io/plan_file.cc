#include "io/plan_file.h"

#include <algorithm>

#include "base/text.h"
#include "io/names.h"
#include "io/strict_json.h"

namespace weft {

namespace {

constexpr uint64_t kFormat = 1;
// One for each rank and stage, and some for each group of parameters.
constexpr size_t kMostValues = size_t{1} << 18;

bool sound(const FileValues& values) {
  for (const auto& [name, value] : values)
    if (const auto* text = std::get_if<std::string>(&value); text && !valid_utf8(*text))
      return false;
  return true;
}

void add(const FileValues& values, Json& out) {
  for (const auto& [name, value] : values)
    std::visit([&, &key = name](const auto& v) { out[key] = v; }, value);
}

// All fields that have not been read.
Status read_values(const Fields& fields, const Json& object, const std::string& where,
                   FileValues& out) {
  for (const auto& [name, item] : object.members()) {
    if (fields.taken(name)) continue;
    if (item.is_boolean())
      out[name] = item.boolean();
    else if (item.is_number_unsigned())
      out[name] = item.whole();
    else if (item.is_number())
      out[name] = item.number();
    else if (item.is_string())
      out[name] = item.text();
    else
      return Status(Code::data,
                    cat(where, shown(name), " expects a number, a string, true or false, found ",
                        item.type_name()));
  }
  return {};
}

}  // namespace

const char* value_kind(const FileValue& value) {
  constexpr const char* kKinds[] = {"true or false", "a whole number from 0", "a number",
                                    "a string"};
  return kKinds[value.index()];
}

std::string value_text(const FileValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return shown(*text);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<uint64_t>(&value)) return cat(*whole);
  return cat(std::get<double>(value));
}

Result<std::string> print_plan(const PlanFile& plan) {
  bool good = valid_utf8(plan.weft) && sound(plan.settings) && sound(plan.optimizer) &&
              std::all_of(plan.groups.begin(), plan.groups.end(), sound);
  for (const auto* list : {&plan.rows, &plan.cuts})
    for (const std::string& text : *list) good = good && valid_utf8(text);
  if (!good) return Status(Code::invalid, "a text of the plan is not UTF-8");
  Json optimizer = Json::object();
  add(plan.optimizer, optimizer);
  Json body = Json::object({{"format", kFormat},
                            {"weft", plan.weft},
                            {"model_hash", plan.model_hash.hex()},
                            {"rows", plan.rows},
                            {"cuts", plan.cuts},
                            {"optimizer", std::move(optimizer)}});
  if (plan.plan_hash) body["plan_hash"] = plan.plan_hash->hex();
  if (!plan.groups.empty()) {
    Json groups = Json::array();
    for (const FileValues& values : plan.groups) {
      groups.push_back(Json::object());
      add(values, groups.items().back());
    }
    body["groups"] = std::move(groups);
  }
  add(plan.settings, body);
  return body.dump(1) + "\n";
}

Result<PlanFile> parse_plan(std::string_view text) {
  WEFT_TRY_ASSIGN(const Json root,
                  read_json(text, {.fractions = Fractions::allow, .values = kMostValues}));
  PlanFile out;
  Fields fields(root, "");
  WEFT_TRY(fields.format(kFormat));
  WEFT_TRY(fields.text("weft", out.weft));
  WEFT_TRY(fields.digest("model_hash", out.model_hash));
  if (fields.has("plan_hash")) WEFT_TRY(fields.digest("plan_hash", out.plan_hash.emplace()));
  WEFT_TRY_ASSIGN(const Json* rows, fields.list("rows"));
  WEFT_TRY(read_texts(*rows, "'rows'", out.rows));
  WEFT_TRY_ASSIGN(const Json* cuts, fields.list("cuts"));
  WEFT_TRY(read_texts(*cuts, "'cuts'", out.cuts));
  WEFT_TRY_ASSIGN(const Json* optimizer, fields.object("optimizer"));
  WEFT_TRY(read_values(Fields(*optimizer, ""), *optimizer, "'optimizer': ", out.optimizer));
  if (fields.has("groups")) {
    WEFT_TRY_ASSIGN(const Json* groups, fields.list("groups"));
    for (const Json& group : groups->items()) {
      if (!group.is_object())
        return Status(Code::data, cat("'groups' expects objects, found ", group.type_name()));
      WEFT_TRY(read_values(Fields(group, ""), group, "'groups': ", out.groups.emplace_back()));
    }
  }
  WEFT_TRY(read_values(fields, root, "", out.settings));
  return out;
}

}  // namespace weft
