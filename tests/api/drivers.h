// A run of two ranks on any driver.
#pragma once

#include <thread>

#include "api/api.h"
#include "support/directory.h"

// Where ranks compute: on the caller's thread, on threads of this process, or as members of a mesh.
struct Driver {
  const char* name;
  uint32_t threads;
  bool mesh;
};
constexpr Driver kInline = {"Inline", 0, false};
constexpr Driver kThreads = {"Threads", 1, false};
constexpr Driver kTeam = {"Team", 2, false};
constexpr Driver kMesh = {"Mesh", 1, true};
constexpr Driver kDrivers[] = {kInline, kThreads, kTeam, kMesh};

struct TwoRanks {
  TwoRanks(PlanPtr of, const Driver& driver) : plan(std::move(of)) {
    if (!driver.mesh) {
      run = start(plan, driver.threads);
      return;
    }
    weft_mesh* listening = nullptr;
    Error err;
    EXPECT_EQ(weft_mesh_listen(nullptr, &listening, &err), WEFT_OK) << err.text;
    mesh.reset(listening);
    other = std::thread(serve, std::string(weft_mesh_endpoint(listening)), &served);
    weft_run* out = nullptr;
    EXPECT_EQ(weft_run_start(plan.get(), listening, nullptr, &out, &err), WEFT_OK) << err.text;
    run.reset(out);
  }
  // In an orderly way unless the run has failed: rank 1 returns with success.
  ~TwoRanks() {
    weft_failure failure = sized<weft_failure>();
    const bool orderly = run && weft_run_failure(run.get(), &failure) == 0 && !interrupted;
    run.reset();
    if (!other.joinable()) return;
    other.join();
    if (orderly) {
      EXPECT_EQ(served, WEFT_OK);
    }
  }

  static void serve(const std::string& endpoint, weft_status* status) {
    weft_mesh_config config = defaults(weft_mesh_config_init);
    config.endpoint = endpoint.c_str();
    weft_mesh* joined = nullptr;
    Error err;
    *status = weft_mesh_join(&config, &joined, &err);
    if (*status == WEFT_OK) *status = weft_run_serve(joined, nullptr, nullptr, nullptr, &err);
    weft_mesh_free(joined);
  }

  PlanPtr plan;
  MeshPtr mesh;
  weft_status served = WEFT_OK;
  bool interrupted = false;  // the run is freed while steps or saves are in progress
  std::thread other;
  RunPtr run;
};

using weft::test::Directory;

inline std::string save(const RunPtr& run, const Directory& directory) {
  weft_save_config config = defaults(weft_save_config_init);
  config.directory = directory.path().c_str();
  Error err;
  EXPECT_EQ(weft_run_save(run.get(), &config, &err), WEFT_OK) << err.text;
  return directory.path();
}

// Of the small models of the tests, which have six parameters.
inline uint32_t states(const CheckpointPtr& checkpoint) {
  weft_checkpoint_info info = sized<weft_checkpoint_info>();
  EXPECT_EQ(weft_checkpoint_describe(checkpoint.get(), &info), WEFT_OK);
  EXPECT_EQ(info.n_params, 6u);
  return info.n_states;
}
