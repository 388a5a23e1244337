#include "api/handles.h"
#include "api/plan_config.h"
#include "partition/pipedream_stages.h"

using namespace weft;
using namespace weft::api;

weft_status weft_plan_workers(weft_model* model, const weft_plan_config* config, uint32_t workers,
                              weft_worker_stage* stages, uint32_t room, weft_workers* out,
                              weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(model, "model"));
    WEFT_TRY(require(out, "out"));
    if (room) WEFT_TRY(require(stages, "stages"));
    WEFT_TRY(check_result(*out));
    WEFT_TRY(model->model->check());
    WEFT_TRY_ASSIGN(const Asked asked, read_plan_config(config, *model->model));
    if (workers > static_cast<uint32_t>(kMaxStages))
      return Status(Code::invalid, cat("workers is ", workers, ", expected at most ", kMaxStages));
    WEFT_TRY_ASSIGN(const WorkerPlan found,
                    plan_workers(*model->model, asked.config, static_cast<int32_t>(workers)));
    const ReplicatedPlan& plan = found.plan;
    for (size_t s = 0; s < plan.stages.size() && s < room; ++s)
      stages[s] = {model->model->node(found.first[s]).name.c_str(),
                   static_cast<uint32_t>(plan.stages[s].replicas), 0};
    model->model->freeze();  // the names are borrowed from it
    fill_result(out, weft_workers{0, static_cast<uint32_t>(plan.stages.size()), plan.time,
                                  plan.one_machine, plan.data_parallel});
    return {};
  });
}
