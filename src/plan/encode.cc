#include "plan/encode.h"

#include "base/bytes.h"
#include "base/text.h"
#include "plan/settings.h"

namespace weft {

namespace {

constexpr uint32_t kFormat = 11;

template <typename T>
void write(ByteWriter& out, const T& value) {
  if constexpr (std::is_same_v<T, std::string>)
    out.text(value);
  else
    out.number(value);
}

template <typename T>
void read(ByteReader& in, T& value) {
  if constexpr (std::is_same_v<T, std::string>)
    value = in.text();
  else
    value = in.number<T>();
}

}  // namespace

std::vector<std::byte> encode_config(const PlanConfig& config) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  const auto one = [&out](const char*, const auto& value) { write(out, value); };
  out.number(kFormat);
  each_plan_setting(config, one);
  each_optim_setting(config.optim, one);
  out.number(config.split)
      .text(config.schedule_text)
      .number(static_cast<uint64_t>(config.cuts.size()));
  for (const std::string& cut : config.cuts) out.text(cut);
  out.number(static_cast<uint64_t>(config.groups.size()));
  for (const ParamGroup& group : config.groups) each_group_setting(group, one);
  return bytes;
}

Result<PlanConfig> decode_config(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  if (const uint32_t format = in.number<uint32_t>(); format != kFormat)
    return Status(Code::protocol,
                  cat("plan of format ", format, ", this weft reads format ", kFormat));
  PlanConfig config;
  const auto one = [&in](const char*, auto& value) { read(in, value); };
  each_plan_setting(config, one);
  each_optim_setting(config.optim, one);
  config.split = in.number<SplitBy>();
  config.schedule_text = in.text();
  config.cuts.resize(in.count(sizeof(uint64_t)));
  for (std::string& cut : config.cuts) cut = in.text();
  config.groups.resize(in.count(sizeof(uint64_t)));
  for (ParamGroup& group : config.groups) each_group_setting(group, one);
  if (!in.at_end())
    return Status(Code::protocol, in.ok() ? "bytes follow the plan" : "the plan is cut short");
  if (config.split != SplitBy::uniform && config.split != SplitBy::cost)
    return Status(Code::protocol, "the plan has an unknown split");
  return config;
}

}  // namespace weft
