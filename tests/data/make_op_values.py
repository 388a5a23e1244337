#!/usr/bin/env python3
"""Writes op_values.json beside itself: values and gradients of each op as JAX computes them, in double precision.

    python3 -m venv venv && venv/bin/pip install jax && venv/bin/python tests/data/make_op_values.py

Inputs have three decimals and are exact in the file; a float rounds them once. One line per case.
"""
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")
rng = np.random.default_rng(20)

TANH, CAUSAL, OUT_IN, POSITIONS, UNIT_OFFSET = 1, 2, 4, 8, 32
cases = []


def exact(x):
    """Three decimals, rounded to a float."""
    return np.float32(np.round(x, 3)).astype(np.float64)


def normal(*shape):
    return exact(rng.standard_normal(shape))


def integers(low, high, *shape):
    return rng.integers(low, high, shape).astype(np.int32)


def flat(x):
    return [float(f"{v:.9g}") for v in np.asarray(x, dtype=np.float64).ravel()]


def tensor(x):
    kind = "i32" if x.dtype == np.int32 else "f32"
    data = [int(v) for v in x.ravel()] if kind == "i32" else [float(f"{v:.7g}") for v in x.ravel()]
    return {"dtype": kind, "shape": list(x.shape), "data": data}


def case(name, op, forward, inputs, weights=(), denominator=None, **attrs):
    """forward(inputs, weights) -> out; a loss has a denominator and its gradient is divided by it."""
    inputs, weights = [x if x.dtype == np.int32 else exact(x) for x in inputs], list(weights)
    floats = [i for i, x in enumerate(inputs) if x.dtype == np.float64]
    if denominator is not None:
        floats = floats[:1]  # targets have no gradient

    def run(some, w):
        full = list(inputs)
        for i, x in zip(floats, some):
            full[i] = x
        return forward(full, w)

    out, back = jax.vjp(run, [jnp.asarray(inputs[i]) for i in floats], [jnp.asarray(w) for w in weights])
    dout = normal(*out.shape) if denominator is None else np.full(out.shape, 1 / denominator)
    din, dweights = back(jnp.asarray(dout))
    gradients = [None] * len(inputs)
    for i, g in zip(floats, din):
        gradients[i] = flat(g)
    row = {"name": name, "op": op, "attrs": attrs, "in": [tensor(x) for x in inputs], "weights": [tensor(w) for w in weights],
           "out": flat(out), "din": gradients, "dweights": [flat(g) for g in dweights]}
    if denominator is None:
        row["dout"] = flat(dout)
    else:
        row["denominator"] = denominator
    cases.append(row)


def linear(out_in):
    return lambda x, w: x[0] @ (w[0].T if out_in else w[0]) + (w[1] if len(w) == 2 else 0)


def attention(heads, causal):
    def forward(x, _):
        q, k, v = jnp.split(x[0], 3, axis=-1) if len(x) == 1 else x
        split = [y.reshape(*y.shape[:-1], heads, -1) for y in (q, k, v)]
        return jax.nn.dot_product_attention(*split, is_causal=causal).reshape(q.shape)
    return forward


def layer_norm(eps):
    return lambda x, w: jax.nn.standardize(x[0], axis=-1, epsilon=eps) * w[0] + w[1]


def cross_entropy(x, _):
    logits, targets = x
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.maximum(targets, 0)[..., None], axis=-1)[..., 0]
    return -jnp.sum(jnp.where(targets >= 0, picked, 0)).reshape(1)


def conv1d(stride, padding, dilation):
    def forward(x, w):
        y = jax.lax.conv_general_dilated(x[0], w[0], (stride,), [(padding, padding)], rhs_dilation=(dilation,),
                                         dimension_numbers=("NWC", "WIO", "NWC"))
        return y + (w[1] if len(w) == 2 else 0)
    return forward


