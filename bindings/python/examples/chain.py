"""The worked example of gpipe.py and mesh_2d.py: four layers (linear, ReLU) of width 16 and the mean squared error, with the same
computation by hand, in float64, for a comparison."""
import sys

import numpy as np
import weft

LAYERS, MICRO_BATCH_SIZE, WIDTH = 4, 4, 16
NAMES = [f"layer{i}" for i in range(LAYERS)]


def draw(samples):
    """Weights, biases, inputs and targets, as examples/chain.h draws them."""
    np.random.seed(42)
    shapes = (LAYERS, WIDTH, WIDTH), (LAYERS, WIDTH), (samples, WIDTH), (samples, WIDTH)
    return [np.random.randn(*shape).astype(np.float32) for shape in shapes]


def exact(weights, biases, x, target):
    """The loss, and the gradients of weights, biases and inputs, layer after layer."""
    values = [x.astype(np.float64)]
    for weight, bias in zip(weights, biases):
        values.append(np.maximum(values[-1] @ weight + bias, 0))
    off = values[-1] - target
    loss, grad = np.mean(off**2), 2 * off / off.size
    grads = []
    for value, below, weight in zip(values[:0:-1], values[-2::-1], weights[::-1]):
        grad = grad * (value > 0)
        grads.insert(0, (below.T @ grad, grad.sum(0)))
        grad = grad @ weight.T
    return loss, np.array([w for w, _ in grads]), np.array([b for _, b in grads]), grad


def make_plan(stages, micro_batches, **options):
    """Each stage has as many layers as the others, or one more."""
    model = weft.Model()
    x, target = model.input("x", (WIDTH,), want_grad=True), model.input("target", (WIDTH,))
    for name in NAMES:
        x = x.linear(WIDTH, name=name).relu()
    x.mse(target)
    return model.plan(micro_batches=micro_batches, micro_batch_size=MICRO_BATCH_SIZE, optimizer=weft.SGD(1e-6, clip=0),
                      cuts=[NAMES[s * LAYERS // stages] for s in range(1, stages)], **options)


def compute(plan, processes, weights, biases, x, target):
    """The same from weft, and the digest after a training step, which depends on every gradient."""
    with weft.Run(plan, processes=processes) as run:
        for name, weight, bias in zip(NAMES, weights, biases):
            run.write(name + ".weight", weight)
            run.write(name + ".bias", bias)
        loss = run.gradients(x, target)
        grads = [np.array([run.read(f"{name}.{kind}", "grad") for name in NAMES]) for kind in ("weight", "bias")]
        found = loss, *grads, run.read("x", "grad")
        run.train(x, target)
        return found, run.digest()


def check(what, found, expected, tolerance):
    good = abs(found - expected) <= tolerance
    print(f"{what:<26} {found:12.4f}   expected {expected:.4f} +- {tolerance:.4f}   {'ok' if good else 'WRONG'}")
    return good


def compare_all(found, expected):
    print("largest differences to the same computation in double:")
    good = True
    for what, i in (("input", 3), ("weight", 1), ("bias", 2)):
        off = np.abs(found[i] - expected[i]).max()
        good &= bool(off <= 5e-4)
        print(f"{f'  {what} gradients':<26} {off:12.3e}   expected at most 5e-4   {'ok' if off <= 5e-4 else 'WRONG'}")
    return good


def end(good, digest):
    print(f"parameters after one step of SGD: {digest}")
    sys.exit(not good)
