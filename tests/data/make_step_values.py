#!/usr/bin/env python3
"""Writes step_values.json beside itself: whole training steps as PyTorch computes them, in double precision.

    python3 -m venv venv && venv/bin/pip install torch && venv/bin/python tests/data/make_step_values.py

A case is a model, described once: this script runs it through torch's functions, tests/api/oracle_test.cc builds it through weft's C API.
Gradients are those of the first step, of all parameters; losses are of every update, and weights those after the last. An asynchronous case
names the stage of each node and the delay of each stage: update u of a segment reads weights that many updates old. Parameters and inputs
have three decimals and are exact in the file; a float rounds them once.
"""
import fnmatch
import json
import pathlib

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(21)
IGNORED = -1


def normal(*shape, scale=1.0):
    """Of three decimals, rounded to a float."""
    return ((torch.randn(shape) * scale * 1000).round() / 1000).float().double()


class Model:
    """Nodes in order: (name, op, inputs, parameters, attributes). An input of the model is named as it is."""

    def __init__(self):
        self.inputs, self.params, self.nodes = [], {}, []

    def input(self, name, shape, dtype="f32"):
        self.inputs.append({"name": name, "shape": shape, "dtype": dtype})
        return name

    def param(self, name, *shape, scale=0.4, around=0.0):
        self.params[name] = (normal(*shape, scale=scale) + around).mul(1000).round().div(1000).float().double()
        return name

    def node(self, op, inputs, params=(), name=None, **attrs):
        name = name or f"{op}{len(self.nodes)}"
        self.nodes.append({"name": name, "op": op, "in": list(inputs), "params": list(params), "attrs": attrs})
        return name

    def describe(self):
        shapes = {name: list(value.shape) for name, value in self.params.items()}
        return {"inputs": self.inputs, "params": shapes, "nodes": self.nodes, "first": {k: exact(v) for k, v in self.params.items()}}


def attention(x, heads):
    q, k, v = [y.unflatten(-1, (heads, -1)).transpose(1, 2) for y in x.chunk(3, dim=-1)]
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)


def conv2d(x, w, a):
    """Images with channels last, taps first in the weight."""
    stride, padding, dilation, groups = (a.get("dims", []) + [1, 0, 1, 1][len(a.get("dims", [])):])
    bias = w[1] if len(w) > 1 else None
    return F.conv2d(x[0].permute(0, 3, 1, 2), w[0].permute(3, 2, 0, 1), bias, stride, padding, dilation, groups).permute(0, 2, 3, 1)


def max_pool(x, a):
    return F.max_pool2d(x.permute(0, 3, 1, 2), *a["dims"]).permute(0, 2, 3, 1)


OPS = {
    "add": lambda x, w, a: x[0] + (x + w)[1],
    "binary_cross_entropy": lambda x, w, a: (F.binary_cross_entropy_with_logits(x[0], x[1], reduction="sum"), x[1].numel()),
    "concat": lambda x, w, a: torch.cat(x, dim=a["axis"]),
    "conv2d": conv2d,
    "exp": lambda x, w, a: x[0].exp(),
    "max_pool": lambda x, w, a: max_pool(x[0], a),
    "mean": lambda x, w, a: x[0].mean(dim=a["dims"]),
    "mul": lambda x, w, a: x[0] * (x + w)[1],
    "relu": lambda x, w, a: F.relu(x[0]),
    "reshape": lambda x, w, a: x[0].reshape(a["dims"]),
    "rms_norm": lambda x, w, a: F.rms_norm(x[0], x[0].shape[-1:], w[0], a["factor"]),
    "scale": lambda x, w, a: x[0] * a["factor"],
    "sigmoid": lambda x, w, a: torch.sigmoid(x[0]),
    "silu": lambda x, w, a: F.silu(x[0]),
    "slice": lambda x, w, a: x[0].narrow(a["axis"], a["begin"], a["end"] - a["begin"]),
    "softplus": lambda x, w, a: F.softplus(x[0]),
    "sub": lambda x, w, a: x[0] - (x + w)[1],
    "sum": lambda x, w, a: x[0].sum(dim=a["axis"]),
    "sum_loss": lambda x, w, a: (x[0].sum(), x[1].shape[0]),
    "tanh": lambda x, w, a: torch.tanh(x[0]),
    "transpose": lambda x, w, a: x[0].permute(a["dims"]),
    "attention": lambda x, w, a: attention(x[0], a["heads"]),
    "embedding": lambda x, w, a: F.embedding(torch.arange(x[0].shape[-1]).expand_as(x[0]) if a.get("positions") else x[0], w[0]),
    "gelu": lambda x, w, a: F.gelu(x[0], approximate="tanh" if a.get("tanh") else "none"),
    "layer_norm": lambda x, w, a: F.layer_norm(x[0], x[0].shape[-1:], w[0], w[1], a["factor"]),
    "linear": lambda x, w, a: F.linear(x[0], w[0] if a.get("out_in") else w[0].T, w[1] if len(w) > 1 else None),
    "mse": lambda x, w, a: (F.mse_loss(x[0], x[1], reduction="sum"), x[1].numel()),
    "softmax_cross_entropy": lambda x, w, a: (
        F.cross_entropy(x[0].flatten(0, -2), x[1].flatten(), ignore_index=IGNORED, reduction="sum",
                        label_smoothing=a.get("factor", 0.0)), int((x[1] != IGNORED).sum())),
}