case("add", "add", lambda x, _: x[0] + x[1], [normal(3, 5), normal(3, 5)])
case("attention packed", "attention", attention(2, False), [normal(2, 5, 24)], heads=2)
case("attention causal", "attention", attention(3, True), [normal(2, 6, 36)], heads=3, flags=CAUSAL)
case("attention three inputs", "attention", attention(2, True), [normal(2, 4, 8) for _ in range(3)], heads=2, flags=CAUSAL)
case("concat", "concat", lambda x, _: jnp.concatenate(x, axis=1), [normal(2, 3, 2), normal(2, 1, 2), normal(2, 2, 2)], axis=1)
case("embedding", "embedding", lambda x, w: w[0][x[0]], [integers(0, 7, 2, 5)], [normal(7, 6)])
case("embedding positions", "embedding", lambda x, w: jnp.broadcast_to(w[0][:5], (2, 5, 6)), [integers(0, 7, 2, 5)], [normal(7, 6)],
     flags=POSITIONS)
case("gelu erf", "gelu", lambda x, _: jax.nn.gelu(x[0], approximate=False), [3 * normal(4, 9)])
case("gelu tanh", "gelu", lambda x, _: jax.nn.gelu(x[0], approximate=True), [3 * normal(4, 9)], flags=TANH)
case("layer norm", "layer_norm", layer_norm(1e-5), [normal(2, 3, 19)], [normal(19), normal(19)], factor=1e-5)
case("layer norm far from 0", "layer_norm", layer_norm(1e-5), [normal(4, 33) + 10], [normal(33), normal(33)], factor=1e-5)
case("linear", "linear", linear(False), [normal(2, 3, 7)], [normal(7, 5), normal(5)])
case("linear no bias", "linear", linear(False), [normal(4, 7)], [normal(7, 5)])
case("linear out in", "linear", linear(True), [normal(4, 7)], [normal(5, 7), normal(5)], flags=OUT_IN)
case("matmul", "matmul", lambda x, _: x[0] @ x[1], [normal(2, 3, 4, 5), normal(2, 3, 5, 2)])
case("mean last", "mean", lambda x, _: x[0].mean(axis=2), [normal(2, 3, 7)], axis=2)
case("mean middle", "mean", lambda x, _: x[0].mean(axis=1), [normal(2, 5, 7)], axis=1)
case("mse", "mse", lambda x, _: jnp.sum((x[0] - x[1]) ** 2).reshape(1), [normal(3, 7), normal(3, 7)], denominator=21)
case("mul", "mul", lambda x, _: x[0] * x[1], [normal(3, 5), normal(3, 5)])
case("relu", "relu", lambda x, _: jax.nn.relu(x[0]), [normal(4, 9)])
case("reshape", "reshape", lambda x, _: x[0].reshape(-1, 6), [normal(2, 3, 4)], dims=[-1, 6])
case("scale", "scale", lambda x, _: x[0] * 0.75, [normal(3, 7)], factor=0.75)
case("slice", "slice", lambda x, _: x[0][:, 1:3], [normal(2, 4, 3)], axis=1, begin=1, end=3)
case("softmax", "softmax", lambda x, _: jax.nn.softmax(x[0]), [3 * normal(4, 17)])
case("softmax far from 0", "softmax", lambda x, _: jax.nn.softmax(x[0]), [20 * normal(4, 5) + 500])
case("cross entropy", "softmax_cross_entropy", cross_entropy, [2 * normal(3, 4, 11), integers(0, 11, 3, 4)], denominator=12)
case("cross entropy ignored", "softmax_cross_entropy", cross_entropy,
     [2 * normal(2, 5, 11), np.int32([[3, -1, 0, 10, -1], [-1, -1, 7, 7, 2]])], denominator=6)
case("transpose", "transpose", lambda x, _: x[0].transpose(0, 2, 1, 3), [normal(2, 3, 2, 4)], dims=[0, 2, 1, 3])
case("conv1d", "conv1d", conv1d(1, 1, 1), [normal(2, 7, 4)], [normal(3, 4, 5), normal(5)], dims=[1, 1])
case("conv1d no bias", "conv1d", conv1d(1, 0, 1), [normal(2, 6, 3)], [normal(4, 3, 2)])
case("conv1d strided", "conv1d", conv1d(2, 3, 2), [normal(2, 9, 3)], [normal(4, 3, 4), normal(4)], dims=[2, 3, 2])

