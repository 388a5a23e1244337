#include "ops/norm_reference.h"

#include <cmath>

namespace weft::test {

std::vector<double> ref_layer_norm(const RefCall& c) {
  std::vector<double> out = c.in[0].v;
  const size_t n = c.weights[0].v.size();
  for (size_t row = 0; row < out.size(); row += n) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < n; ++i) mean += out[row + i] / static_cast<double>(n);
    for (size_t i = 0; i < n; ++i)
      variance += std::pow(out[row + i] - mean, 2) / static_cast<double>(n);
    const double root = std::sqrt(variance + c.attrs.factor);
    for (size_t i = 0; i < n; ++i)
      out[row + i] = (out[row + i] - mean) / root * c.weights[0].v[i] + c.weights[1].v[i];
  }
  return out;
}

std::vector<double> ref_batch_norm(const RefCall& c) {
  std::vector<double> out = c.in[0].v;
  const size_t n = c.weights[0].v.size();
  const double rows = static_cast<double>(out.size() / n);
  for (size_t column = 0; column < n; ++column) {
    double mean = c.weights[2].v[column], variance = c.weights[3].v[column];
    if (c.training) {
      mean = variance = 0;
      for (size_t i = column; i < out.size(); i += n) mean += out[i] / rows;
      for (size_t i = column; i < out.size(); i += n) variance += std::pow(out[i] - mean, 2) / rows;
    }
    for (size_t i = column; i < out.size(); i += n)
      out[i] = (out[i] - mean) / std::sqrt(variance + c.attrs.factor) * c.weights[0].v[column] +
               c.weights[1].v[column];
  }
  return out;
}

std::vector<double> ref_rms_norm(const RefCall& c) {
  std::vector<double> out = c.in[0].v;
  const size_t n = c.weights[0].v.size();
  const double offset = c.attrs.flags & kUnitOffset ? 1 : 0;
  for (size_t row = 0; row < out.size(); row += n) {
    double squares = 0;
    for (size_t i = 0; i < n; ++i) squares += out[row + i] * out[row + i];
    const double root = std::sqrt(squares / static_cast<double>(n) + c.attrs.factor);
    for (size_t i = 0; i < n; ++i) out[row + i] *= (c.weights[0].v[i] + offset) / root;
  }
  return out;
}

}  // namespace weft::test
