// What tests of runs need: a result that has to be there, and one step, waited for.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "runtime/run.h"

namespace weft::test {

template <typename T>
T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().text();
  return result.ok() ? result.take() : T();
}

// The final event.
inline RunEvent run_step(Run& run, Mode mode, int64_t samples,
                         const std::vector<const void*>& inputs) {
  Step* step = run.acquire();
  step->mode = mode;
  step->batch.samples = samples;
  step->batch.inputs = inputs;
  EXPECT_TRUE(run.submit(step).ok());
  RunEvent event;
  while (run.poll(event, -1) && event.kind != RunEvent::Kind::done)
    EXPECT_TRUE(event.status.ok()) << event.status.text();
  return event;
}

}  // namespace weft::test
