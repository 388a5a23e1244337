/* Runs an example as several processes of this machine: the program starts itself again, once per rank.
 *
 *   ranks world;
 *   ranks_start(&world, plan, argv, 4);                 starts ranks 1 to 3. In a copy of the program it serves, and exits
 *   weft_run_start(plan, world.mesh, NULL, &run, &err);
 *   ...
 *   weft_run_free(run);
 *   return ranks_end(&world);                           0 if every rank ended well
 *
 * With --in-process no process is started: world.mesh is NULL, and all ranks live in this one. */
#ifndef RANKS_H
#define RANKS_H

#define _POSIX_C_SOURCE 200809L   /* so this header comes first */

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft.h>

#define RANKS_MOST 64

typedef struct ranks {
  weft_mesh *mesh;
  int count;
  pid_t pids[RANKS_MOST];
} ranks;

/* Of a copy: the endpoint of rank 0. */
#define RANKS_JOIN "WEFT_JOIN"

static void ranks_require(weft_status status, const weft_error *err) {
  if (status >= 0) return;
  fprintf(stderr, "ranks: %s\n", err->text);
  exit(1);
}

static void ranks_serve(const weft_plan *plan, const char *endpoint) {
  weft_error err = {.size = sizeof err};
  weft_mesh_config config;
  weft_mesh *mesh = NULL;
  prctl(PR_SET_PDEATHSIG, SIGTERM);   /* rank 0 may end before it starts the run */
  weft_mesh_config_init(&config, sizeof config);
  config.endpoint = endpoint;
  ranks_require(weft_mesh_join(&config, &mesh, &err), &err);
  ranks_require(weft_run_serve(mesh, plan, NULL, NULL, &err), &err);
  weft_mesh_free(mesh);
  exit(0);
}

/* Starts ranks 1 to count - 1 as copies of this program with its arguments. `plan` is that of rank 0, or NULL: a copy receives it. Ends the
 * program if that fails. */
static void ranks_start(ranks *world, const weft_plan *plan, char **argv, int count) {
  extern char **environ;
  weft_error err = {.size = sizeof err};
  int i;
  if (getenv(RANKS_JOIN)) ranks_serve(plan, getenv(RANKS_JOIN));
  memset(world, 0, sizeof *world);
  for (i = 1; argv[i]; ++i)
    if (strcmp(argv[i], "--in-process") == 0) return;
  if (count > RANKS_MOST) exit(1);
  ranks_require(weft_mesh_listen(NULL, &world->mesh, &err), &err);
  setenv(RANKS_JOIN, weft_mesh_join_endpoint(world->mesh), 1);
  for (world->count = 1; world->count < count; ++world->count) {
    const int failure = posix_spawn(&world->pids[world->count], "/proc/self/exe", NULL, NULL, argv, environ);
    if (failure != 0) {
      fprintf(stderr, "ranks: cannot start a rank: %s\n", strerror(failure));
      exit(1);
    }
  }
  unsetenv(RANKS_JOIN);
}

/* After the run was freed: waits for the ranks; 0 if all ended well. */
static int ranks_end(ranks *world) {
  int rank, status, failed = 0;
  for (rank = 1; rank < world->count; ++rank)
    if (waitpid(world->pids[rank], &status, 0) < 0 || status != 0) {
      fprintf(stderr, "ranks: rank %d did not end well\n", rank);
      failed = 1;
    }
  weft_mesh_free(world->mesh);
  return failed;
}

#endif
