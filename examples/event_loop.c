/* Trains the network of embed.c in two processes. Each has one thread and a libuv loop, which never waits for weft.
 * cc event_loop.c $(pkg-config --cflags --libs weft libuv) -lm */
#define _XOPEN_SOURCE 700   /* for uv.h */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>
#include <weft.h>

enum { STEPS = 500, SAMPLES = 64 };

static weft_error err = {.size = sizeof err};

typedef struct {
  weft_mesh *mesh;
  weft_run *run;
  uv_poll_t events;       /* the descriptor of the run */
  uv_process_t other;     /* the process of rank 1 */
  weft_tensor *batch[2];
  int step, failed;
} program;

static void require(int done, const char *what, const char *text) {
  if (done) return;
  fprintf(stderr, "event_loop: %s: %s\n", what, text);
  exit(1);
}

static void check(weft_status status, const char *what) { require(status >= 0, what, err.text); }

/* Ends the run here. The loop returns when nothing else is active on it. */
static void end(program *p) {
  uv_close((uv_handle_t *)&p->events, NULL);
  weft_run_free(p->run);
}

static void submit(program *p) {
  check(weft_run_submit(p->run, p->batch, 2, WEFT_TRAIN, (uint64_t)p->step, &err), "submit");
}

static void take(program *p, const weft_event *event) {
  switch (event->kind) {
  case WEFT_EVENT_JOINED:
    if (p->batch[0]) printf("rank %d has joined, %u are missing\n", event->rank, event->missing);
    break;
  case WEFT_EVENT_REFUSED:
    fprintf(stderr, "refused %s\n", event->text);
    break;
  case WEFT_EVENT_STARTED:
    if (!p->batch[0]) break;
    printf("started with %u ranks\n", event->ranks);
    submit(p);
    break;
  case WEFT_EVENT_DONE:
    if (p->step % 100 == 0) printf("step %3d  loss %.6f\n", p->step, event->loss);
    if (p->step++ < STEPS)
      submit(p);
    else
      end(p);
    break;
  case WEFT_EVENT_ERROR:
  case WEFT_EVENT_FAILED:
    fprintf(stderr, "event_loop: %s\n", event->text);
    p->failed = 1;
    end(p);
    break;
  case WEFT_EVENT_ENDED:
    end(p);
    break;
  default:
    break;
  }
}

static void on_event(uv_poll_t *handle, int status, int ready) {
  program *p = handle->data;
  weft_event event = {.size = sizeof event};
  (void)ready;
  require(status == 0, "poll", status ? uv_strerror(status) : "");
  for (weft_status got = 1; got > 0 && !uv_is_closing((uv_handle_t *)handle);) {
    got = weft_run_poll(p->run, &event, 0, &err);
    require(got >= 0, "poll", err.text);
    if (got > 0) take(p, &event);
  }
}

static void watch(program *p) {
  require(uv_poll_init(uv_default_loop(), &p->events, weft_run_fd(p->run)) == 0, "poll", "cannot watch the run");
  p->events.data = p;
  uv_poll_start(&p->events, UV_READABLE, on_event);
}

static weft_plan *make_plan(void) {
  const weft_desc number = {WEFT_F32, 2, {1, 1}};
  weft_model *model;
  weft_plan *plan;
  weft_value x, y, out, loss;
  weft_optimizer adamw;
  weft_plan_config config;
  check(weft_model_new(&model, &err), "model");
  check(weft_model_add_input(model, "x", &number, 0, &x, &err), "x");
  check(weft_model_add_input(model, "y", &number, 0, &y, &err), "y");
  check(weft_model_add_linear(model, "hidden", x, 32, &out, &err), "hidden");
  check(weft_model_add_unary(model, NULL, "gelu", out, &out, &err), "gelu");
  check(weft_model_add_linear(model, "out", out, 1, &out, &err), "out");
  check(weft_model_add_binary(model, NULL, "mse", out, y, &loss, &err), "mse");
  weft_optimizer_init(&adamw, sizeof adamw);
  adamw.rate = 0.02;
  adamw.curve = WEFT_RATE_COSINE;
  adamw.total = STEPS;
  adamw.clip = 0;   /* no clipping */
  weft_plan_config_init(&config, sizeof config);
  config.ranks = 2;
  config.micro_batches = 4;
  config.micro_batch_size = 16;
  config.optimizer = &adamw;
  check(weft_plan_new(model, &config, &plan, &err), "plan");
  weft_model_free(model);   /* the plan holds a reference */
  return plan;
}

static void on_exit_of_other(uv_process_t *process, int64_t status, int signal) {
  program *p = process->data;
  printf("rank 1 has ended with status %d\n", (int)status);
  if (status || signal) p->failed = 1;
  if (!uv_is_closing((uv_handle_t *)&p->events)) weft_mesh_cancel(p->mesh);   /* it ended too early: the run gets an error */
  uv_close((uv_handle_t *)process, NULL);
}

/* This program again, as rank 1. */
static void spawn(program *p) {
  char path[4096];
  size_t size = sizeof path;
  require(uv_exepath(path, &size) == 0, "spawn", "the path of this program is unknown");
  char *arguments[] = {path, (char *)weft_mesh_join_endpoint(p->mesh), NULL};
  uv_stdio_container_t streams[3] = {{.flags = UV_IGNORE}, {.flags = UV_IGNORE}, {.flags = UV_INHERIT_FD, .data.fd = 2}};
  const uv_process_options_t options = {.file = path, .args = arguments, .exit_cb = on_exit_of_other, .stdio = streams, .stdio_count = 3};
  p->other.data = p;
  require(uv_spawn(uv_default_loop(), &p->other, &options) == 0, "spawn", path);
}

/* Rank 0. */
static void control(program *p) {
  static float x[SAMPLES], y[SAMPLES];
  const weft_desc all = {WEFT_F32, 2, {SAMPLES, 1}};
  for (int i = 0; i < SAMPLES; ++i) {
    x[i] = (float)i / 10 - 3.2f;
    y[i] = sinf(x[i]);
  }
  check(weft_tensor_wrap(&all, x, NULL, NULL, &p->batch[0], &err), "x");
  check(weft_tensor_wrap(&all, y, NULL, NULL, &p->batch[1], &err), "y");
  weft_plan *plan = make_plan();
  weft_run_config config;
  weft_run_config_init(&config, sizeof config);
  config.flags = WEFT_RUN_NOWAIT;
  check(weft_mesh_listen(NULL, &p->mesh, &err), "listen");
  check(weft_run_start(plan, p->mesh, &config, &p->run, &err), "start");
  weft_plan_free(plan);
  spawn(p);
}

/* Any other rank. */
static void serve(program *p, const char *endpoint) {
  weft_mesh_config config;
  weft_mesh_config_init(&config, sizeof config);
  config.endpoint = endpoint;
  check(weft_mesh_join(&config, &p->mesh, &err), "join");
  check(weft_run_join(p->mesh, NULL, NULL, NULL, &p->run, &err), "serve");
}

int main(int argc, char **argv) {
  program p = {0};
  if (argc > 1)
    serve(&p, argv[1]);
  else
    control(&p);
  watch(&p);
  uv_run(uv_default_loop(), UV_RUN_DEFAULT);
  for (int i = 0; i < 2; ++i) weft_tensor_unref(p.batch[i]);
  weft_mesh_free(p.mesh);
  uv_loop_close(uv_default_loop());
  return p.failed;
}
