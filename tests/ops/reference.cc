#include "ops/reference.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "base/rng.h"
#include "ops/cached_attention_reference.h"
#include "ops/image_reference.h"
#include "ops/norm_reference.h"

namespace weft::test {

namespace {

using Values = std::vector<double>;

template <typename F>
Values each(const Values& x, F f) {
  Values out;
  for (double v : x) out.push_back(f(v));
  return out;
}

template <double (*f)(double)>
Values unary(const RefCall& c) {
  return each(c.in[0].v, f);
}

template <typename F>
Values pairs(const RefCall& c, F f) {
  Values out;
  for (size_t i = 0; i < c.in[0].v.size(); ++i) out.push_back(f(c.in[0].v[i], c.in[1].v[i]));
  return out;
}

// A tensor as [outer, axis, inner].
struct Split {
  int64_t outer, axis, inner;
  Split(const Shape& shape, int at)
      : outer(shape.elements(0, at)), axis(shape[at]), inner(shape.elements(at + 1, shape.rank)) {}
};

double& at(Values& v, int64_t i) { return v[static_cast<size_t>(i)]; }
double at(const Values& v, int64_t i) { return v[static_cast<size_t>(i)]; }

// The operands of each element of a broadcast result: inputs, then weights.
std::vector<Values> broadcast(const RefCall& c) {
  std::vector<RefTensor> operands = c.in;
  operands.insert(operands.end(), c.weights.begin(), c.weights.end());
  Shape shape = c.in[0].shape;
  for (const RefTensor& x : operands)
    for (int i = 0; i < x.shape.rank; ++i) {
      int64_t& extent = shape[shape.rank - x.shape.rank + i];
      extent = std::max(extent, x.shape[i]);
    }
  std::vector<Values> out;
  for (int64_t e = 0; e < shape.elements(); ++e) {
    Values& row = out.emplace_back();
    for (const RefTensor& x : operands) {
      int64_t from = 0, step = 1, rest = e;
      for (int i = 1; i <= x.shape.rank; ++i) {
        const int64_t extent = x.shape[x.shape.rank - i], whole = shape[shape.rank - i];
        if (extent != 1) from += rest % whole * step;
        step *= extent;
        rest /= whole;
      }
      row.push_back(at(x.v, from));
    }
  }
  return out;
}

template <typename F>
Values binary(const RefCall& c) {
  Values out;
  for (const Values& row : broadcast(c)) {
    double value = row[0];
    for (size_t i = 1; i < row.size(); ++i) value = F()(value, row[i]);
    out.push_back(value);
  }
  return out;
}

double relu(double x) { return x > 0 ? x : 0; }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }
double negative(double x) { return -x; }
Values reshape(const RefCall& c) { return c.in[0].v; }
Values scale(const RefCall& c) {
  return each(c.in[0].v, [&](double x) { return x * c.attrs.factor; });
}

double capped(double x, double cap) { return cap * std::tanh(x / cap); }
Values softcap(const RefCall& c) {
  return each(c.in[0].v, [&](double x) { return capped(x, c.attrs.cap); });
}

Values gelu(const RefCall& c) {
  return each(c.in[0].v, [&](double x) {
    if (c.attrs.flags & kTanh)
      return 0.5 * x *
             (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
  });
}

Values mse(const RefCall& c) {
  double sum = 0;
  for (double e : pairs(c, std::minus<double>())) sum += e * e;
  return {sum};
}

void softmax_row(double* x, int64_t n) {
  const double top = *std::max_element(x, x + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] = std::exp(x[i] - top);
  for (int64_t i = 0; i < n; ++i) x[i] /= sum;
}

Values softmax(const RefCall& c) {
  Values out = c.in[0].v;
  const int64_t n = c.in[0].shape.last();
  for (size_t row = 0; row < out.size(); row += static_cast<size_t>(n)) softmax_row(&out[row], n);
  return out;
}

Values log_softmax(const RefCall& c) {
  Values out = softmax(c);
  for (double& value : out) value = std::log(value);
  return out;
}

Values softmax_cross_entropy(const RefCall& c) {
  const Values p = softmax(c);
  const int64_t n = c.in[0].shape.last();
  double sum = 0;
  for (size_t r = 0; r < c.in[1].v.size(); ++r) {
    const auto target = static_cast<int64_t>(c.in[1].v[r]);
    for (int64_t i = 0; target >= 0 && i < n; ++i) {
      const double share =
          c.attrs.factor / static_cast<double>(n) + (i == target ? 1 - c.attrs.factor : 0);
      if (share > 0) sum -= share * std::log(at(p, static_cast<int64_t>(r) * n + i));
    }
  }
  return {sum};
}

// The elements that each element of the output reduces.
std::vector<Values> reduced(const RefCall& c) {
  const Shape &shape = c.in[0].shape, &dims = c.attrs.dims;
  const int first = dims.rank > 0 ? static_cast<int>(dims[0]) : c.attrs.axis;
  const int last = first + std::max(dims.rank, 1);
  const int64_t inner = shape.elements(last, shape.rank), axis = shape.elements(first, last);
  std::vector<Values> out(static_cast<size_t>(shape.elements(0, first) * inner));
  for (int64_t e = 0; e < shape.elements(); ++e)
    out[static_cast<size_t>(e / (axis * inner) * inner + e % inner)].push_back(at(c.in[0].v, e));
  return out;
}

double total(const Values& x) {
  double sum = 0;
  for (double v : x) sum += v;
  return sum;
}
double average(const Values& x) { return total(x) / static_cast<double>(x.size()); }
double greatest(const Values& x) { return *std::max_element(x.begin(), x.end()); }

template <double (*f)(const Values&)>
Values reduce(const RefCall& c) {
  Values out;
  for (const Values& x : reduced(c)) out.push_back(f(x));
  return out;
}

Values sum_loss(const RefCall& c) { return {total(c.in[0].v)}; }

Values binary_cross_entropy(const RefCall& c) {
  return {total(pairs(c, [](double x, double t) { return softplus(x) - x * t; }))};
}

Values slice(const RefCall& c) {
  const Split s(c.in[0].shape, c.attrs.axis);
  Values out;
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t a = c.attrs.begin; a < c.attrs.end; ++a)
      for (int64_t i = 0; i < s.inner; ++i)
        out.push_back(at(c.in[0].v, (o * s.axis + a) * s.inner + i));
  return out;
}

Values concat(const RefCall& c) {
  Values out;
  for (int64_t o = 0; o < c.in[0].shape.elements(0, c.attrs.axis); ++o)
    for (const RefTensor& x : c.in) {
      const int64_t run = x.shape.elements(c.attrs.axis, x.shape.rank);
      for (int64_t i = 0; i < run; ++i) out.push_back(at(x.v, o * run + i));
    }
  return out;
}

Values transpose(const RefCall& c) {
  const Shape& in = c.in[0].shape;
  Shape shape = in;
  for (int i = 0; i < in.rank; ++i) shape[i] = in[static_cast<int>(c.attrs.dims[i])];
  Values out;
  for (int64_t e = 0; e < in.elements(); ++e) {
    int64_t from = 0;
    for (int64_t i = in.rank - 1, rest = e; i >= 0; rest /= shape[static_cast<int>(i)], --i) {
      const int axis = static_cast<int>(c.attrs.dims[static_cast<int>(i)]);
      from += rest % shape[static_cast<int>(i)] * in.elements(axis + 1, in.rank);
    }
    out.push_back(at(c.in[0].v, from));
  }
  return out;
}

// An element of the stream of that call.
double dropped(const RefCall& c, double value, uint64_t element) {
  const Stream stream = Stream::dropout(c.key.seed, c.key.step, c.key.micro_batch, c.key.node);
  return unit(stream.draw(element / 4)[element % 4]) > c.attrs.factor ? value / (1 - c.attrs.factor)
                                                                      : 0;
}

// The element of the whole tensor that an element of a piece is.
int64_t of_whole(const RefCall& c, const Shape& piece, int64_t element) {
  const Section& section = c.attrs.section;
  if (section.whole == 0) return element;
  const Split s(piece, section.axis);
  const int64_t outer = element / (s.axis * s.inner), inner = element % s.inner;
  const int64_t index = section.begin + element / s.inner % s.axis;
  return (outer * section.whole + index) * s.inner + inner;
}

Values dropout(const RefCall& c) {
  if (!c.training) return c.in[0].v;
  Values out = c.in[0].v;
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = dropped(c, out[i],
                     static_cast<uint64_t>(of_whole(c, c.in[0].shape, static_cast<int64_t>(i))));
  return out;
}

Values embedding(const RefCall& c) {
  const int64_t d = c.weights[0].shape[1], t = c.in[0].shape.last();
  Values out;
  for (int64_t i = 0; i < c.in[0].shape.elements(); ++i) {
    const int64_t begin = c.attrs.section.begin;
    const bool positions = (c.attrs.flags & kPositions) != 0;
    const bool moved = c.attrs.section.axis == c.in[0].shape.rank - 1;
    const int64_t row =
        positions ? (moved ? begin : 0) + i % t : static_cast<int64_t>(at(c.in[0].v, i)) - begin;
    const bool here = row >= 0 && row < c.weights[0].shape[0];
    for (int64_t j = 0; j < d; ++j) out.push_back(here ? at(c.weights[0].v, row * d + j) : 0);
  }
  return out;
}

// x + (x A) B
Values low_rank(const RefCall& c) {
  const int64_t width = c.weights[0].shape[0], rank = c.weights[0].shape[1];
  Values out = c.in[0].v;
  for (int64_t r = 0; r < c.in[0].shape[0]; ++r)
    for (int64_t k = 0; k < rank; ++k) {
      double sum = 0;
      for (int64_t i = 0; i < width; ++i)
        sum += at(c.in[0].v, r * width + i) * at(c.weights[0].v, i * rank + k);
      for (int64_t j = 0; j < width; ++j)
        at(out, r * width + j) += sum * at(c.weights[1].v, k * width + j);
    }
  return out;
}

Values linear(const RefCall& c) {
  const bool out_in = c.attrs.flags & kOutIn;
  const int64_t k = c.in[0].shape.last(), n = c.weights[0].shape[out_in ? 0 : 1],
                rows = c.in[0].shape.elements() / k;
  Values out;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < n; ++j) {
      double sum = c.weights.size() == 2 ? at(c.weights[1].v, j) : 0;
      for (int64_t i = 0; i < k; ++i)
        sum += at(c.in[0].v, r * k + i) * at(c.weights[0].v, out_in ? j * k + i : i * n + j);
      out.push_back(sum);
    }
  return out;
}

