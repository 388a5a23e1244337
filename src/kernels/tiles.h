// Distributes the tiles of a kernel over threads. Neither the tiles nor the threads that run them
// affect the result.
#pragma once

namespace weft {

class Tiles {
 public:
  using Fn = void (*)(void* context, int tile);
  virtual ~Tiles() = default;
  // Runs fn(context, 0 .. count-1), each once, in any order, possibly at the same time; returns
  // when all are done. Never allocates.
  virtual void run(int count, Fn fn, void* context) = 0;
  virtual int threads() const = 0;
};

// The caller's thread, ascending.
class SerialTiles final : public Tiles {
 public:
  void run(int count, Fn fn, void* context) override {
    for (int i = 0; i < count; ++i) fn(context, i);
  }
  int threads() const override { return 1; }
};

// for_tiles(tiles, n, [&](int tile) { ... });
template <typename F>
void for_tiles(Tiles& tiles, int count, F&& body) {
  auto trampoline = [](void* context, int tile) { (*static_cast<F*>(context))(tile); };
  tiles.run(count, trampoline, &body);
}

}  // namespace weft
