#include "plan/encode.h"

#include "base/bytes.h"
#include "base/text.h"

namespace weft {

namespace {

constexpr uint32_t kFormat = 3;

// One list of fields serves both ways.
template <typename Optim, typename F>
void optim_fields(Optim& o, F&& field) {
  field(o.rule);
  field(o.curve);
  field(o.decay_all);
  field(o.rate);
  field(o.momentum);
  field(o.beta1);
  field(o.beta2);
  field(o.eps);
  field(o.weight_decay);
  field(o.warmup);
  field(o.total);
  field(o.min_rate);
  field(o.clip);
}

template <typename Config, typename F>
void number_fields(Config& c, F&& field) {
  field(c.ranks);
  field(c.micro_batches);
  field(c.micro_batch_size);
  field(c.short_size);
  field(c.split);
  field(c.chunks);
  field(c.group);
  field(c.warm_up);
  field(c.slack);
  field(c.memory_limit);
  field(c.seed);
  field(c.segment);
  field(c.vertical_sync);
  optim_fields(c.optim, field);
}

}  // namespace

std::vector<std::byte> encode_config(const PlanConfig& config) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  out.number(kFormat);
  number_fields(config, [&out](auto value) { out.number(value); });
  out.text(config.schedule).text(config.schedule_text).text(config.recompute).number(static_cast<uint64_t>(config.cuts.size()));
  for (const std::string& cut : config.cuts) out.text(cut);
  return bytes;
}

Result<PlanConfig> decode_config(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  if (const uint32_t format = in.number<uint32_t>(); format != kFormat)
    return Status(Code::protocol, cat("plan of format ", format, ", this weft reads format ", kFormat));
  PlanConfig config;
  number_fields(config, [&in](auto& value) { value = in.number<std::remove_reference_t<decltype(value)>>(); });
  config.schedule = in.text();
  config.schedule_text = in.text();
  config.recompute = in.text();
  config.cuts.resize(in.count(sizeof(uint64_t)));
  for (std::string& cut : config.cuts) cut = in.text();
  if (!in.at_end()) return Status(Code::protocol, in.ok() ? "bytes follow the plan" : "the plan is cut short");
  if (config.split != SplitBy::uniform && config.split != SplitBy::cost) return Status(Code::protocol, "the plan has an unknown split");
  return config;
}

}  // namespace weft
