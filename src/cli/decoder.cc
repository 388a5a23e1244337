#include "cli/decoder.h"

#include <algorithm>

namespace weft::cli {

namespace {

// Rows of a chunk of a prompt: as many as the kernels multiply at their full speed, and not so many
// that the next tokens of other texts wait long.
constexpr uint32_t kChunk = 64;
// A group of fewer texts does not get a micro-batch of its own: a step with few rows takes the time
// of reading the weights. An estimate.
constexpr uint32_t kGroupTexts = 24;
// With one replica, the next tokens of a group are computed while other groups are at other ranks;
// at the end of a step, all ranks wait. Rank 0 has memory for the logits of a step.
constexpr uint32_t kRounds = 4;

}  // namespace

Outcome make_decoder(const DecoderOptions& options, Built& built) {
  const uint32_t texts = (options.texts + options.data - 1) / options.data,
                 groups = std::clamp(texts / kGroupTexts, 1u, options.stages),
                 few = (texts + groups - 1) / groups;
  weft_error err = sized<weft_error>();
  weft_decoder_config config = defaults(weft_decoder_config_init);
  config.sequences = texts;
  config.context = options.context;
  if (options.bf16_cache) config.flags = WEFT_NODE_BF16_CACHE;
  const std::string text = built.info.text;
  CLI_CALL(weft_model_decoder(text.c_str(), &config, Out(built.model), &built.info, &err));
  PlanOptions plan;
  plan.data = plan.gradient_groups = options.data;
  plan.shard_ranks = options.tensor;
  plan.tensor = options.tensor;
  plan.ranks = options.data * options.stages * options.tensor;
  plan.step_kinds = WEFT_STEPS_FORWARD | WEFT_STEPS_FILL;
  plan.micro_batches = options.data > 1
                           ? options.data * groups
                           : std::max(options.stages, groups > 1 ? kRounds * groups : 1);
  plan.micro_batch_size = (few / kChunk + 1) * kChunk;
  plan.precision = options.precision;
  plan.f32_nodes = options.f32_nodes;
  OptimizerOptions optimizer;
  optimizer.rule = "sgd";  // it has no state
  PlanRequest request;
  CLI_TRY(request.fill(plan, optimizer, 1));
  request.config.short_size = few;
  CLI_CALL(weft_plan_new(built.model.get(), &request.config, Out(built.plan), &err));
  return {};
}

}  // namespace weft::cli