def loss_of(model, weights_of, batch):
    """Sum and count of the loss. weights_of(node) are the parameters that the node uses."""
    values = dict(zip([i["name"] for i in model.inputs], batch))
    for node in model.nodes:
        weights = weights_of(node)
        values[node["name"]] = OPS[node["op"]]([values[i] for i in node["in"]], [weights[p] for p in node["params"]], node["attrs"])
    return values[model.nodes[-1]["name"]]


def training_of(name, groups):
    """The last group that matches counts."""
    return next((g for g in reversed(groups) if fnmatch.fnmatchcase(name, g["pattern"])), {})


def optimizer_of(params, o, how):
    # As weft documents it: only parameters of two dimensions or more decay.
    groups = [{"params": [p], "lr": o["rate"] * how[name].get("rate_factor", 1.0),
               "weight_decay": o.get("weight_decay", 0.0) * how[name].get("weight_decay_factor", 1.0) if p.dim() >= 2 else 0.0}
              for name, p in params.items()]
    if o["rule"] == "sgd":
        return torch.optim.SGD(groups, lr=o["rate"], momentum=o.get("momentum", 0.0))
    return torch.optim.AdamW(groups, lr=o["rate"], eps=o["eps"])


def flat(x):
    return [float(f"{v:.8g}") for v in x.detach().flatten().tolist()]


def exact(x):
    """What normal() made, in the three decimals that a float rounds to the same."""
    return [round(v, 3) for v in x.flatten().tolist()]


def train(model, optimizer, batches, delay=None, segment=0, stages=None, groups=()):
    """Every batch is one update. Micro-batches need no mention: the loss divides a sum by a count, both over the whole batch."""
    now = {name: value.clone().requires_grad_() for name, value in model.params.items()}
    how = {name: training_of(name, groups) for name in now}
    trained = {name: value for name, value in now.items() if not how[name].get("frozen")}
    rule = optimizer_of(trained, optimizer, how)
    versions, losses, norms, gradients = [], [], [], None
    for u, batch in enumerate(batches):
        if delay is None or u % segment == 0:
            versions = []
        versions.append({name: value.detach().clone().requires_grad_() for name, value in now.items()})

        def weights_of(node):
            age = 0 if delay is None else min(delay[stages[node["name"]]], u % segment)
            return versions[-1 - age]

        total, count = loss_of(model, weights_of, batch)
        loss = total / count
        loss.backward()
        for name, value in trained.items():
            value.grad = sum(v[name].grad for v in versions if v[name].grad is not None)
            for v in versions:
                v[name].grad = None
        norm = torch.sqrt(sum((v.grad ** 2).sum() for v in trained.values()))
        losses.append(float(loss.detach()))
        norms.append(float(norm))
        if gradients is None:
            gradients = {name: flat(v.grad) for name, v in trained.items()}
        clip = optimizer.get("clip", 0.0)
        if clip and norm > clip:  # weft's rule; torch.nn.utils.clip_grad_norm_ divides by norm + 1e-6
            for v in trained.values():
                v.grad *= clip / norm
        rule.step()
    weights = {name: flat(value) for name, value in now.items()}
    return {"losses": losses, "norms": norms, "gradients": gradients, "weights": weights}


