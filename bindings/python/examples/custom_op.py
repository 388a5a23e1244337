"""An op of the program, with parameters and a stash, in a pipeline over three processes.

LowRank adds a correction to x [n, width]: y = x + h B with h = x A, A [width, rank] and B [rank, width]. h is its stash.
With --in-process the ranks are in one process; the output is the same. The sums have the order of examples/custom_op.c."""
import sys

import numpy as np
import weft

IN, WIDTH, RANK, SAMPLES = 4, 16, 2, 32


def product(a, b):
    """a b, added from the first column of a to the last."""
    out = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for i in range(a.shape[1]):
        out += a[:, i, None] * b[i]
    return out


class LowRank(weft.Op):
    backward_reads = weft.OpReads.PARAMS   # less memory than with the default, which is everything
    backward_params_reads = weft.OpReads.INPUTS | weft.OpReads.PARAMS | weft.OpReads.STASH

    def stash(self, inputs, params):
        return inputs[0].dims[0], params[0].dims[1]

    def forward(self, call):
        (x,), (a, b) = call.inputs, call.params
        call.stash[:] = product(x, a)
        call.output[:] = x
        for k in range(b.shape[0]):
            call.output[:] += call.stash[:, k, None] * b[k]

    def backward(self, call):
        a, b = call.params
        dx, dh = call.grad_inputs[0], product(call.grad_output, b.T)
        dx[:] = call.grad_output
        for k in range(b.shape[0]):
            dx += dh[:, k, None] * a[:, k]

    def backward_params(self, call):
        (x,), (_, b), (da, db) = call.inputs, call.params, call.grad_params
        if da is not None:
            da[:] = product(x.T, product(call.grad_output, b.T))
        if db is not None:
            db[:] = product(call.stash.T, call.grad_output)


def main():
    model, op = weft.Model(), LowRank()

    def low_rank(value, name):
        a = model.parameter(f"{name}.a", (WIDTH, RANK), "normal", 0.25)
        b = model.parameter(f"{name}.b", (RANK, WIDTH), "normal", 0.25)
        return model.apply(op, value, params=[a, b], name=name)

    x, y = model.input("x", (IN,)), model.input("y", (1,))
    hidden = low_rank(x.linear(WIDTH, name="in"), "first").tanh()
    low_rank(hidden, "second").linear(1, name="out").mse(y)
    plan = model.plan(ranks=3, micro_batches=4, micro_batch_size=SAMPLES // 4, optimizer=weft.AdamW(0.02))

    # The target is the product of the first two numbers.
    xs = (np.arange(SAMPLES * IN).reshape(SAMPLES, IN) * 37 % 101).astype(np.float32) / np.float32(50) - np.float32(1)
    ys = xs[:, :1] * xs[:, 1:2]
    with weft.Run(plan, processes="--in-process" not in sys.argv) as run:
        for step in range(301):
            loss = run.train(xs, ys)
            if step % 100 == 0:
                print(f"step {step:3}  loss {loss:.6f}")


if __name__ == "__main__":
    main()
