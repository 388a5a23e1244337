/* The worked example of gpipe.c, mesh_2d.c and spmd_pipeline.c: four layers (linear, ReLU) of width 16 and the mean squared error,
 * computed by hand, in double, for a comparison. The program defines MICRO_BATCHES before it includes this file. */
#ifndef CHAIN_H
#define CHAIN_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "randn.h"

enum { LAYERS = 4, MICRO_BATCH_SIZE = 4, SAMPLES = MICRO_BATCHES * MICRO_BATCH_SIZE, WIDTH = 16 };

typedef struct data {
  float weight[LAYERS][WIDTH][WIDTH];   /* [in, out] */
  float bias[LAYERS][WIDTH];
  float input[SAMPLES][WIDTH];
  float target[SAMPLES][WIDTH];
} data;

/* The results of weft. */
typedef struct result {
  double loss;
  float weight[LAYERS][WIDTH][WIDTH];
  float bias[LAYERS][WIDTH];
  float input[SAMPLES][WIDTH];
} result;

/* The expected results. */
typedef struct exact {
  double loss;
  double weight[LAYERS][WIDTH][WIDTH];
  double bias[LAYERS][WIDTH];
  double input[SAMPLES][WIDTH];
} exact;

/* ---- the same computation by hand ---- */

static void compute_exact(const data *d, exact *e) {
  static double value[LAYERS + 1][SAMPLES][WIDTH];   /* after each layer */
  static double grad[SAMPLES][WIDTH], below[SAMPLES][WIDTH];
  memset(e, 0, sizeof *e);
  for (int s = 0; s < SAMPLES; ++s)
    for (int i = 0; i < WIDTH; ++i) value[0][s][i] = d->input[s][i];

  for (int l = 0; l < LAYERS; ++l)
    for (int s = 0; s < SAMPLES; ++s)
      for (int o = 0; o < WIDTH; ++o) {
        double sum = d->bias[l][o];
        for (int i = 0; i < WIDTH; ++i) sum += value[l][s][i] * d->weight[l][i][o];
        value[l + 1][s][o] = sum > 0 ? sum : 0;
      }

  for (int s = 0; s < SAMPLES; ++s)
    for (int o = 0; o < WIDTH; ++o) {
      const double off = value[LAYERS][s][o] - d->target[s][o];
      e->loss += off * off / (SAMPLES * WIDTH);
      grad[s][o] = 2 * off / (SAMPLES * WIDTH);
    }

  for (int l = LAYERS - 1; l >= 0; --l) {
    memset(below, 0, sizeof below);
    for (int s = 0; s < SAMPLES; ++s)
      for (int o = 0; o < WIDTH; ++o) {
        if (value[l + 1][s][o] <= 0) continue;   /* the gradient of ReLU is 0 */
        e->bias[l][o] += grad[s][o];
        for (int i = 0; i < WIDTH; ++i) {
          e->weight[l][i][o] += value[l][s][i] * grad[s][o];
          below[s][i] += d->weight[l][i][o] * grad[s][o];
        }
      }
    memcpy(grad, below, sizeof grad);
  }
  memcpy(e->input, grad, sizeof grad);
}

static void draw(data *d) {
  randn random;
  randn_seed(&random, 42);
  randn_fill(&random, &d->weight[0][0][0], sizeof *d / sizeof(float));   /* all members, in their order */
}

/* ---- comparison ---- */

static int check(const char *what, double found, double expected, double tolerance) {
  const int good = fabs(found - expected) <= tolerance;   /* false for NaN */
  printf("%-26s %12.4f   expected %.4f +- %.4f   %s\n", what, found, expected, tolerance, good ? "ok" : "WRONG");
  return good;
}

static int compare(const char *what, const float *found, const double *expected, size_t n) {
  double largest = 0;
  for (size_t i = 0; i < n; ++i) {
    const double off = fabs(found[i] - expected[i]);
    if (off > largest || isnan(off)) largest = off;
  }
  const int good = largest <= 5e-4;
  printf("%-26s %12.3e   expected at most 5e-4   %s\n", what, largest, good ? "ok" : "WRONG");
  return good;
}

static int compare_all(const result *r, const exact *e) {
  printf("largest differences to the same computation in double:\n");
  int good = compare("  input gradients", &r->input[0][0], &e->input[0][0], sizeof r->input / sizeof(float));
  good &= compare("  weight gradients", &r->weight[0][0][0], &e->weight[0][0][0], sizeof r->weight / sizeof(float));
  good &= compare("  bias gradients", &r->bias[0][0], &e->bias[0][0], sizeof r->bias / sizeof(float));
  return good;
}

/* The numbers of 8 micro-batches. */
static inline int check_gpipe(const result *r, const exact *e) {
  const float *weight = &r->weight[0][0][0];
  float low = weight[0], high = weight[0];
  for (size_t i = 0; i < sizeof r->weight / sizeof *weight; ++i) {
    if (weight[i] < low) low = weight[i];
    if (weight[i] > high) high = weight[i];
  }
  int good = check("loss", r->loss, 5540.2947, 0.001);
  good &= check("smallest weight gradient", low, -294.8231, 0.0003);
  good &= check("largest weight gradient", high, 1527.5932, 0.0003);
  return compare_all(r, e) && good;
}

#endif
