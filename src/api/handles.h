// The types of the public handles, and what functions of the C API share. No exception leaves
// guard().
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "base/text.h"
#include "graph/model.h"
#include "io/chat_source.h"
#include "io/cluster.h"
#include "io/profile.h"
#include "kernels/fpenv.h"
#include "plan/plan.h"
#include "runtime/mesh.h"
#include "runtime/run.h"
#include "text/tokenizer.h"
#include "weft.h"

struct weft_tensor {
  std::atomic<uint32_t> owners{1};
  weft::Desc desc;
  void* data = nullptr;
  bool lent = false;  // an output of a run: its address changes at each poll, and is null when the
                      // run is gone
  weft_release_cb release = nullptr;
  void* payload = nullptr;
  std::unique_ptr<std::byte[]> own;
};

struct weft_model {
  std::shared_ptr<weft::Model> model = std::make_shared<weft::Model>();
  std::vector<const weft::Op*> user_ops;
  std::string preset;   // the name of its preset, if it was made from one
  int64_t seq_len = 0;  // if the preset has a sequence length
};

struct weft_tokenizer {
  std::shared_ptr<const weft::Tokenizer> tokenizer;
  weft::Result<weft::ChatSource> chat;      // or why there is none
  weft::Result<std::vector<int32_t>> ends;  // tokens that end texts of the model beside it
};

struct weft_profile {
  weft::Profile profile;
};

struct weft_cluster {
  std::shared_ptr<const weft::Cluster> cluster;
};

struct weft_plan {
  weft_plan(std::shared_ptr<const weft::Plan> of, std::shared_ptr<const weft::Cluster> for_cluster);

  std::shared_ptr<const weft::Plan> plan;
  std::shared_ptr<const weft::Cluster> cluster;  // may be null
  // The fields to which weft_plan_settings points.
  std::vector<weft_axis> axes;
  weft_optimizer optimizer;
  std::vector<weft_parameter_group> groups;
  std::vector<const char*> cuts;
};

struct weft_mesh {
  std::unique_ptr<weft::Mesh> mesh;
  std::mutex mutex;             // runs
  std::vector<weft_run*> runs;  // that use it and are not freed: at most one that did not fail
};

