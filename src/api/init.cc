// The defaults of the configurations. Those of a plan and its optimizer are in plan/settings.def.
#include "api/handles.h"
#include "graph/adapters.h"
#include "io/export.h"
#include "runtime/measure.h"

using namespace weft;
using namespace weft::api;

namespace weft::api {

template <>
weft_optimizer defaults() {
  weft_optimizer out = {};
#define OPTIMIZER_SETTING(field, value) out.field = value;
#include "plan/settings.def"
  return out;
}

template <>
weft_plan_config defaults() {
  weft_plan_config out = {};
#define PLAN_SETTING(field, value) out.field = value;
#include "plan/settings.def"
  out.split = WEFT_SPLIT_COST;
  return out;
}

template <>
weft_parameter_group defaults() {
  weft_parameter_group out = {};
#define GROUP_SETTING(field, value) out.field = value;
#include "plan/settings.def"
  return out;
}

template <>
weft_node_config defaults() {
  return {};
}

template <>
weft_op defaults() {
  weft_op out = {};
  out.version = 1;
  out.backward_reads = out.backward_params_reads = WEFT_OP_READS_ALL;
  return out;
}

template <>
weft_profile_config defaults() {
  const MeasureOptions options;
  weft_profile_config out = {};
  out.precision = "f32";
  out.f32_nodes = "";
  out.micro_batch_size = defaults<weft_plan_config>().micro_batch_size;
  out.repeats = static_cast<uint32_t>(options.repeats);
  out.threads = static_cast<uint32_t>(options.threads);
  return out;
}

template <>
weft_decoder_config defaults() {
  weft_decoder_config out = {};
  out.sequences = 1;
  return out;
}

template <>
weft_adapter_config defaults() {
  const AdapterOptions options;
  weft_adapter_config out = {};
  out.rank = static_cast<uint32_t>(options.rank);
  out.alpha = options.alpha;
  out.dropout = options.dropout;
  return out;
}

template <>
weft_sequence_config defaults() {
  weft_sequence_config out = {};
  out.temperature = out.top_p = out.repetition_penalty = 1;
  return out;
}

template <>
weft_chat_config defaults() {
  weft_chat_config out = {};
  out.add_generation_prompt = 1;
  return out;
}

template <>
weft_tokenizer_config defaults() {
  weft_tokenizer_config out = {};
  out.vocabulary = 32768;
  out.min_count = 2;
  return out;
}

template <>
weft_mesh_config defaults() {
  const MeshOptions options;
  weft_mesh_config out = {};
  out.rank = WEFT_ANY_RANK;
  out.join_timeout_ns = options.join_timeout_ms * kMillisecond;
  out.peer_timeout_ns = options.peer_timeout_ms * kMillisecond;
  return out;
}

template <>
weft_data_config defaults() {
  weft_data_config out = {};
  out.end_token = -1;
  return out;
}

template <>
weft_run_config defaults() {
  weft_run_config out = {};
  out.log_level = WEFT_LOG_INFO;
  return out;
}

template <>
weft_save_config defaults() {
  return {};
}

template <>
weft_export_config defaults() {
  weft_export_config out = {};
  out.dtype = "f32";
  out.shard_bytes = ExportOptions().shard_bytes;
  return out;
}

}  // namespace weft::api

namespace {

template <typename T>
void init(T* to, size_t size) {
  if (!to || size < sizeof to->size) return;
  T full = defaults<T>();
  full.size = static_cast<uint32_t>(size);
  std::memset(static_cast<void*>(to), 0, size);
  std::memcpy(static_cast<void*>(to), &full, std::min(size, sizeof full));
}

}  // namespace

#define WEFT_INIT_(type) \
  void type##_init(type* to, size_t size) { init(to, size); }
WEFT_CONFIG_MAP(WEFT_INIT_)
