// Generators of a run that fails: one of its processes dies.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/generators.h"

namespace {

// A process that serves rank 1 of the mesh at the address that it reads.
[[noreturn]] void serve(int endpoint_from) {
  alarm(60);  // if the test ends before it joins
  char endpoint[200] = "";
  if (read(endpoint_from, endpoint, sizeof endpoint - 1) <= 0) _exit(1);
  weft_mesh_config config = defaults(weft_mesh_config_init);
  config.endpoint = endpoint;
  weft_mesh* mesh = nullptr;
  if (weft_mesh_join(&config, &mesh, nullptr) == WEFT_OK)
    weft_run_serve(mesh, nullptr, nullptr, nullptr, nullptr);
  _exit(2);
}

class GeneratorOfAFailedRun : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(WithASequence, GeneratorOfAFailedRun, testing::Bool());

TEST_P(GeneratorOfAFailedRun, IsToldOnceByItsDescriptor) {
  int way[2];
  ASSERT_EQ(pipe(way), 0);
  const pid_t other = fork();
  if (other == 0) serve(way[0]);
  weft_decoder_config decoder = defaults(weft_decoder_config_init);
  weft_model* model = nullptr;
  Error err;
  ASSERT_EQ(weft_model_decoder(kModel, &decoder, &model, nullptr, &err), WEFT_OK) << err.text;
  const ModelPtr owned(model);
  const weft_plan_config config = plan_config(2, 2, 4);
  weft_plan* plan = nullptr;
  ASSERT_EQ(weft_plan_new(model, &config, &plan, &err), WEFT_OK) << err.text;
  const PlanPtr owned_plan(plan);
  weft_mesh* mesh = nullptr;
  ASSERT_EQ(weft_mesh_listen(nullptr, &mesh, &err), WEFT_OK) << err.text;
  const MeshPtr owned_mesh(mesh);
  const std::string endpoint = weft_mesh_endpoint(mesh);
  ASSERT_EQ(write(way[1], endpoint.data(), endpoint.size()), static_cast<ssize_t>(endpoint.size()));
  weft_run* started = nullptr;
  ASSERT_EQ(weft_run_start(plan, mesh, nullptr, &started, &err), WEFT_OK) << err.text;
  const RunPtr run(started);
  const GeneratorPtr generator = new_generator(run);
  weft_sequence_config three = config_of(0);
  three.limit = 3;
  const uint64_t ended = add(generator, {1, 2, 3}, three);
  weft_token token = sized<weft_token>();
  while (poll(generator, token)) EXPECT_EQ(token.sequence, ended);
  if (GetParam()) add(generator, {4, 5}, three);

  kill(other, SIGKILL);
  int died = 0;
  ASSERT_EQ(waitpid(other, &died, 0), other);
  pollfd ready{weft_run_fd(run.get()), POLLIN, 0};
  weft_status status = 0;
  // A part of the connection may end before the other one.
  for (int turn = 0; turn < 10 && status == 0; ++turn) {
    ASSERT_EQ(::poll(&ready, 1, 60000), 1);
    status = weft_generator_poll(generator.get(), &token, 0, &err);
  }
  EXPECT_EQ(status, WEFT_EPEER) << err.text;
  EXPECT_EQ(token.sequence, 0u);
  EXPECT_EQ(::poll(&ready, 1, 0), 0) << "an event loop would spin";
  weft_failure failure = sized<weft_failure>();
  EXPECT_EQ(weft_run_failure(run.get(), &failure), 1);
  const int32_t tokens[] = {1};
  uint64_t id = 0;
  expect_error(weft_generator_add(generator.get(), tokens, 1, nullptr, &id, &err), err, WEFT_EPEER,
               {"the run has failed: ", "rank 1"});
  expect_error(weft_generator_remove(generator.get(), ended, &err), err, WEFT_EPEER,
               {"the run has failed: "});
  expect_error(weft_generator_poll(generator.get(), &token, -1, &err), err, WEFT_EPEER,
               {"the run has failed: "});
  for (const int end : way) close(end);
}

}  // namespace
