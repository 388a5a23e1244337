#include "ops/image_reference.h"

#include <algorithm>
#include <numeric>

namespace weft::test {

namespace {

using Values = std::vector<double>;

int64_t dim_or(const RefCall& c, int i, int64_t other) {
  return i < c.attrs.dims.rank ? c.attrs.dims[i] : other;
}

// An image with samples in front, seen through a window: body(sample, row, column) with the first
// row and column of each window, which may lie in the padding.
template <typename F>
void for_windows(const Shape& x, int64_t high, int64_t wide, int64_t stride, int64_t padding,
                 int64_t padding_above, F body) {
  const int64_t rows = x[x.rank - 3], columns = x[x.rank - 2];
  for (int64_t sample = 0; sample < x.elements(0, x.rank - 3); ++sample)
    for (int64_t r = -padding_above; r + high <= rows + padding_above; r += stride)
      for (int64_t k = -padding; k + wide <= columns + padding; k += stride) body(sample, r, k);
}

// The element of an image, or null in the padding.
const double* pixel(const RefTensor& x, int64_t sample, int64_t row, int64_t column, int64_t i) {
  const int64_t rows = x.shape[x.shape.rank - 3], columns = x.shape[x.shape.rank - 2];
  if (row < 0 || row >= rows || column < 0 || column >= columns) return nullptr;
  return &x.v[static_cast<size_t>(((sample * rows + row) * columns + column) * x.shape.last() + i)];
}

Values conv2d(const RefCall& c) {
  const RefTensor &x = c.in[0], &w = c.weights[0];
  const int64_t dilation = dim_or(c, 2, 1), groups = dim_or(c, 3, 1);
  const int64_t in = x.shape.last() / groups, out = w.shape[3];
  Values values;
  const int64_t high = dilation * (w.shape[0] - 1) + 1, wide = dilation * (w.shape[1] - 1) + 1;
  const int64_t padding = dim_or(c, 1, 0), above = c.op == "conv1d" ? 0 : padding;
  for_windows(x.shape, high, wide, dim_or(c, 0, 1), padding, above,
              [&](int64_t sample, int64_t row, int64_t column) {
                for (int64_t o = 0; o < out; ++o) {
                  double sum = c.weights.size() == 2 ? c.weights[1].v[static_cast<size_t>(o)] : 0;
                  for (int64_t e = 0; e < w.shape.elements(0, 3); ++e) {
                    const int64_t i = e % in, tap_column = e / in % w.shape[1],
                                  tap_row = e / in / w.shape[1];
                    const double* seen =
                        pixel(x, sample, row + tap_row * dilation, column + tap_column * dilation,
                              o / (out / groups) * in + i);
                    if (seen) sum += *seen * w.v[static_cast<size_t>(e * out + o)];
                  }
                  values.push_back(sum);
                }
              });
  return values;
}

// An image of one row.
Values conv1d(const RefCall& c) {
  RefCall image = c;
  const auto insert = [](Shape& shape, int position) {
    ++shape.rank;
    for (int i = shape.rank - 1; i > position; --i) shape[i] = shape[i - 1];
    shape[position] = 1;
  };
  insert(image.in[0].shape, c.in[0].shape.rank - 2);
  insert(image.weights[0].shape, 0);
  // A stride keeps the only row, since no padding is above it.
  return conv2d(image);
}

Values pool(const RefCall& c, bool most) {
  const RefTensor& x = c.in[0];
  const int64_t size = c.attrs.dims[0], padding = dim_or(c, 2, 0);
  Values out;
  for_windows(x.shape, size, size, dim_or(c, 1, size), padding, padding,
              [&](int64_t sample, int64_t row, int64_t column) {
                for (int64_t i = 0; i < x.shape.last(); ++i) {
                  Values seen;
                  for (int64_t e = 0; e < size * size; ++e)
                    if (const double* v = pixel(x, sample, row + e / size, column + e % size, i))
                      seen.push_back(*v);
                  out.push_back(most ? *std::max_element(seen.begin(), seen.end())
                                     : std::accumulate(seen.begin(), seen.end(), 0.0) /
                                           double(size * size));
                }
              });
  return out;
}

}  // namespace

Values ref_conv1d(const RefCall& c) { return conv1d(c); }
Values ref_conv2d(const RefCall& c) { return conv2d(c); }
Values ref_average_pool(const RefCall& c) { return pool(c, false); }
Values ref_max_pool(const RefCall& c) { return pool(c, true); }

}  // namespace weft::test
