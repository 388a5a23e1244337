"""Trains a small network in two pipeline stages to approximate a sine."""
import numpy as np
import weft

model = weft.Model()
x, y = model.input("x", (1,)), model.input("y", (1,))
out = x.linear(32, name="hidden").gelu().linear(1, name="out")
out.mse(y)

adamw = weft.AdamW(rate=0.02, curve="cosine", total=500, clip=0)
plan = model.plan(ranks=2, micro_batches=4, micro_batch_size=16, optimizer=adamw)

i = np.arange(64, dtype=np.float32)[:, None]
xs = i / np.float32(10) - np.float32(3.2)
with plan.run() as run:
    for step in range(501):
        loss = run.train(xs, np.sin(xs))
        if step % 100 == 0:
            print(f"step {step:3}  loss {loss:.6f}")