# New rows follow, so that the rows before keep their random numbers.


def positive(*shape):
    return exact(np.abs(rng.standard_normal(shape)) + 0.5)


def by_parameter(f):
    return lambda x, w: f(x[0], w[0])


case("add broadcast", "add", lambda x, _: x[0] + x[1] + x[2], [normal(2, 3, 5), normal(2, 1, 5), normal(2, 3, 1)])
case("add parameter", "add", by_parameter(jnp.add), [normal(2, 3, 5)], [normal(3, 1)])
case("sub", "sub", lambda x, _: x[0] - x[1], [normal(3, 5), normal(3, 5)])
case("sub broadcast", "sub", lambda x, _: x[0] - x[1], [normal(2, 1, 5), normal(2, 3, 1)])
case("sub parameter", "sub", by_parameter(jnp.subtract), [normal(4, 5)], [normal(5)])
case("mul broadcast", "mul", lambda x, _: x[0] * x[1], [normal(2, 4, 1, 3), normal(2, 1, 5, 3)])
case("mul parameter", "mul", by_parameter(jnp.multiply), [normal(4, 3, 5)], [normal(3, 5)])
case("div", "div", lambda x, _: x[0] / x[1], [normal(3, 5), positive(3, 5)])
case("div broadcast", "div", lambda x, _: x[0] / x[1], [normal(2, 3, 5), positive(2, 3, 1)])
case("neg", "neg", lambda x, _: -x[0], [normal(3, 5)])
case("exp", "exp", lambda x, _: jnp.exp(x[0]), [normal(4, 9)])
case("log", "log", lambda x, _: jnp.log(x[0]), [positive(4, 9)])
case("sqrt", "sqrt", lambda x, _: jnp.sqrt(x[0]), [positive(4, 9)])
case("tanh", "tanh", lambda x, _: jnp.tanh(x[0]), [2 * normal(4, 9)])
case("sigmoid", "sigmoid", lambda x, _: jax.nn.sigmoid(x[0]), [5 * normal(4, 9)])
case("silu", "silu", lambda x, _: jax.nn.silu(x[0]), [5 * normal(4, 9)])
case("softplus", "softplus", lambda x, _: jax.nn.softplus(x[0]), [5 * normal(4, 9)])

case("max last", "max", lambda x, _: x[0].max(axis=2), [normal(2, 3, 7)], axis=2)
case("max two axes", "max", lambda x, _: x[0].max(axis=(1, 2)), [normal(2, 5, 3, 4)], dims=[1, 2])
case("sum middle", "sum", lambda x, _: x[0].sum(axis=1), [normal(2, 5, 7)], axis=1)
case("sum two axes", "sum", lambda x, _: x[0].sum(axis=(2, 3)), [normal(2, 3, 4, 5)], dims=[2, 3])
case("mean two axes", "mean", lambda x, _: x[0].mean(axis=(1, 2)), [normal(2, 5, 3, 4)], dims=[1, 2])
case("rms norm", "rms_norm", lambda x, w: x[0] / jnp.sqrt(jnp.mean(x[0] ** 2, axis=-1, keepdims=True) + 1e-5) * w[0],
     [normal(2, 3, 19)], [normal(19)], factor=1e-5)
case("binary cross entropy", "binary_cross_entropy", lambda x, _: -jnp.sum(
    x[1] * jax.nn.log_sigmoid(x[0]) + (1 - x[1]) * jax.nn.log_sigmoid(-x[0])).reshape(1),
     [4 * normal(3, 7), integers(0, 2, 3, 7).astype(np.float64)], denominator=21)
case("binary cross entropy of shares", "binary_cross_entropy", lambda x, _: -jnp.sum(
    x[1] * jax.nn.log_sigmoid(x[0]) + (1 - x[1]) * jax.nn.log_sigmoid(-x[0])).reshape(1),
     [4 * normal(3, 7), exact(rng.random((3, 7)))], denominator=21)


def smoothed(x, _):
    logits, targets = x
    log = jax.nn.log_softmax(logits)
    picked = jnp.take_along_axis(log, jnp.maximum(targets, 0)[..., None], axis=-1)[..., 0]
    return -jnp.sum(jnp.where(targets >= 0, 0.9 * picked + 0.1 * log.mean(axis=-1), 0)).reshape(1)