def tensor(x):
    return {"shape": list(x.shape), "data": [int(v) for v in x.flatten()] if x.dtype == torch.int64 else exact(x)}


def case(name, model, optimizer, batches, plan, runs, delay=None, stages=None, groups=()):
    expected = train(model, optimizer, batches, delay, plan.get("segment", 0), stages, groups)
    return {"name": name, "model": model.describe(), "optimizer": optimizer, "plan": plan, "runs": runs,
            **({"groups": groups} if groups else {}),
            "batches": [[tensor(x) for x in batch] for batch in batches], "expected": expected}


def tied_model():
    """A weight with four uses and a shift with three, in as many stages as there are uses."""
    m = Model()
    x, y = m.input("x", [1, 5]), m.input("y", [1, 5])
    w, b, other = m.param("w", 5, 5), m.param("b", 5), m.param("other", 5)
    first = []
    for i in range(4):
        x = m.node("linear", [x], [w, b if i != 2 else other], name=f"use{i}")
        first.append(x)
        x = m.node("gelu", [x])
    m.node("mse", [x, y], name="loss")
    return m, first[1:]


def gpt(vocabulary, width, heads, time, tied):
    """Two blocks of GPT-2. tied: one table embeds and makes the logits, one scale and shift serve all five layer norms."""
    m = Model()
    tokens, targets = m.input("tokens", [1, time], "i32"), m.input("targets", [1, time], "i32")
    table = m.param("table", vocabulary, width)
    x = m.node("add", [m.node("embedding", [tokens], [table]), m.node("embedding", [tokens], [m.param("places", time, width)], positions=True)])
    shared = (m.param("scale", width, around=1.0), m.param("shift", width)) if tied else None

    def norm(x, name):
        return m.node("layer_norm", [x], shared or (m.param(f"{name}.scale", width, around=1.0), m.param(f"{name}.shift", width)), name=name,
                      factor=1e-5)

    def linear(x, name, n, out):
        return m.node("linear", [x], [m.param(f"{name}.w", n, out), m.param(f"{name}.b", out)], name=name)

    cuts = []
    for i in range(2):
        n = f"h{i}"
        y = norm(x, f"{n}.norm1")
        cuts.append(f"{n}.norm1")
        y = m.node("attention", [linear(y, f"{n}.qkv", width, 3 * width)], heads=heads, causal=True)
        x = m.node("add", [x, linear(y, f"{n}.out", width, width)], name=f"{n}.add")
        y = m.node("gelu", [linear(norm(x, f"{n}.norm2"), f"{n}.up", width, 2 * width)], tanh=True)
        x = m.node("add", [x, linear(y, f"{n}.down", 2 * width, width)])
    x = norm(x, "last")
    cuts.append("last")
    head = table if tied else m.param("head", vocabulary, width)
    m.node("softmax_cross_entropy", [m.node("linear", [x], [head], out_in=True), targets], name="loss")
    return m, cuts