namespace weft::api {

weft_status report(const Status& status, weft_error* err);

// Runs `body` (returning Status) and converts its result or exception to a status and a text. No
// exception leaves it, and its result does not depend on the floating-point mode of the caller.
template <typename F>
weft_status guard(weft_error* err, F&& body) noexcept {
  const ComputeScope scope;
  return report(attempt(body), err);
}

Status check_reserved(const char* name, const char* field, uint32_t value);

constexpr int64_t kMillisecond = 1000000;  // in nanoseconds, the unit of the C API

// The defaults of a configuration; its size is 0.
template <typename T>
T defaults();
// The structs with an _init function.
#define WEFT_CONFIG_MAP(X) \
  X(weft_adapter_config)   \
  X(weft_chat_config)      \
  X(weft_data_config)      \
  X(weft_decoder_config)   \
  X(weft_export_config)    \
  X(weft_mesh_config)      \
  X(weft_node_config)      \
  X(weft_op)               \
  X(weft_optimizer)        \
  X(weft_parameter_group)  \
  X(weft_plan_config)      \
  X(weft_profile_config)   \
  X(weft_run_config)       \
  X(weft_save_config)      \
  X(weft_sequence_config)  \
  X(weft_tokenizer_config)
#define WEFT_DEFAULTS_(type) \
  template <>                \
  type defaults();
WEFT_CONFIG_MAP(WEFT_DEFAULTS_)

// Copies a configuration. It may be of an older version (shorter: the other fields have their
// defaults) or of a newer one (longer: the other bytes must be 0). NULL: the defaults.
template <typename T>
Status read_config(const T* in, const char* name, T& out) {
  out = defaults<T>();
  if (!in) return {};
  const size_t size = in->size;
  // Most structs are larger than a pointer, whose size is a common error in the call of _init. No
  // struct has a size that is not a multiple of its alignment.
  if (size < std::min(sizeof(T), 2 * sizeof(void*)) || size > 65536 || size % alignof(T) != 0)
    return Status(Code::invalid, cat(name, ".size is ", size, ", expected ", sizeof(T), "; call ",
                                     name, "_init first"));
  const auto* bytes = reinterpret_cast<const unsigned char*>(in);
  for (size_t i = sizeof(T); i < size; ++i)
    if (bytes[i])
      return Status(Code::invalid, cat(name, " was made for a newer weft: byte ", i, " is not 0"));
  std::memcpy(&out, in, size < sizeof(T) ? size : sizeof(T));
  out.size = sizeof(T);
  // Reserved fields of the structs must be 0, so that a later version can use them.
  if constexpr (requires { out.reserved; })
    WEFT_TRY(check_reserved(name, "reserved", out.reserved));
  return {};
}

// The structs that the library fills, each with the last field of its first version. A new field
// does not change the row, so programs built before continue to work.
#define WEFT_FILLED_MAP(X)            \
  X(weft_preset_info, text)           \
  X(weft_item, desc)                  \
  X(weft_plan_config, optimizer)      \
  X(weft_node_times, stash_bytes)     \
  X(weft_schedule_info, forward_only) \
  X(weft_plan_info, group)            \
  X(weft_prediction_info, bytes)      \
  X(weft_rank_prediction, peak_bytes) \
  X(weft_link_prediction, bytes)      \
  X(weft_candidate, bytes)            \
  X(weft_checkpoint_info, warning)    \
  X(weft_event, text)                 \
  X(weft_token, reserved)             \
  X(weft_failure, reported_ns)
template <typename T>
struct FirstVersion;
#define WEFT_FIRST_VERSION_(type, last)                                        \
  template <>                                                                  \
  struct FirstVersion<type> {                                                  \
    static constexpr const char* kName = #type;                                \
    static constexpr size_t kSize = offsetof(type, last) + sizeof(type::last); \
  };
WEFT_FILLED_MAP(WEFT_FIRST_VERSION_)

Status check_size(uint32_t size, size_t first, const char* name);
// Whether it has at least the fields of its first version.
template <typename T>
Status check_result(const T& out) {
  return check_size(out.size, FirstVersion<T>::kSize, FirstVersion<T>::kName);
}
// Fills as much of *out as its caller knows. The caller may have been built with an older (shorter)
// or newer (longer) header.
template <typename T>
void fill_result(T* out, T full) {
  full.size = out->size;
  std::memcpy(static_cast<void*>(out), &full, std::min<size_t>(full.size, sizeof full));
}

Status require(const void* pointer, const char* name);

// weft_model_add_node.
Status add_node(weft_model* model, const weft_node_config* config, weft_value* out);

// Writes at most `size` bytes with a NUL; returns the bytes that the whole text needs with its NUL.
size_t print_to(std::string_view text, char* buffer, size_t size);

// The kernels of matrix products, in both precisions.
std::string kernels_text();

// Converts descriptions of tensors.
Result<Desc> to_desc(const weft_desc* desc);
weft_desc from_desc(const Desc& desc);

// The C API counts nodes and parameters from 1; 0 is none. Numbers are converted unsigned, because
// an invalid one may be any number.
inline NodeId node_of(weft_value value) { return static_cast<NodeId>(value.id - 1); }
inline ParamId param_of(weft_param param) { return static_cast<ParamId>(param.id - 1); }
inline weft_value to_value(NodeId id) { return {static_cast<uint32_t>(id) + 1}; }
inline weft_param to_param(ParamId id) { return {static_cast<uint32_t>(id) + 1}; }

// A tensor with its own memory, all zeros.
Result<std::unique_ptr<weft_tensor>> new_tensor(const Desc& desc);

}  // namespace weft::api
