/* NumPy's legacy generator, the part behind numpy.random.seed(n) and numpy.random.randn(): the Mersenne Twister MT19937 and the
 * polar method of Marsaglia, which computes two numbers at a time and returns the second one first. */
#ifndef RANDN_H
#define RANDN_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

typedef struct randn {
  uint32_t key[624];
  int next;         /* in key */
  int has_spare;
  double spare;
} randn;

static void randn_seed(randn *r, uint32_t seed) {
  for (uint32_t i = 0; i < 624; ++i) {
    r->key[i] = seed;
    seed = 1812433253u * (seed ^ (seed >> 30)) + i + 1;
  }
  r->next = 624;
  r->has_spare = 0;
}

static uint32_t randn_bits(randn *r) {
  if (r->next == 624) {
    for (int i = 0; i < 624; ++i) {
      const uint32_t y = (r->key[i] & 0x80000000u) | (r->key[(i + 1) % 624] & 0x7fffffffu);
      r->key[i] = r->key[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    r->next = 0;
  }
  uint32_t y = r->key[r->next++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

/* Uniform over [-1, 1), of 53 bits. */
static double randn_uniform(randn *r) {
  const uint32_t high = randn_bits(r) >> 5, low = randn_bits(r) >> 6;
  return 2 * ((high * 67108864.0 + low) / 9007199254740992.0) - 1;
}

static double randn_draw(randn *r) {
  if (r->has_spare) {
    r->has_spare = 0;
    return r->spare;
  }
  double x, y, square;
  do {
    x = randn_uniform(r);
    y = randn_uniform(r);
    square = x * x + y * y;
  } while (square >= 1 || square == 0);
  const double factor = sqrt(-2 * log(square) / square);
  r->spare = factor * x;
  r->has_spare = 1;
  return factor * y;
}

static inline void randn_fill(randn *r, float *to, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = (float)randn_draw(r);
}

#endif