case("cross entropy smoothed", "softmax_cross_entropy", smoothed,
     [2 * normal(2, 5, 11), np.int32([[3, -1, 0, 10, -1], [-1, -1, 7, 7, 2]])], denominator=6, factor=0.1)
case("sum loss", "sum_loss", lambda x, _: x[0].sum().reshape(1), [normal(3, 7), normal(3, 2)], denominator=3)


def conv2d(stride, padding, dilation, groups=1):
    def forward(x, w):
        y = jax.lax.conv_general_dilated(x[0], w[0], (stride, stride), [(padding, padding)] * 2, rhs_dilation=(dilation, dilation),
                                         dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups)
        return y + (w[1] if len(w) == 2 else 0)
    return forward


def pool(size, stride, padding, most):
    def forward(x, _):
        how = ((1, size, size, 1), (1, stride, stride, 1), [(0, 0), (padding, padding), (padding, padding), (0, 0)])
        if most:
            return jax.lax.reduce_window(x[0], -jnp.inf, jax.lax.max, *how)
        return jax.lax.reduce_window(x[0], 0.0, jax.lax.add, *how) / size ** 2
    return forward


case("conv2d", "conv2d", conv2d(1, 1, 1), [normal(2, 5, 6, 3)], [normal(3, 3, 3, 4), normal(4)], dims=[1, 1])
case("conv2d strided", "conv2d", conv2d(2, 3, 2), [normal(2, 5, 8, 3)], [normal(3, 4, 3, 4)], dims=[2, 3, 2])
case("conv2d groups", "conv2d", conv2d(1, 1, 1, 2), [normal(2, 4, 5, 6)], [normal(3, 3, 3, 4), normal(4)], dims=[1, 1, 1, 2])
case("max pool", "max_pool", pool(3, 2, 1, True), [normal(2, 6, 7, 3)], dims=[3, 2, 1])
case("max pool two", "max_pool", pool(2, 2, 0, True), [normal(2, 6, 7, 3)], dims=[2])
case("average pool", "average_pool", pool(3, 2, 1, False), [normal(2, 6, 7, 3)], dims=[3, 2, 1])
case("gather rows", "gather", lambda x, _: jax.vmap(lambda row, i: row[i])(*x), [normal(2, 5, 3), integers(0, 5, 2, 7)], axis=1)
case("gather last", "gather", lambda x, _: jnp.take_along_axis(x[0], x[1], axis=2), [normal(2, 3, 5), integers(0, 5, 2, 3, 4)], axis=2)
case("where", "where", lambda x, _: jnp.where(x[0] != 0, x[1], x[2]), [integers(0, 2, 2, 4, 5), normal(2, 4, 5), normal(2, 4, 1)])


def grouped_attention(heads, key_heads):
    def forward(x, _):
        q, k, v = [y.reshape(*y.shape[:-1], n, -1) for y, n in zip(x, (heads, key_heads, key_heads))]
        return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x[0].shape)
    return forward


def rope(heads, frequencies, factor=1):
    """Rotates columns i and i + n of each head."""
    def forward(x, _):
        rows = x[0].reshape(*x[0].shape[:-1], heads, -1)
        position = x[1] if len(x) == 2 else jnp.broadcast_to(jnp.arange(rows.shape[1]), rows.shape[:2])
        turn = jnp.exp(1j * position[..., None] * jnp.array(frequencies))[..., None, :]
        n = len(frequencies)
        y = (rows[..., :n] + 1j * rows[..., n:2 * n]) * turn
        return jnp.concatenate([factor * y.real, factor * y.imag, rows[..., 2 * n:]], axis=-1).reshape(x[0].shape)
    return forward


case("attention grouped queries", "attention", grouped_attention(6, 2), [normal(2, 5, 24), normal(2, 5, 8), normal(2, 5, 8)], heads=6,
     flags=CAUSAL)
