// Tiles run by real threads, last tile first: the opposite of SerialTiles in every respect that
// must not matter.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "kernels/fpenv.h"
#include "kernels/tiles.h"

namespace weft::test {

class ThreadedTiles final : public Tiles {
 public:
  explicit ThreadedTiles(int threads) : threads_(threads) {}

  void run(int count, Fn fn, void* context) override {
    ++runs;
    if (count > most) most = count;
    std::atomic<int> left = count;
    std::vector<std::thread> pool;
    for (int t = 0; t < threads_; ++t)
      pool.emplace_back([&] {
        ComputeScope scope;
        for (int tile; (tile = --left) >= 0;) fn(context, tile);
      });
    for (std::thread& thread : pool) thread.join();
  }

  int threads() const override { return threads_; }

  int runs = 0;  // calls of run()
  int most = 0;  // the largest count

 private:
  int threads_;
};

}  // namespace weft::test
