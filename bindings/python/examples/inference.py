"""Forward passes through a pipeline of four processes, checked against NumPy: four layers (linear without bias, ReLU) of width 16."""
import sys

import numpy as np
import weft

LAYERS, MICRO_BATCHES, MICRO_BATCH_SIZE, WIDTH = 4, 8, 4, 16


def main():
    np.random.seed(42)
    weights = np.random.randn(LAYERS, WIDTH, WIDTH).astype(np.float32)
    x = np.random.randn(MICRO_BATCHES * MICRO_BATCH_SIZE, WIDTH).astype(np.float32)
    expected = x
    for weight in weights:
        total = np.zeros_like(expected)   # in float32, as in weft, but the order of the sums differs
        for i in range(WIDTH):
            total += expected[:, i, None] * weight[i]
        expected = np.maximum(total, 0)

    model = weft.Model()
    value = model.input("x", (WIDTH,))
    for i in range(LAYERS):
        value = value.linear(WIDTH, bias=False, name=f"layer{i}").relu()
    model.output(value)
    plan = model.plan(ranks=LAYERS, micro_batches=MICRO_BATCHES, micro_batch_size=MICRO_BATCH_SIZE)
    with weft.Run(plan, processes="--in-process" not in sys.argv) as run:
        for i, weight in enumerate(weights):
            run.write(f"layer{i}.weight", weight)
        found = run.forward(x)

    off = np.abs(found.astype(np.float64) - expected).max()
    good = found.min() == 0 and abs(found.max() - 417.7554) <= 1e-4 and off <= 1e-4
    print(f"outputs from {found.min():.4f} to {found.max():.4f}, expected 0 to 417.7554")
    print(f"largest difference to plain loops {off:.3e}, expected at most 1e-4")
    print("ok" if good else "WRONG")
    sys.exit(not good)


if __name__ == "__main__":
    main()
