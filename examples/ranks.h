/* Runs an example as several processes of this machine: the program starts itself again, once per rank.
 *
 *   ranks world;
 *   if (ranks_joined(argc, argv, plan)) return ranks_exit;       a copy: has served, and exits
 *   ranks_start(&world, argc, argv, 4);                          rank 0: starts ranks 1 to 3
 *   weft_run_start(plan, world.mesh, NULL, &run, &err);
 *   ...
 *   weft_run_free(run);
 *   return ranks_end(&world);                                    0 if every rank ended well
 *
 * With --in-process no process is started: world.mesh is NULL, and all ranks live in this one. */
#ifndef RANKS_H
#define RANKS_H

#define _POSIX_C_SOURCE 200809L   /* so this header comes first */

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft.h>

#define RANKS_MOST 64

typedef struct ranks {
  weft_mesh *mesh;
  int count;
  pid_t pids[RANKS_MOST];
} ranks;

static int ranks_exit;

static int ranks_has(int argc, char **argv, const char *flag) {
  int i;
  for (i = 1; i < argc; ++i)
    if (strcmp(argv[i], flag) == 0) return i;
  return 0;
}

/* Serves if this process was started as a rank ("--join ENDPOINT"); `plan` must be that of rank 0. */
static int ranks_joined(int argc, char **argv, const weft_plan *plan) {
  weft_error err = {.size = sizeof err};
  weft_mesh_config config;
  weft_mesh_config_init(&config, sizeof config);
  weft_mesh *mesh = NULL;
  const int at = ranks_has(argc, argv, "--join");
  if (!at || at + 1 >= argc) return 0;
  config.endpoint = argv[at + 1];
  if (weft_mesh_join(&config, &mesh, &err) < 0 || weft_run_serve(mesh, plan, NULL, NULL, &err) < 0) {
    fprintf(stderr, "rank: %s\n", err.text);
    ranks_exit = 1;
  }
  weft_mesh_free(mesh);
  return 1;
}

/* Starts ranks 1 to count - 1 as copies of this program with its arguments. Ends the program if that fails. */
static void ranks_start(ranks *world, int argc, char **argv, int count) {
  extern char **environ;
  weft_error err = {.size = sizeof err};
  char **copy = (char **)calloc((size_t)argc + 3, sizeof *copy);
  int i;
  memset(world, 0, sizeof *world);
  if (!copy || count > RANKS_MOST) exit(1);
  if (ranks_has(argc, argv, "--in-process")) {
    free(copy);
    return;
  }
  if (weft_mesh_listen(NULL, &world->mesh, &err) < 0) {
    fprintf(stderr, "ranks: %s\n", err.text);
    exit(1);
  }
  for (i = 0; i < argc; ++i) copy[i] = argv[i];
  copy[argc] = (char *)"--join";
  copy[argc + 1] = (char *)weft_mesh_join_endpoint(world->mesh);
  for (world->count = 1; world->count < count; ++world->count)
    if (posix_spawn(&world->pids[world->count], "/proc/self/exe", NULL, NULL, copy, environ) != 0) {
      perror("ranks: cannot start a rank");
      exit(1);
    }
  free(copy);
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
