#include "api/handles.h"
#include "base/most_threads.h"
#include "base/nanoseconds.h"
#include "runtime/measure.h"

using namespace weft;
using namespace weft::api;

namespace {

Status check_count(const char* field, uint32_t value, uint32_t most) {
  if (value >= 1 && value <= most) return {};
  return Status(Code::invalid,
                cat("weft_profile_config.", field, " is ", value, ", expected 1 to ", most));
}

}  // namespace

weft_status weft_profile_new(weft_model* model, const weft_profile_config* config,
                             weft_profile** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    WEFT_TRY(require(out, "out"));
    weft_profile_config c;
    WEFT_TRY(read_config(config, "weft_profile_config", c));
    WEFT_TRY(check_count("micro_batch_size", c.micro_batch_size, 1u << 30));
    WEFT_TRY(check_count("repeats", c.repeats, 1u << 30));
    WEFT_TRY(check_count("threads", c.threads, kMostThreads));
    WEFT_TRY(model->model->check());
    MeasureOptions options;
    options.micro_batch_size = c.micro_batch_size;
    options.repeats = static_cast<int>(c.repeats);
    options.threads = static_cast<int>(c.threads);
    WEFT_TRY(require(c.precision, "weft_profile_config.precision"));
    WEFT_TRY(require(c.f32_nodes, "weft_profile_config.f32_nodes"));
    options.precision = c.precision;
    options.f32_nodes = c.f32_nodes;
    WEFT_TRY_ASSIGN(const Measured measured, measure(model->model, options));
    auto made = std::make_unique<weft_profile>();
    made->profile = profile_of(measured, *model->model, options);
    made->profile.weft = weft_version();
    made->profile.model = model->preset;
    made->profile.seq_len = static_cast<uint64_t>(model->seq_len);
    made->profile.kernels = kernels_text();
    *out = made.release();
    model->model->freeze();
    return {};
  });
}

weft_status weft_profile_load(const char* path, weft_profile** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(path, "path"));
    WEFT_TRY(require(out, "out"));
    WEFT_TRY_ASSIGN(Profile profile, read_profile(path));
    *out = new weft_profile{std::move(profile)};
    return {};
  });
}

weft_status weft_profile_save(const weft_profile* profile, const char* path, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(profile, "profile"));
    WEFT_TRY(require(path, "path"));
    return write_profile(path, profile->profile);
  });
}

uint32_t weft_profile_nodes(const weft_profile* profile) {
  return profile ? static_cast<uint32_t>(profile->profile.nodes.size()) : 0;
}

weft_status weft_profile_node(const weft_profile* profile, uint32_t index, weft_node_times* times) {
  return guard(nullptr, [&]() -> Status {
    WEFT_TRY(require(profile, "profile"));
    WEFT_TRY(require(times, "times"));
    WEFT_TRY(check_result(*times));
    if (index >= profile->profile.nodes.size())
      return Status(Code::not_found, cat("there is no node ", index));
    const ProfileNode& node = profile->profile.nodes[index];
    weft_node_times full = {};
    full.name = node.name.c_str();
    full.forward_ns = nanoseconds(node.forward);
    full.input_ns = nanoseconds(node.input);
    full.weight_ns = nanoseconds(node.weight);
    full.output_bytes = node.output_bytes;
    full.stash_bytes = node.stash_bytes;
    fill_result(times, full);
    return {};
  });
}

void weft_profile_free(weft_profile* profile) { delete profile; }
