#include <algorithm>

#include "ops/cases.h"

namespace weft::test {

namespace {

std::vector<int32_t> counting(int32_t from, int32_t to) {
  std::vector<int32_t> out;
  for (int32_t i = from; i < to; ++i) out.push_back(i);
  return out;
}

// The positions of sequences of these lengths, one after another.
std::vector<int32_t> sequences(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> out;
  for (const int32_t length : lengths)
    for (const int32_t position : counting(0, length)) out.push_back(position);
  return out;
}

// Of samples with so many keys, of which these are seen.
std::vector<int32_t> masks(int32_t keys, const std::vector<std::vector<int32_t>>& seen) {
  std::vector<int32_t> out;
  for (const std::vector<int32_t>& sample : seen)
    for (int32_t i = 0; i < keys; ++i)
      out.push_back(std::find(sample.begin(), sample.end(), i) == sample.end() ? 0 : i + 1);
  return out;
}

}  // namespace

std::vector<OpCase> attention_cases() {
  return {
      {.name = "attention/packed",
       .op = "attention",
       .attrs = {.heads = 2},
       .in = {batch({2, 5, 18})}},
      {.name = "attention/causal",
       .op = "attention",
       .attrs = {.heads = 3, .flags = kCausal},
       .in = {batch({2, 7, 45})}},
      {.name = "attention/three inputs",
       .op = "attention",
       .attrs = {.heads = 2},
       .in = {batch({2, 6, 8}), batch({2, 6, 8}), batch({2, 6, 8})}},
      {.name = "attention/of other rows",
       .op = "attention",
       .attrs = {.heads = 2},
       .in = {batch({2, 6, 8}), batch({2, 9, 8}), batch({2, 9, 8})}},
      {.name = "attention/of one other row, grouped queries",
       .op = "attention",
       .attrs = {.heads = 4},
       .in = {batch({2, 5, 24}), batch({2, 1, 12}), batch({2, 1, 12})}},
      {.name = "attention/of other rows, several blocks, cap",
       .op = "attention",
       .attrs = {.heads = 4, .cap = 1.5},
       .in = {batch({2, 70, 24}), batch({2, 150, 12}), batch({2, 150, 12})}},
      {.name = "attention/of other rows, dropout",
       .op = "attention",
       .attrs = {.heads = 2, .factor = 0.2},
       .in = {batch({2, 20, 8}), batch({2, 7, 8}), batch({2, 7, 8})}},
      {.name = "attention/mask",
       .op = "attention",
       .attrs = {.heads = 3},
       .in = {batch({2, 7, 45}), int_batch({2, 7})},
       .ints = {masks(7, {{0, 1, 2, 3}, {2, 5}})}},
      {.name = "attention/mask of other rows",
       .op = "attention",
       .attrs = {.heads = 2},
       .in = {batch({2, 3, 8}), batch({2, 9, 8}), batch({2, 9, 8}), int_batch({2, 9})},
       .ints = {masks(9, {{8}, {0, 3, 4, 5, 7}})}},
      {.name = "attention/mask, several blocks, grouped queries, dropout",
       .op = "attention",
       .attrs = {.heads = 4, .factor = 0.2},
       .in = {batch({2, 70, 24}), batch({2, 150, 12}), batch({2, 150, 12}), int_batch({2, 150})},
       .ints = {masks(150, {counting(0, 100), {66, 67, 68, 80, 130}})}},
      {.name = "attention/mask, cap",
       .op = "attention",
       .attrs = {.heads = 2, .cap = 0.5},
       .in = {batch({3, 20, 12}), int_batch({3, 20})},
       .ints = {masks(20, {counting(0, 20), counting(0, 3), counting(15, 20)})}},
      {.name = "attention/grouped queries",
       .op = "attention",
       .attrs = {.heads = 4, .flags = kCausal},
       .in = {batch({2, 70, 24}), batch({2, 70, 12}), batch({2, 70, 12})}},
      {.name = "attention/one head of keys, dropout",
       .op = "attention",
       .attrs = {.heads = 3, .factor = 0.2},
       .in = {batch({2, 7, 15}), batch({2, 7, 5}), batch({2, 7, 5})}},
      {.name = "attention/several blocks",
       .op = "attention",
       .attrs = {.heads = 2, .flags = kCausal},
       .in = {batch({2, 70, 24})}},
      {.name = "attention/positions",
       .op = "attention",
       .attrs = {.heads = 3, .flags = kCausal},
       .in = {batch({2, 7, 45}), int_batch({2, 7})},
       .ints = {sequences({3, 2, 1, 1, 7})}},
      {.name = "attention/positions, several blocks",
       .op = "attention",
       .attrs = {.heads = 4, .flags = kCausal},
       .in = {batch({2, 200, 24}), batch({2, 200, 12}), batch({2, 200, 12}), int_batch({2, 200})},
       .ints = {sequences({3, 67, 2, 78, 50, 64, 136})}},
      {.name = "attention/positions, dropout",
       .op = "attention",
       .attrs = {.heads = 2, .flags = kCausal, .factor = 0.2},
       .in = {batch({2, 70, 24}), int_batch({2, 70})},
       .ints = {sequences({20, 45, 5, 69, 1})}},
      {.name = "attention/window",
       .op = "attention",
       .attrs = {.heads = 3, .flags = kCausal, .dims = {3}},
       .in = {batch({2, 7, 45})}},
      {.name = "attention/window of one row",
       .op = "attention",
       .attrs = {.heads = 2, .flags = kCausal, .dims = {1}},
       .in = {batch({2, 7, 12})}},
      {.name = "attention/window, several blocks",
       .op = "attention",
       .attrs = {.heads = 4, .flags = kCausal, .dims = {70}},
       .in = {batch({2, 200, 24}), batch({2, 200, 12}), batch({2, 200, 12})}},
      {.name = "attention/window, positions, dropout",
       .op = "attention",
       .attrs = {.heads = 2, .flags = kCausal, .factor = 0.2, .dims = {9}},
       .in = {batch({2, 70, 24}), int_batch({2, 70})},
       .ints = {sequences({20, 45, 5, 69, 1})}},
      {.name = "attention/cap",
       .op = "attention",
       .attrs = {.heads = 2, .cap = 0.5},
       .in = {batch({2, 5, 18})}},
      {.name = "attention/cap, several blocks",
       .op = "attention",
       .attrs = {.heads = 4, .flags = kCausal, .cap = 1.5},
       .in = {batch({2, 200, 24}), batch({2, 200, 12}), batch({2, 200, 12})}},
      {.name = "attention/cap, window, positions, dropout",
       .op = "attention",
       .attrs = {.heads = 2, .flags = kCausal, .factor = 0.2, .cap = 2, .dims = {9}},
       .in = {batch({2, 70, 24}), int_batch({2, 70})},
       .ints = {sequences({20, 45, 5, 69, 1})}},
      {.name = "attention/dropout",
       .op = "attention",
       .attrs = {.heads = 2, .factor = 0.4},
       .in = {batch({2, 5, 18})}},
      {.name = "attention/dropout in several blocks",
       .op = "attention",
       .attrs = {.heads = 2, .flags = kCausal, .factor = 0.2},
       .in = {batch({2, 70, 24})}},
      {.name = "attention/dropout of some heads",
       .op = "attention",
       .attrs = {.heads = 2, .factor = 0.4, .section = {.axis = 2, .begin = 3, .whole = 12}},
       .in = {batch({2, 5, 18})}},
      {.name = "attention/dropout, not training",
       .op = "attention",
       .attrs = {.heads = 2, .factor = 0.4},
       .in = {batch({2, 5, 18})},
       .training = false},
      {.name = "cached_attention/packed",
       .op = "cached_attention",
       .attrs = {.heads = 2, .dims = {3, 7}},
       .in = {batch({8, 18}), int_batch({8}), int_batch({8})},
       .ints = {{0, 1, 0, 2, 9, 0, 1, 3}, {2, 2, 0, 2, -1, 1, 1, 2}}},
      {.name = "cached_attention/shared keys",
       .op = "cached_attention",
       .attrs = {.heads = 6, .dims = {1, 80}},
       .in = {batch({70, 30}), batch({70, 10}), batch({70, 10}), int_batch({70}), int_batch({70})},
       .ints = {counting(0, 70), std::vector<int32_t>(70, 0)}},
      {.name = "cached_attention/many queries per key",
       .op = "cached_attention",
       .attrs = {.heads = 70, .dims = {1, 5}},
       .in = {batch({5, 140}), batch({5, 2}), batch({5, 2}), int_batch({5}), int_batch({5})},
       .ints = {counting(0, 5), std::vector<int32_t>(5, 0)}},
      {.name = "cached_attention/window",
       .op = "cached_attention",
       .attrs = {.heads = 6, .dims = {1, 80, 5}},
       .in = {batch({70, 30}), batch({70, 10}), batch({70, 10}), int_batch({70}), int_batch({70})},
       .ints = {counting(0, 70), std::vector<int32_t>(70, 0)}},
      {.name = "cached_attention/cap",
       .op = "cached_attention",
       .attrs = {.heads = 6, .cap = 0.5, .dims = {1, 80, 5}},
       .in = {batch({70, 30}), batch({70, 10}), batch({70, 10}), int_batch({70}), int_batch({70})},
       .ints = {counting(0, 70), std::vector<int32_t>(70, 0)}},
      {.name = "cached_attention/bf16",
       .op = "cached_attention",
       .attrs = {.heads = 2, .flags = kBf16Cache, .dims = {2, 20}},
       .in = {batch({20, 24}), int_batch({20}), int_batch({20})},
       .tolerance = 2e-2,
       .ints = {counting(0, 20), std::vector<int32_t>(20, 1)}},
  };
}

}  // namespace weft::test
