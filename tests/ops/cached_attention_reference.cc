#include "ops/cached_attention_reference.h"

#include <cmath>

namespace weft::test {

namespace {

// The rows of a call.
class Rows {
 public:
  explicit Rows(const RefCall& c)
      : c_(c),
        packed_(c.in.size() == 3),
        width_(c.in[0].shape.last() / (packed_ ? 3 : 1)),
        size_(width_ / c.attrs.heads),
        kv_heads_(packed_ ? c.attrs.heads : c.in[1].shape.last() / size_) {}

  int64_t count() const { return c_.in[0].shape[0]; }
  int64_t width() const { return width_; }
  int64_t size() const { return size_; }
  // The first column of keys and values that the head uses.
  int64_t key_column(int64_t head) const { return head / (c_.attrs.heads / kv_heads_) * size_; }
  double value(int64_t tensor, int64_t row, int64_t column) const {
    const RefTensor& in = c_.in[static_cast<size_t>(packed_ ? 0 : tensor)];
    if (packed_) column += tensor * width_;
    return in.v[static_cast<size_t>(row * in.shape.last() + column)];
  }
  double sequence(int64_t row) const { return c_.in.back().v[static_cast<size_t>(row)]; }
  // Whether the row attends to the other one.
  bool sees(int64_t row, int64_t other) const {
    const std::vector<double>& positions = c_.in[c_.in.size() - 2].v;
    const double before =
        positions[static_cast<size_t>(row)] - positions[static_cast<size_t>(other)];
    const bool in_window = c_.attrs.dims.rank < 3 || before < static_cast<double>(c_.attrs.dims[2]);
    return sequence(row) == sequence(other) && before >= 0 && in_window;
  }

 private:
  const RefCall& c_;
  bool packed_;
  int64_t width_, size_, kv_heads_;
};

}  // namespace

std::vector<double> ref_cached_attention(const RefCall& c) {
  const Rows rows(c);
  std::vector<double> out(static_cast<size_t>(rows.count() * rows.width()));
  for (int64_t row = 0; row < rows.count(); ++row)
    for (int64_t head = 0; head < c.attrs.heads && rows.sequence(row) >= 0; ++head) {
      const int64_t key = rows.key_column(head), first = head * rows.size();
      double sum = 0;
      std::vector<double> result(static_cast<size_t>(rows.size()));
      for (int64_t other = 0; other < rows.count(); ++other) {
        if (!rows.sees(row, other)) continue;
        double score = 0;
        for (int64_t e = 0; e < rows.size(); ++e)
          score += rows.value(0, row, first + e) * rows.value(1, other, key + e);
        score /= std::sqrt(static_cast<double>(rows.size()));
        if (c.attrs.cap > 0) score = c.attrs.cap * std::tanh(score / c.attrs.cap);
        const double weight = std::exp(score);
        sum += weight;
        for (size_t e = 0; e < result.size(); ++e)
          result[e] += weight * rows.value(2, other, key + static_cast<int64_t>(e));
      }
      for (size_t e = 0; e < result.size(); ++e)
        out[static_cast<size_t>(row * rows.width() + first) + e] = result[e] / sum;
    }
  return out;
}

}  // namespace weft::test