Values gather(const RefCall& c) {
  const Split s(c.in[0].shape, c.attrs.axis);
  const int64_t picks = c.in[1].shape.last();
  Values out;
  for (int64_t k = 0; k < s.outer * picks; ++k)
    for (int64_t i = 0; i < s.inner; ++i) {
      const auto index = static_cast<int64_t>(at(c.in[1].v, k));
      out.push_back(at(c.in[0].v, (k / picks * s.axis + index) * s.inner + i));
    }
  return out;
}

Values where(const RefCall& c) {
  Values out;
  for (const Values& row : broadcast(c)) out.push_back(row[0] != 0 ? row[1] : row[2]);
  return out;
}

Values matmul(const RefCall& c) {
  const Shape &a = c.in[0].shape, &b = c.in[1].shape;
  const int64_t m = a[a.rank - 2], k = a.last(), n = b.last();
  Values out;
  for (int64_t p = 0; p < a.elements(0, a.rank - 2); ++p)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l)
          sum += at(c.in[0].v, (p * m + i) * k + l) * at(c.in[1].v, (p * k + l) * n + j);
        out.push_back(sum);
      }
  return out;
}

Values attention(const RefCall& c) {
  const Shape& in = c.in[0].shape;
  const bool packed = c.in.size() <= 2, causal = (c.attrs.flags & kCausal) != 0,
             has_positions = c.in.size() % 2 == 0 && causal,
             has_mask = c.in.size() % 2 == 0 && !causal;
  const Shape& with_keys = c.in[packed ? 0 : 1].shape;
  const int64_t keys = with_keys[with_keys.rank - 2];
  const int64_t t = in[in.rank - 2], d = packed ? in.last() / 3 : in.last(),
                size = d / c.attrs.heads,
                repeat =
                    packed ? 1 : d / c.in[1].shape.last();  // heads of queries per head of keys
  const int64_t heads_of_whole =
      c.attrs.section.whole ? c.attrs.section.whole / size : c.attrs.heads;
  const auto value = [&](int which, int64_t row, int64_t column) {
    if (packed) return at(c.in[0].v, row * in.last() + which * d + column);
    const RefTensor& from = c.in[static_cast<size_t>(which)];
    if (which > 0) column = column / size / repeat * size + column % size;
    return at(from.v, row * from.shape.last() + column);
  };
  Values out(static_cast<size_t>(in.elements(0, in.rank - 1) * d));
  for (int64_t sample = 0; sample < in.elements(0, in.rank - 2); ++sample)
    for (int64_t head = 0; head < c.attrs.heads; ++head)
      for (int64_t i = 0; i < t; ++i) {
        const int64_t end = causal ? i + 1 : keys, base = sample * t, key_base = sample * keys,
                      first = head * size;
        const int64_t sequence =
            has_positions ? i - static_cast<int64_t>(at(c.in.back().v, base + i)) : 0;
        const int64_t window = c.attrs.dims.rank > 0 ? c.attrs.dims[0] : t,
                      begin = causal ? std::max(sequence, i + 1 - window) : 0;
        Values p(static_cast<size_t>(end));
        for (int64_t j = begin; j < end; ++j) {
          for (int64_t e = first; e < first + size; ++e)
            at(p, j) += value(0, base + i, e) * value(1, key_base + j, e);
          at(p, j) /= std::sqrt(static_cast<double>(size));
          if (c.attrs.cap > 0) at(p, j) = capped(at(p, j), c.attrs.cap);
          if (has_mask && at(c.in.back().v, key_base + j) == 0) at(p, j) = -INFINITY;
        }
        softmax_row(p.data() + begin, end - begin);
        if (c.training && c.attrs.factor > 0)
          for (int64_t j = begin, rows = (t + 15) / 16 * 16; j < end; ++j)
            at(p, j) = dropped(
                c, at(p, j),
                static_cast<uint64_t>(
                    (((sample * heads_of_whole + c.attrs.section.begin / size + head) * keys + j) *
                     rows) +
                    i));
        for (int64_t j = begin; j < end; ++j)
          for (int64_t e = first; e < first + size; ++e)
            at(out, (base + i) * d + e) += at(p, j) * value(2, key_base + j, e);
      }
  return out;
}

