#include "sim/predict.h"
#include "api/plan_config.h"
#include "base/nanoseconds.h"
#include "io/checkpoint_names.h"
#include "tune/compare.h"

using namespace weft;
using namespace weft::api;

struct weft_prediction {
  std::shared_ptr<const Plan> plan;
  Prediction inner;
};

struct weft_comparison {
  Comparison inner;
};

namespace {

// Checks the arguments, and fills *out with row `index` of `n`.
template <typename T, typename F>
weft_status answer(const void* handle, T* out, size_t index, size_t n, F&& make) {
  return guard(nullptr, [&]() -> Status {
    WEFT_TRY(require(handle, "handle"));
    WEFT_TRY(require(out, "out"));
    WEFT_TRY(check_result(*out));
    if (index >= n) return Status(Code::not_found, cat("there are ", n));
    fill_result(out, make());
    return {};
  });
}

}  // namespace

weft_status weft_cluster_load(const char* path, weft_cluster** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(path, "path"));
    WEFT_TRY(require(out, "out"));
    WEFT_TRY_ASSIGN(Cluster cluster, read_cluster(path));
    *out = new weft_cluster{std::make_shared<const Cluster>(std::move(cluster))};
    return {};
  });
}

void weft_cluster_free(weft_cluster* cluster) { delete cluster; }
uint32_t weft_cluster_ranks(const weft_cluster* cluster) {
  return cluster ? static_cast<uint32_t>(cluster->cluster->ranks()) : 0;
}

weft_status weft_plan_simulate(const weft_plan* plan, uint32_t flags, weft_prediction** out,
                               weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(plan, "plan"));
    WEFT_TRY(require(out, "out"));
    if (flags & ~uint32_t{WEFT_PREDICT_TIMELINE})
      return Status(Code::invalid,
                    cat("flags is ", flags, ", expected WEFT_PREDICT_TIMELINE or 0"));
    WEFT_TRY_ASSIGN(Prediction predicted,
                    predict(plan->plan, plan->cluster.get(), (flags & WEFT_PREDICT_TIMELINE) != 0));
    *out = new weft_prediction{plan->plan, std::move(predicted)};
    return {};
  });
}

void weft_prediction_free(weft_prediction* prediction) { delete prediction; }

weft_status weft_prediction_describe(const weft_prediction* prediction,
                                     weft_prediction_info* info) {
  return answer(prediction, info, 0, 1, [&] {
    const Prediction& p = prediction->inner;
    int64_t messages = 0;
    for (const SimTraffic& link : p.links) messages += link.messages;
    weft_prediction_info full = {};
    full.ranks = static_cast<uint32_t>(p.ranks.size());
    full.links = static_cast<uint32_t>(p.links.size());
    full.step_ns = nanoseconds(p.seconds);
    full.commit_ns = nanoseconds(p.commit);
    full.idle = p.idle;
    full.idle_own = p.idle_own;
    full.peak_bytes = p.peak_bytes();
    full.messages = messages;
    full.bytes = p.bytes();
    return full;
  });
}

weft_status weft_prediction_rank(const weft_prediction* prediction, uint32_t rank,
                                 weft_rank_prediction* out) {
  return answer(prediction, out, rank, prediction ? prediction->inner.ranks.size() : 0, [&] {
    const RankPrediction& r = prediction->inner.ranks[rank];
    return weft_rank_prediction{
        0,      0,          nanoseconds(r.first), nanoseconds(r.last), nanoseconds(r.busy),
        r.idle, r.idle_own, r.peak_bytes};
  });
}

weft_status weft_prediction_link(const weft_prediction* prediction, uint32_t index,
                                 weft_link_prediction* out) {
  return answer(prediction, out, index, prediction ? prediction->inner.links.size() : 0, [&] {
    const SimTraffic& link = prediction->inner.links[index];
    return weft_link_prediction{0,
                                static_cast<uint32_t>(link.from),
                                static_cast<uint32_t>(link.to),
                                0,
                                link.messages,
                                link.bytes};
  });
}

weft_status weft_prediction_save_trace(const weft_prediction* prediction, const char* path,
                                       weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(prediction, "prediction"));
    WEFT_TRY(require(path, "path"));
    if (prediction->inner.spans.empty())
      return Status(Code::state,
                    "the prediction has no timeline; it was made without WEFT_PREDICT_TIMELINE");
    return save_text(path, trace_text(*prediction->plan, prediction->inner.spans, "predicted"));
  });
}

weft_status weft_plan_compare(weft_model* model, const weft_plan_config* config,
                              weft_comparison** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    WEFT_TRY(require(out, "out"));
    WEFT_TRY(model->model->check());
    WEFT_TRY_ASSIGN(const Asked asked, read_plan_config(config, *model->model));
    WEFT_TRY_ASSIGN(Comparison comparison,
                    compare_schedules(model->model, asked.config, asked.cluster.get()));
    *out = new weft_comparison{std::move(comparison)};
    model->model->freeze();
    return {};
  });
}

void weft_comparison_free(weft_comparison* comparison) { delete comparison; }

weft_status weft_comparison_row(const weft_comparison* comparison, uint32_t index,
                                weft_candidate* out) {
  return answer(comparison, out, index, comparison ? comparison->inner.candidates.size() : 0, [&] {
    const Candidate& c = comparison->inner.candidates[index];
    weft_candidate row = {};
    row.chunks = static_cast<uint32_t>(c.chunks);
    row.warm_up = static_cast<uint32_t>(c.warm_up);
    row.group = static_cast<uint32_t>(c.group);
    row.best = comparison->inner.best == static_cast<int32_t>(index);
    row.over = c.over;
    row.schedule = c.schedule.c_str();
    row.refused = c.refused.ok() ? nullptr : c.refused.text().c_str();
    row.step_ns = nanoseconds(c.prediction.seconds);
    row.idle = c.prediction.idle;
    row.idle_own = c.prediction.idle_own;
    row.peak_bytes = c.prediction.peak_bytes();
    row.bytes = c.prediction.bytes();
    row.data = static_cast<uint32_t>(c.mesh.data);
    row.stage = static_cast<uint32_t>(c.mesh.stage);
    row.tensor = static_cast<uint32_t>(c.mesh.tensor);
    if (c.mesh.data > 0) {
      row.work_ns = nanoseconds(c.prediction.work);
      row.waiting_ns = nanoseconds(c.prediction.waiting);
      row.shard = c.config.shard.c_str();
    }
    return row;
  });
}