def conv(m, x, name, taps, n, out, stride=1):
    params = [m.param(f"{name}.w", taps, taps, n, out, scale=0.5 / taps), m.param(f"{name}.b", out)]
    return m.node("conv2d", [x], params, name=name, dims=[stride, taps // 2])


def channel_norm(m, x, name, width):
    return m.node("layer_norm", [x], [m.param(f"{name}.scale", width, around=1.0), m.param(f"{name}.shift", width)], name=name, factor=1e-5)


def resnet():
    """A stem and a residual block that halves the image, with smoothed labels."""
    m = Model()
    x, y = m.input("image", [1, 6, 6, 3]), m.input("class", [1], "i32")
    x = m.node("relu", [channel_norm(m, conv(m, x, "stem", 3, 3, 4), "stem.norm", 4)], name="stem.relu")
    short = conv(m, x, "short", 1, 4, 6, stride=2)
    y1 = m.node("relu", [channel_norm(m, conv(m, x, "first", 3, 4, 6, stride=2), "first.norm", 6)])
    y2 = channel_norm(m, conv(m, y1, "second", 3, 6, 6), "second.norm", 6)
    x = m.node("relu", [m.node("add", [y2, short], name="add")])
    x = m.node("mean", [x], dims=[1, 2], name="pool")
    x = m.node("linear", [x], [m.param("head.w", 6, 5), m.param("head.b", 5)], name="head")
    m.node("softmax_cross_entropy", [x, y], name="loss", factor=0.1)
    return m, ["short", "second", "pool"]


def unet():
    """Two halvings and two doublings with a skip connection for each; says for each pixel whether it belongs to the object."""
    m = Model()
    x, y = m.input("image", [1, 8, 8, 2]), m.input("mask", [1, 8, 8, 1])

    def block(x, name, n, out):
        norm = m.node("rms_norm", [conv(m, x, name, 3, n, out)], [m.param(f"{name}.scale", out, around=1.0)], factor=1e-5)
        return m.node("silu", [norm], name=f"{name}.silu")

    def double(x, name, size, n, out):
        x = m.node("reshape", [conv(m, x, name, 1, n, 4 * out)], dims=[-1, size, size, 2, 2, out])
        x = m.node("transpose", [x], dims=[0, 1, 3, 2, 4, 5])
        return m.node("reshape", [x], dims=[-1, 2 * size, 2 * size, out])

    first = block(x, "down1", 2, 3)
    second = block(m.node("max_pool", [first], dims=[2]), "down2", 3, 4)
    x = block(m.node("max_pool", [second], dims=[2]), "middle", 4, 4)
    x = block(m.node("concat", [second, double(x, "up2.double", 2, 4, 3)], axis=3), "up2", 7, 4)
    x = block(m.node("concat", [first, double(x, "up1.double", 4, 4, 3)], axis=3), "up1", 6, 3)
    m.node("binary_cross_entropy", [conv(m, x, "head", 1, 3, 1), y], name="loss")
    return m, ["down2", "middle", "up1.double"]


def lstm(time=4, n=3, width=4):
    """Unrolled: every step uses the same parameters."""
    m = Model()
    x, y = m.input("x", [1, time, n]), m.input("y", [1, time, width])
    w_x, w_h, bias = m.param("w_x", n, 4 * width), m.param("w_h", width, 4 * width), m.param("b", 4 * width)
    hidden = cell = None
    outputs, cuts = [], []
    for t in range(time):
        now = m.node("reshape", [m.node("slice", [x], axis=1, begin=t, end=t + 1, name=f"t{t}")], dims=[-1, n])
        gates = m.node("linear", [now], [w_x, bias], name=f"t{t}.x")
        if hidden:
            gates = m.node("add", [gates, m.node("linear", [hidden], [w_h])])
        part = [m.node("slice", [gates], axis=1, begin=i * width, end=(i + 1) * width) for i in range(4)]
        enter = m.node("mul", [m.node("sigmoid", [part[0]]), m.node("tanh", [part[1]])])
        keep = m.node("mul", [m.node("sigmoid", [part[2]]), cell]) if cell else None
        cell = m.node("add", [keep, enter], name=f"t{t}.cell") if keep else enter
        hidden = m.node("mul", [m.node("sigmoid", [part[3]]), m.node("tanh", [cell])], name=f"t{t}.hidden")
        outputs.append(m.node("reshape", [hidden], dims=[-1, 1, width]))
        cuts.append(f"t{t}")
    m.node("mse", [m.node("concat", outputs, axis=1), y], name="loss")
    return m, cuts[1:]


def autoencoder():
    """Variational, with its noise as an input. The loss is a sum of terms; a constant is left out of the divergence."""
    m = Model()
    x, noise = m.input("x", [1, 6]), m.input("noise", [1, 2])

    def linear(x, name, n, out):
        return m.node("linear", [x], [m.param(f"{name}.w", n, out), m.param(f"{name}.b", out)], name=name)

    hidden = m.node("tanh", [linear(x, "encode", 6, 5)])
    mean, log = linear(hidden, "mean", 5, 2), linear(hidden, "log", 5, 2)
    deviation = m.node("exp", [m.node("scale", [log], factor=0.5)])
    z = m.node("add", [mean, m.node("mul", [deviation, noise])], name="z")
    y = m.node("softplus", [linear(z, "decode", 2, 5)])
    y = m.node("add", [m.node("mul", [linear(y, "pixels", 5, 6)], [m.param("gain", 6, around=1.0)])], [m.param("offset", 6)])
    misfit = m.node("sum", [m.node("sub", [m.node("softplus", [y]), m.node("mul", [x, y])])], axis=1)
    spread = m.node("sub", [m.node("add", [m.node("mul", [mean, mean]), m.node("exp", [log])]), log])
    divergence = m.node("scale", [m.node("sum", [spread], axis=1)], factor=0.5, name="divergence")
    m.node("sum_loss", [m.node("add", [misfit, divergence]), x], name="loss")
    return m, ["mean", "z", "pixels"]


def tokens(vocabulary, samples, time):
    return torch.randint(0, vocabulary, (samples, time))


def masked(targets, keep):
    """Only the first keep[s] targets of sample s count."""
    out = targets.clone()
    for row, n in zip(out, keep):
        row[n:] = IGNORED
    return out


def stages_of(model, cuts):
    out, stage = {}, 0
    for node in model.nodes:
        stage += node["name"] in cuts
        out[node["name"]] = stage
    return out


def run(schedule, ranks, cuts, **more):
    return {"schedule": schedule, "ranks": ranks, "cuts": cuts, **more}


# The gradient of the shift of keys is 0 by mathematics and a sum of roundings in any float; an eps of 1e-8 would turn them into updates.
ADAMW = {"rule": "adamw", "rate": 0.01, "weight_decay": 0.1, "eps": 1e-3}
cases = []

model, cuts = tied_model()
batches = [(normal(n, 5), normal(n, 5)) for n in (7, 7, 6, 7)]  # micro-batches of 2 samples, the last one short
cases.append(case("tied three and four times", model, {"rule": "sgd", "rate": 0.05, "momentum": 0.9, "weight_decay": 0.01, "clip": 0.7},
                  batches, {"micro_batches": 4, "micro_batch_size": 2, "short_size": 1},
                  [run("gpipe", 1, []), run("gpipe", 4, cuts), run("1f1b", 4, cuts, recompute="stage"), run("1f1b", 3, cuts[:2]),
                   run("zb-h1", 4, cuts), run("interleaved", 2, cuts, chunks=2)]))

model, cuts = gpt(13, 8, 2, 6, tied=True)
keep = [[1, 0, 0, 0, 6, 5, 2], [6, 6, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 3]]  # whole micro-batches of 2 samples do not count
batches = [(tokens(13, 7, 6), masked(tokens(13, 7, 6), k)) for k in keep]
cases.append(case("masked targets and tied norms", model, {**ADAMW, "clip": 0.5}, batches,
                  {"micro_batches": 4, "micro_batch_size": 2, "short_size": 1},
                  [run("gpipe", 1, []), run("gpipe", 4, cuts), run("1f1b", 4, cuts, recompute="stage"), run("zb-h2", 4, cuts),
                   run("zb-v", 2, cuts, chunks=2)]))

model, cuts = gpt(13, 8, 2, 6, tied=False)
stages = stages_of(model, cuts)
keep = [[6, 1], [2, 0], [6, 6], [1, 5], [0, 3], [4, 4], [6, 2], [5, 5], [1, 1], [3, 6], [6, 6]]
batches = [(tokens(13, 2, 6), masked(tokens(13, 2, 6), k)) for k in keep]
plan = {"micro_batches": 1, "micro_batch_size": 2, "segment": 7}
sgd = {"rule": "sgd", "rate": 0.1, "momentum": 0.5}
cases.append(case("pipedream", model, sgd, batches, plan,
                  [run("pipedream", 4, cuts), run("pipedream", 4, cuts, recompute="stage"), run("pipedream", 4, cuts, recompute="every:2")],
                  [3, 2, 1, 0], stages))
cases.append(case("pipedream with vertical sync", model, sgd, batches, plan,
                  [run("pipedream", 4, cuts, vertical_sync=1), run("pipedream", 4, cuts, vertical_sync=1, recompute="stage")],
                  [3, 3, 3, 3], stages))
batches = [(tokens(13, 8, 6), masked(tokens(13, 8, 6), k)) for k in
           ([6, 1, 0, 0, 2, 2, 6, 6], [0, 0, 0, 0, 0, 0, 1, 0], [6] * 8, [1, 2, 3, 4, 5, 6, 0, 1], [0, 6, 0, 6, 0, 0, 5, 5])]
cases.append(case("pipedream-2bw", model, {**ADAMW}, batches,
                  {"micro_batches": 4, "micro_batch_size": 2, "segment": 3},
                  [run("pipedream-2bw", 4, cuts), run("pipedream-2bw", 4, cuts, recompute="stage")], [1, 1, 1, 1], stages))

# The usual networks. New cases go last, so that those before keep their random numbers.
FOUR = {"micro_batches": 4, "micro_batch_size": 2, "short_size": 1}


def usual_runs(cuts):
    return [run("gpipe", 1, []), run("gpipe", 4, cuts), run("1f1b", 4, cuts, recompute="stage"), run("1f1b", 3, cuts[1:]),
            run("zb-h1", 4, cuts), run("interleaved", 2, cuts, chunks=2)]


SGD = {"rule": "sgd", "rate": 0.05, "momentum": 0.9, "clip": 1.0}
model, cuts = resnet()
batches = [(normal(n, 6, 6, 3), torch.randint(0, 5, (n,))) for n in (7, 8)]
cases.append(case("resnet block", model, SGD, batches, FOUR, usual_runs(cuts)))
model, cuts = unet()
batches = [(normal(n, 8, 8, 2), torch.randint(0, 2, (n, 8, 8, 1)).double()) for n in (7, 8)]
cases.append(case("u-net", model, SGD, batches, FOUR, usual_runs(cuts)))
model, cuts = lstm()
batches = [(normal(n, 4, 3), normal(n, 4, 4)) for n in (7, 8, 5)]
cases.append(case("unrolled lstm", model, SGD, batches, FOUR, usual_runs(cuts)))
model, cuts = autoencoder()
batches = [(torch.randint(0, 2, (n, 6)).double(), normal(n, 2)) for n in (7, 8, 5)]
cases.append(case("variational autoencoder", model, ADAMW, batches, FOUR, usual_runs(cuts)))

# Groups of parameters. A later group takes h1.up.w out of the one before it.
model, cuts = gpt(13, 8, 2, 6, tied=False)
batches = [(tokens(13, n, 6), tokens(13, n, 6)) for n in (7, 8, 7)]
groups = [{"pattern": "h1.*.w", "rate_factor": 0.25, "weight_decay_factor": 3.0}, {"pattern": "h1.u?.w", "rate_factor": 2.0},
          {"pattern": "h0.*", "frozen": True}, {"pattern": "table", "frozen": True}, {"pattern": "plac*", "frozen": True}]
cases.append(case("frozen below a block", model, {**ADAMW, "clip": 0.5}, batches, FOUR, usual_runs(cuts), groups=groups))
model, cuts = gpt(13, 8, 2, 6, tied=True)
groups = [{"pattern": "s*", "frozen": True}, {"pattern": "*.w", "frozen": True}, {"pattern": "h1.qkv.w", "weight_decay_factor": 0.0},
          {"pattern": "*.b", "rate_factor": 0.5}]
cases.append(case("frozen between tied uses", model, {**SGD, "weight_decay": 0.1}, batches, FOUR, usual_runs(cuts), groups=groups))
batches = [(tokens(13, 2, 6), tokens(13, 2, 6)) for _ in range(11)]
model, cuts = gpt(13, 8, 2, 6, tied=False)
stages = stages_of(model, cuts)
groups = [{"pattern": "h0.*", "frozen": True}, {"pattern": "h1.norm?.*", "frozen": True}, {"pattern": "head", "rate_factor": 0.5}]
cases.append(case("pipedream with frozen parameters", model, sgd, batches, plan, [run("pipedream", 4, cuts)], [3, 2, 1, 0], stages, groups))
batches = [(tokens(13, 8, 6), tokens(13, 8, 6)) for _ in range(5)]
model, cuts = gpt(13, 8, 2, 6, tied=True)
stages = stages_of(model, cuts)
cases.append(case("pipedream-2bw with tied parameters", model, {**ADAMW}, batches, {"micro_batches": 4, "micro_batch_size": 2, "segment": 3},
                  [run("pipedream-2bw", 4, cuts), run("pipedream-2bw", 4, cuts, recompute="stage")], [1, 1, 1, 1], stages))
batches = [(tokens(13, 2, 6), tokens(13, 2, 6)) for _ in range(11)]
cases.append(case("pipedream with tied parameters", model, sgd, batches, plan,
                  [run("pipedream", 4, cuts, vertical_sync=1), run("pipedream", 4, cuts, vertical_sync=1, recompute="every:2")], [3, 3, 3, 3],
                  stages))

path = pathlib.Path(__file__).with_name("step_values.json")
path.write_text("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")
