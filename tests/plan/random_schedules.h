// Random schedules that are valid because they are the record of a run, and random ways to spoil
// them.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "schedule/check.h"

namespace weft {

// Repeatable on every machine: the engine is specified by the standard, the distributions of the
// library are not and go unused.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>((engine_() >> 32) % bound); }
  int32_t from_to(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(below(static_cast<uint32_t>(high - low + 1)));
  }

 private:
  std::mt19937_64 engine_;
};

struct Case {
  Schedule schedule;
  std::vector<StageEdge> edges;
};

// Either a schedule of the table with any sizes that it takes, or one with chunks, I and W apart
// and any order that data allows; with random edges.
Case random_valid_case(Dice& dice);

// Swaps, moves (within its rank or to another), drops, doubles or changes an action, swaps two rows
// or two kinds, or draws a row anew in an order that each stage permits by itself. May leave
// a schedule valid.
void corrupt(Schedule& schedule, Dice& dice);

}  // namespace weft