Values rope(const RefCall& c) {
  const Shape& x = c.in[0].shape;
  const int64_t size = x.last() / c.attrs.heads;
  const auto pairs = static_cast<int64_t>(c.attrs.frequencies.size());
  const double factor = c.attrs.factor == 0 ? 1 : c.attrs.factor;
  Values out;
  for (int64_t e = 0; e < x.elements(); ++e) {
    const int64_t row = e / x.last(), i = e % size, pair = i % std::max<int64_t>(pairs, 1);
    const double position =
        c.in.size() == 2 ? at(c.in[1].v, row) : static_cast<double>(row % x[x.rank - 2]);
    const float angle =
        static_cast<float>(position) * c.attrs.frequencies[static_cast<size_t>(pair)];
    const double sine = std::sin(double{angle}), cosine = std::cos(double{angle});
    double value = at(c.in[0].v, e);
    if (i < pairs)
      value = value * cosine - at(c.in[0].v, e + pairs) * sine;
    else if (i < 2 * pairs)
      value = value * cosine + at(c.in[0].v, e - pairs) * sine;
    out.push_back(i < 2 * pairs ? factor * value : value);
  }
  return out;
}

Values cross_entropy_part(const RefCall& c) {
  const int64_t n = c.in[0].shape.last();
  Values out;
  for (size_t r = 0; r < c.in[1].v.size(); ++r) {
    const int64_t first = static_cast<int64_t>(r) * n;
    const int64_t column = static_cast<int64_t>(c.in[1].v[r]) - c.attrs.section.begin;
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(at(c.in[0].v, first + i));
    out.push_back(std::log(sum));
    out.push_back(0);  // nothing is rounded here
    const bool here = c.in[1].v[r] >= 0 && column >= 0 && column < n;
    out.push_back(here ? at(c.in[0].v, first + column) : 0);
  }
  return out;
}

