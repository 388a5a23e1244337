#!/usr/bin/env python3
"""Prints tests/data/optim.h: parameters after some steps of each update rule, computed by optax in double precision.

usage: optim.py > optim.h        needs jax and optax

optax's rules are torch's in other words: sqrt(v / (1 - b2^t)) + eps is sqrt(v) / sqrt(1 - b2^t) + eps, and its adamw takes
rate * decay * w off the weight from before the step. Adam's own decay (torch's `weight_decay`) is a decay added to the gradient first.
"""
import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402

COUNT = 7
STEPS = (1, 3, 10)


def weights():
    return jnp.array([(i * 5 % 7 - 3) / 4 for i in range(COUNT)], dtype=jnp.float64)


def gradient(step):
    return jnp.array([((i * 7 + step * 3) % 11 - 5) / 8 for i in range(COUNT)], dtype=jnp.float64)


def adam(rate, decay=0.0):
    return optax.chain(optax.add_decayed_weights(decay), optax.adam(rate, b1=0.9, b2=0.999, eps=1e-8))


def sgd(rate, momentum=None, decay=0.0):
    return optax.chain(optax.add_decayed_weights(decay), optax.sgd(rate, momentum=momentum))


def adamw(rate, decay, b1=0.9, b2=0.999, eps=1e-8):
    return optax.adamw(rate, b1=b1, b2=b2, eps=eps, weight_decay=decay)


# name, rule, (rate, momentum, beta1, beta2, eps, weight decay, scale of the gradient), optax's transformation
CASES = [
    ("sgd", "sgd", (0.1, 0, 0.9, 0.999, 1e-8, 0, 1), sgd(0.1)),
    ("sgd with momentum and decay", "sgd", (0.05, 0.75, 0.9, 0.999, 1e-8, 0.125, 0.5), sgd(0.05, 0.75, 0.125)),
    ("adam", "adam", (0.01, 0, 0.9, 0.999, 1e-8, 0, 1), adam(0.01)),
    ("adam with decay", "adam", (0.01, 0, 0.9, 0.999, 1e-8, 0.25, 1), adam(0.01, 0.25)),
    ("adamw", "adamw", (0.02, 0, 0.9, 0.999, 1e-8, 0.25, 1), adamw(0.02, 0.25)),
    ("adamw, large eps, scaled", "adamw", (0.02, 0, 0.8, 0.95, 0.125, 0.5, 0.25), adamw(0.02, 0.5, 0.8, 0.95, 0.125)),
]


def run(transformation, scale):
    params, out = weights(), {}
    state = transformation.init(params)
    for step in range(max(STEPS)):
        updates, state = transformation.update(gradient(step) * scale, state, params)
        params = optax.apply_updates(params, updates)
        out[step + 1] = params
    return out


def braces(values):
    return "{" + ", ".join(repr(float(v)) for v in values) + "}"


def main():
    print(f"// Printed by optim.py with jax {jax.__version__} and optax {optax.__version__}; do not edit.")
    print("#pragma once\n\n#include \"optim/optim.h\"\n\n// clang-format off")
    print("namespace weft::test {\n")
    print(f"constexpr int kOptimCount = {COUNT};")
    print(f"constexpr int kOptimSteps[] = {{{', '.join(map(str, STEPS))}}};\n")
    print("struct OptimCase {\n  const char* name;\n  Rule rule;\n"
          "  double rate, momentum, beta1, beta2, eps, weight_decay, scale;\n"
          "  double weights[3][kOptimCount];  // after each of kOptimSteps\n};\n")
    print("constexpr OptimCase kOptimCases[] = {")
    for name, rule, numbers, transformation in CASES:
        after = run(transformation, numbers[-1])
        print(f'  {{"{name}", Rule::{rule}, {", ".join(map(repr, numbers))},')
        print("   {" + ",\n    ".join(braces(after[s]) for s in STEPS) + "}},")
    print("};\n")
    schedule = optax.cosine_decay_schedule(0.5, 20, alpha=0.1)
    print("// Rate 0.5, 5 steps of warm-up, 25 in all, least rate 0.05: the rates of steps 5 to 25.")
    rates = [repr(float(schedule(s))) for s in range(21)]
    print("constexpr double kCosineRates[] = {")
    for i in range(0, 21, 5):
        print("  " + ", ".join(rates[i:i + 5]) + ",")
    print("};\n\n}  // namespace weft::test")


if __name__ == "__main__":
    main()