case("rope", "rope", rope(3, [1.0, 0.125]), [normal(2, 7, 12)], heads=3, frequencies=[1.0, 0.125])
case("rope part of a head", "rope", rope(2, [1.0, 0.25, 0.0625], 1.5), [normal(2, 7, 18)], heads=2, factor=1.5,
     frequencies=[1.0, 0.25, 0.0625])
case("rope positions", "rope", rope(2, [0.5, 0.125]), [normal(2, 5, 8), integers(0, 60, 2, 5)], heads=2, frequencies=[0.5, 0.125])
case("rms norm of groups", "rms_norm", lambda x, w: (x[0].reshape(2, 3, 4, 5) / jnp.sqrt(jnp.mean(
    x[0].reshape(2, 3, 4, 5) ** 2, axis=-1, keepdims=True) + 1e-5) * w[0]).reshape(2, 3, 20), [normal(2, 3, 20)], [normal(5)], factor=1e-5)


def capped(x, cap):
    return cap * jnp.tanh(x / cap)


def capped_attention(heads, cap):
    def forward(x, _):
        q, k, v = [y.reshape(*y.shape[:-1], heads, -1) for y in jnp.split(x[0], 3, axis=-1)]
        scores = capped(jnp.einsum("bqhe,bkhe->bhqk", q, k) / q.shape[-1] ** 0.5, cap)
        seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        return jnp.einsum("bhqk,bkhe->bqhe", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)), v).reshape(*x[0].shape[:-1], -1)
    return forward


case("softcap", "softcap", lambda x, _: capped(x[0], 2.5), [4 * normal(4, 9)], cap=2.5)
case("attention capped", "attention", capped_attention(2, 1.5), [2 * normal(2, 6, 24)], heads=2, flags=CAUSAL, cap=1.5)
case("rms norm with unit offset", "rms_norm", lambda x, w: x[0] / jnp.sqrt(jnp.mean(x[0] ** 2, axis=-1, keepdims=True) + 1e-5) * (1 + w[0]),
     [normal(2, 3, 19)], [normal(19)], factor=1e-5, flags=UNIT_OFFSET)


def batch_norm(eps):
    def forward(x, w):
        rows = tuple(range(x[0].ndim - 1))
        return (x[0] - x[0].mean(rows)) / jnp.sqrt(x[0].var(rows) + eps) * w[0] + w[1]
    return forward


# The running moments have no gradient; what they average is added in its place.
for shape in ((4, 3, 5), (3, 2, 4, 19), (3, 7)):
    case("batch norm of " + "x".join(map(str, shape)), "batch_norm", batch_norm(1e-5), [2 * normal(*shape) + 3],
         [normal(shape[-1]) for _ in range(4)], factor=1e-5, momentum=0.1)
    rows = np.array(cases[-1]["in"][0]["data"]).reshape(-1, shape[-1])
    cases[-1]["dweights"][2:] = [flat(rows.mean(0)), flat(rows.var(0, ddof=1))]


def masked_attention(heads, has_mask):
    """Of keys and values that may have another number of rows than queries."""
    def forward(x, _):
        q, k, v = [y.reshape(*y.shape[:-1], heads, -1) for y in x[:3]]
        mask = x[3][:, None, None, :] != 0 if has_mask else None
        return jax.nn.dot_product_attention(q, k, v, mask=mask).reshape(x[0].shape)
    return forward


case("attention of other rows", "attention", masked_attention(2, False), [normal(2, 3, 8), normal(2, 7, 8), normal(2, 7, 8)], heads=2)
case("attention mask", "attention", masked_attention(3, True),
     [normal(2, 4, 12), normal(2, 6, 12), normal(2, 6, 12), np.array([[1, 1, 1, 0, 0, 0], [0, 1, 0, 1, 1, 1]], np.int32)], heads=3)
case("log softmax", "log_softmax", lambda x, _: jax.nn.log_softmax(x[0]), [3 * normal(4, 17)])
case("log softmax far from 0", "log_softmax", lambda x, _: jax.nn.log_softmax(x[0]), [200 * normal(4, 5) + 500])

path = pathlib.Path(__file__).with_name("op_values.json")
lines = [json.dumps(row, separators=(",", ":")) for row in cases]
path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
