// A window that moves along an axis, for convolutions and pooling.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft {

// Of taps, stride, padding and dilation: products of two such numbers fit into int64.
constexpr int64_t kMostWindow = 1 << 20;

inline int64_t ceil_div(int64_t a, int64_t b) { return a <= 0 ? 0 : (a + b - 1) / b; }

// Indices [begin, end); none if end is not above begin.
struct Span {
  int64_t begin, end;

  int64_t count() const { return std::max<int64_t>(0, end - begin); }
  Span within(const Span& other) const {
    return {std::max(begin, other.begin), std::min(end, other.end)};
  }
};

struct Window {
  int64_t extent;  // of the axis
  int64_t taps;
  int64_t stride = 1, padding = 0, dilation = 1;

  // How far the first tap can move.
  int64_t room() const { return extent + 2 * padding - dilation * (taps - 1) - 1; }
  // Positions of the window.
  int64_t count() const { return room() < 0 ? 0 : room() / stride + 1; }
  // The least extent with one position.
  int64_t least() const { return dilation * (taps - 1) + 1 - 2 * padding; }
  // The index that a tap sees at a position; in the padding, it is not in [0, extent).
  int64_t position(int64_t tap, int64_t at) const { return at * stride + offset(tap); }
  // The positions at which a tap sees an index from `first` to before `last`.
  Span seeing(int64_t tap, int64_t first, int64_t last) const {
    return {ceil_div(first - offset(tap), stride),
            std::min(count(), ceil_div(last - offset(tap), stride))};
  }

 private:
  int64_t offset(int64_t tap) const { return tap * dilation - padding; }
};

}  // namespace weft
