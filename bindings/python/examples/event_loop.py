"""Trains the network of embed.py in two processes. Each has a loop of asyncio, which never waits for weft."""
import asyncio
import sys

import numpy as np
import weft

STEPS = 500


def make_plan():
    model = weft.Model()
    x, y = model.input("x", (1,)), model.input("y", (1,))
    x.linear(32, name="hidden").gelu().linear(1, name="out").mse(y)
    adamw = weft.AdamW(rate=0.02, curve="cosine", total=STEPS, clip=0)
    return model.plan(ranks=2, micro_batches=4, micro_batch_size=16, optimizer=adamw)


async def control():
    """Rank 0."""
    xs = np.arange(64, dtype=np.float32)[:, None] / np.float32(10) - np.float32(3.2)
    ys = np.sin(xs)
    mesh = weft.Mesh.listen()
    with weft.Run(make_plan(), mesh, wait=False) as run:
        other = await asyncio.create_subprocess_exec(sys.executable, __file__, mesh.join_endpoint)
        async for event in run:
            if event.kind == weft.EventKind.JOINED:
                print(f"rank {event.rank} has joined, {event.missing} are missing")
            elif event.kind == weft.EventKind.STARTED:
                print(f"started with {event.ranks} ranks")
        for step in range(STEPS + 1):
            done = await run.step_async(xs, ys)
            if step % 100 == 0:
                print(f"step {step:3}  loss {done.loss:.6f}")
    print(f"rank 1 has ended with status {await other.wait()}")


async def serve(endpoint):
    """Any other rank."""
    with weft.Mesh.join(endpoint) as mesh:
        await mesh.serve_async()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]) if len(sys.argv) > 1 else control())
