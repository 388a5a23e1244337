// A rank of the run of another process.
#include <algorithm>

#include "api/run_handle.h"

using namespace weft;
using namespace weft::api;

namespace {

struct Service {
  std::shared_ptr<const Plan> plan;
  int threads = 1;
  std::vector<const Op*> ops;
  LogSink log;
  std::string weights_dir;
};

Result<Service> service_of(const weft_mesh* mesh, const weft_plan* plan, const weft_model* ops,
                           const weft_run_config* config) {
  WEFT_TRY(require(mesh, "mesh"));
  weft_run_config c;
  WEFT_TRY(read_run_config(config, c));
  Service out;
  if (plan) out.plan = plan->plan;
  out.threads = static_cast<int>(std::max(c.threads, 1u));
  if (ops) out.ops = ops->user_ops;
  out.log = log_sink(c);
  if (c.weights_dir) out.weights_dir = c.weights_dir;
  return out;
}

}  // namespace

weft_status weft_run_serve(weft_mesh* mesh, const weft_plan* plan, const weft_model* ops,
                           const weft_run_config* config, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY_ASSIGN(const Service service, service_of(mesh, plan, ops, config));
    return serve(*mesh->mesh, service.plan, service.threads, service.ops, service.log,
                 service.weights_dir);
  });
}

weft_status weft_run_join(weft_mesh* mesh, const weft_plan* plan, const weft_model* ops,
                          const weft_run_config* config, weft_run** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(out, "out"));
    WEFT_TRY_ASSIGN(const Service service, service_of(mesh, plan, ops, config));
    auto run = std::make_unique<weft_run>();
    if (ops) run->ops = ops->model;
    run->use(*mesh);
    WEFT_TRY_ASSIGN(run->source, join_run(*mesh->mesh, service.plan, service.threads, service.ops,
                                          service.log, service.weights_dir));
    *out = run.release();
    return {};
  });
}
