#include "kernels/loss.h"

namespace weft::kernels {

// Plain code: the partial sums are written out, so no compiler may reorder them and all machines
// agree.
double squared_error(const float* a, const float* b, int64_t n) {
  double part[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int j = 0; j < 8; ++j) {
      const double difference = double{a[i + j]} - double{b[i + j]};
      part[j] += difference * difference;
    }
  for (int j = 0; i < n; ++i, ++j) {
    const double difference = double{a[i]} - double{b[i]};
    part[j] += difference * difference;
  }
  return ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
}

}  // namespace weft::kernels
