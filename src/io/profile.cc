#include "io/profile.h"

#include <cmath>

#include "base/fault.h"
#include "base/text.h"
#include "io/checkpoint_names.h"
#include "io/file.h"
#include "io/names.h"
#include "io/strict_json.h"

namespace weft {

namespace {

constexpr uint64_t kFormat = 1;
constexpr size_t kMostBytes = size_t{1} << 28;
constexpr size_t kMostValues = size_t{1} << 20;  // eight for each node

Status read_node(const Json& value, size_t index, ProfileNode& out) {
  const std::string where = cat("node ", index, ": ");
  if (!value.is_object()) return fault(cat(where, "expected an object, found ", value.type_name()));
  Fields fields(value, where);
  WEFT_TRY(fields.text("name", out.name));
  WEFT_TRY(fields.real("forward", out.forward));
  WEFT_TRY(fields.real("input", out.input));
  WEFT_TRY(fields.real("weight", out.weight));
  // Profiles of weft 0.1 do not have it.
  if (fields.has("weight_together")) WEFT_TRY(fields.real("weight_together", out.weight_together));
  WEFT_TRY(fields.number("output_bytes", out.output_bytes));
  WEFT_TRY(fields.number("stash_bytes", out.stash_bytes));
  return fields.finish();
}

}  // namespace

Result<std::string> print_profile(const Profile& profile) {
  bool good = valid_utf8(profile.weft) && valid_utf8(profile.model) &&
              valid_utf8(profile.kernels) && valid_utf8(profile.precision) &&
              valid_utf8(profile.f32_nodes) && std::isfinite(profile.update) &&
              std::isfinite(profile.memory_speed) && std::isfinite(profile.overhead);
  for (const ProfileNode& n : profile.nodes)
    good = good && valid_utf8(n.name) && std::isfinite(n.forward) && std::isfinite(n.input) &&
           std::isfinite(n.weight) && std::isfinite(n.weight_together);
  if (!good)
    return Status(Code::invalid, "a text of the profile is not UTF-8, or a time is not finite");
  Json body = Json::object({{"format", kFormat},
                            {"weft", profile.weft},
                            {"model", profile.model},
                            {"kernels", profile.kernels},
                            {"micro_batch_size", profile.micro_batch_size},
                            {"seq_len", profile.seq_len},
                            {"threads", profile.threads},
                            {"precision", profile.precision},
                            {"f32_nodes", profile.f32_nodes},
                            {"update", profile.update},
                            {"memory_speed", profile.memory_speed},
                            {"overhead", profile.overhead},
                            {"nodes", Json::array()}});
  for (const ProfileNode& n : profile.nodes)
    body["nodes"].push_back(Json::object({{"name", n.name},
                                          {"forward", n.forward},
                                          {"input", n.input},
                                          {"weight", n.weight},
                                          {"weight_together", n.weight_together},
                                          {"output_bytes", n.output_bytes},
                                          {"stash_bytes", n.stash_bytes}}));
  return body.dump(1) + "\n";
}

Result<Profile> parse_profile(std::string_view text) {
  WEFT_TRY_ASSIGN(const Json root,
                  read_json(text, {.fractions = Fractions::allow, .values = kMostValues}));
  Profile out;
  Fields fields(root, "");
  WEFT_TRY(fields.format(kFormat));
  WEFT_TRY(fields.text("weft", out.weft));
  WEFT_TRY(fields.text("model", out.model));
  WEFT_TRY(fields.text("kernels", out.kernels));
  WEFT_TRY(fields.number("micro_batch_size", out.micro_batch_size));
  WEFT_TRY(fields.number("seq_len", out.seq_len));
  WEFT_TRY(fields.number("threads", out.threads));
  WEFT_TRY(fields.real("update", out.update));
  // Profiles of weft 0.1 do not have these.
  if (fields.has("memory_speed")) WEFT_TRY(fields.real("memory_speed", out.memory_speed));
  if (fields.has("overhead")) WEFT_TRY(fields.real("overhead", out.overhead));
  if (fields.has("precision")) WEFT_TRY(fields.text("precision", out.precision));
  if (fields.has("f32_nodes")) WEFT_TRY(fields.text("f32_nodes", out.f32_nodes));
  WEFT_TRY_ASSIGN(const Json* nodes, fields.list("nodes"));
  for (const Json& value : nodes->items()) {
    ProfileNode& node = out.nodes.emplace_back();
    WEFT_TRY(read_node(value, out.nodes.size() - 1, node));
  }
  WEFT_TRY(fields.finish());
  return out;
}

Result<Profile> read_profile(const std::string& path) {
  WEFT_TRY_ASSIGN(const std::string text, read_text(path, kMostBytes));
  return parse_profile(text).within(cat("profile '", path, "'"));
}

Status write_profile(const std::string& path, const Profile& profile) {
  WEFT_TRY_ASSIGN(const std::string text, print_profile(profile));
  return save_text(path, text);
}

}  // namespace weft