Values cross_entropy_of_parts(const RefCall& c) {
  double loss = 0;
  for (size_t r = 0; r < c.in[0].v.size(); ++r) {
    if (c.in[0].v[r] < 0) continue;
    double sum = 0;
    for (size_t p = 1; p < c.in.size(); ++p) {
      sum += std::exp(c.in[p].v[3 * r] + c.in[p].v[3 * r + 1]);
      loss -= c.in[p].v[3 * r + 2];
    }
    loss += std::log(sum);
  }
  return {loss};
}

}  // namespace

RefForward find_reference(const std::string& op) {
  static constexpr struct {
    const char* name;
    RefForward forward;
  } rows[] = {
      {"add", binary<std::plus<double>>},
      {"attention", attention},
      {"cached_attention", ref_cached_attention},
      {"concat", concat},
      {"conv1d", ref_conv1d},
      {"conv2d", ref_conv2d},
      {"average_pool", ref_average_pool},
      {"max_pool", ref_max_pool},
      {"gather", gather},
      {"where", where},
      {"cross_entropy_of_parts", cross_entropy_of_parts},
      {"cross_entropy_part", cross_entropy_part},
      {"div", binary<std::divides<double>>},
      {"dropout", dropout},
      {"embedding", embedding},
      {"exp", unary<std::exp>},
      {"gelu", gelu},
      {"batch_norm", ref_batch_norm},
      {"layer_norm", ref_layer_norm},
      {"linear", linear},
      {"log", unary<std::log>},
      {"low_rank", low_rank},
      {"matmul", matmul},
      {"mean", reduce<average>},
      {"max", reduce<greatest>},
      {"sum", reduce<total>},
      {"sum_loss", sum_loss},
      {"rms_norm", ref_rms_norm},
      {"rope", rope},
      {"binary_cross_entropy", binary_cross_entropy},
      {"mse", mse},
      {"mul", binary<std::multiplies<double>>},
      {"neg", unary<negative>},
      {"relu", unary<relu>},
      {"reshape", reshape},
      {"scale", scale},
      {"sigmoid", unary<sigmoid>},
      {"silu", unary<silu>},
      {"slice", slice},
      {"softcap", softcap},
      {"softmax", softmax},
      {"log_softmax", log_softmax},
      {"softmax_cross_entropy", softmax_cross_entropy},
      {"softplus", unary<softplus>},
      {"sqrt", unary<std::sqrt>},
      {"sub", binary<std::minus<double>>},
      {"tanh", unary<std::tanh>},
      {"transpose", transpose},
  };
  for (const auto& row : rows)
    if (op == row.name) return row.forward;
  return nullptr;
}

}  // namespace weft::test
