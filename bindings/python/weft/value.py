"""Values and parameters of a model. The methods of a value add one op each, and return its result."""
from typing import TYPE_CHECKING, Any, Optional, Sequence, Tuple, Union

from ._types import DType, NodeFlags
from .arrays import DTYPES, shape_of

if TYPE_CHECKING:
    from .model import Model

Operand = Union["Value", "Parameter", float]
Axes = Union[int, Sequence[int]]


class Parameter:
    """A parameter of a model."""

    def __init__(self, model: "Model", id: int, name: str, shape: Tuple[int, ...]) -> None:
        self.model, self.id, self.name, self.shape = model, id, name, shape

    def cut(self, dim: int, axis: str, drop: bool = False) -> "Parameter":
        """Cuts a dimension over an axis of the model; see Model.axis."""
        self.model._cut("param", self.id, dim, axis, drop)
        return self

    def share_gradient(self) -> "Parameter":
        """All nodes that use the parameter add their gradients to one sum. Call it before a node uses the parameter."""
        self.model._share_gradient(self)
        return self

    def __repr__(self) -> str:
        return f"<Parameter {self.name!r} {list(self.shape)}>"


class Value:
    """A value of a model: an input or the result of a node. Dimension 0 counts samples."""

    def __init__(self, model: "Model", id: int) -> None:
        self.model, self.id = model, id

    @property
    def shape(self) -> Tuple[int, ...]:
        """The dimensions of one sample, with 1 for the samples if the value has samples."""
        return shape_of(self.model._desc(self, 1))

    @property
    def dtype(self) -> str:
        return str(DTYPES[DType(self.model._desc(self, 1).dtype)])

    def __repr__(self) -> str:
        return f"<Value {self.dtype} {list(self.shape)}>"

    # Elements

    def exp(self, name: Optional[str] = None) -> "Value":
        return self.model.node("exp", self, name=name)

    def gelu(self, tanh: bool = False, name: Optional[str] = None) -> "Value":
        """x / 2 * (1 + erf(x / sqrt(2))); with `tanh`, the approximation that GPT-2 uses."""
        return self.model.node("gelu", self, name=name, flags=NodeFlags.TANH if tanh else 0)

    def log(self, name: Optional[str] = None) -> "Value":
        return self.model.node("log", self, name=name)

    def neg(self, name: Optional[str] = None) -> "Value":
        return self.model.node("neg", self, name=name)

    def relu(self, name: Optional[str] = None) -> "Value":
        return self.model.node("relu", self, name=name)

    def sigmoid(self, name: Optional[str] = None) -> "Value":
        return self.model.node("sigmoid", self, name=name)

    def silu(self, name: Optional[str] = None) -> "Value":
        return self.model.node("silu", self, name=name)

    def softplus(self, name: Optional[str] = None) -> "Value":
        return self.model.node("softplus", self, name=name)

    def sqrt(self, name: Optional[str] = None) -> "Value":
        return self.model.node("sqrt", self, name=name)

    def tanh(self, name: Optional[str] = None) -> "Value":
        return self.model.node("tanh", self, name=name)

    def scale(self, factor: float, name: Optional[str] = None) -> "Value":
        return self.model.node("scale", self, name=name, factor=factor)

    def softcap(self, cap: float, name: Optional[str] = None) -> "Value":
        """cap * tanh(x / cap), which lies between -cap and cap."""
        return self.model.node("softcap", self, name=name, cap=cap)

    def dropout(self, probability: float, name: Optional[str] = None) -> "Value":
        """In training steps, sets each element to 0 with this probability; otherwise the identity."""
        return self.model.node("dropout", self, name=name, factor=probability)

    def where(self, a: "Value", b: "Value", name: Optional[str] = None) -> "Value":
        """`a` where this value, of int32, is not 0, and `b` elsewhere."""
        return self.model.node("where", self, a, b, name=name)

    # Arithmetic, broadcast as in NumPy except along the samples

    def _with(self, op: str, other: "Union[Value, Parameter]") -> "Value":
        if isinstance(other, Parameter):
            return self.model.node(op, self, params=[other])
        if isinstance(other, Value):
            return self.model.node(op, self, other)
        return NotImplemented

    def __add__(self, other: "Union[Value, Parameter]") -> "Value":
        return self._with("add", other)

    def __sub__(self, other: "Union[Value, Parameter]") -> "Value":
        return self._with("sub", other)

    def __mul__(self, other: Operand) -> "Value":
        return self.scale(float(other)) if isinstance(other, (int, float)) else self._with("mul", other)

    def __rmul__(self, other: float) -> "Value":
        return self.scale(float(other))

    def __truediv__(self, other: "Union[Value, float]") -> "Value":
        """A number divides as its reciprocal in float32 multiplies."""
        return self.scale(1 / other) if isinstance(other, (int, float)) else self._with("div", other)

    def __neg__(self) -> "Value":
        return self.neg()

    def __matmul__(self, other: "Value") -> "Value":
        return self.matmul(other)

    def matmul(self, other: "Value", name: Optional[str] = None) -> "Value":
        return self.model.node("matmul", self, other, name=name)

    # Axes and shapes. Axis 0, the samples, is never one of them.

    def _axis(self, axis: int) -> int:
        """A negative axis counts from the last one."""
        return range(len(self.shape))[axis]

    def _reduce(self, op: str, axis: Axes, name: Optional[str]) -> "Value":
        if isinstance(axis, int):
            return self.model.node(op, self, name=name, axis=self._axis(axis))
        return self.model.node(op, self, name=name, dims=[self._axis(a) for a in axis])

    def mean(self, axis: Axes = -1, name: Optional[str] = None) -> "Value":
        """The mean over an axis or adjacent axes, which are removed."""
        return self._reduce("mean", axis, name)

    def sum(self, axis: Axes = -1, name: Optional[str] = None) -> "Value":
        """The sum over an axis or adjacent axes, which are removed."""
        return self._reduce("sum", axis, name)

    def max(self, axis: Axes = -1, name: Optional[str] = None) -> "Value":
        """The greatest element over an axis or adjacent axes, which are removed."""
        return self._reduce("max", axis, name)

    def softmax(self, name: Optional[str] = None) -> "Value":
        """Along the last axis."""
        return self.model.node("softmax", self, name=name)

    def log_softmax(self, name: Optional[str] = None) -> "Value":
        """Along the last axis, as float32."""
        return self.model.node("log_softmax", self, name=name)

    def slice(self, axis: int, begin: int, end: int, name: Optional[str] = None) -> "Value":
        """The elements from `begin` to `end` - 1 along an axis."""
        return self.model.node("slice", self, name=name, axis=self._axis(axis), begin=begin, end=end)

    def gather(self, indices: "Value", axis: int = -1, name: Optional[str] = None) -> "Value":
        """The elements with these indices along an axis."""
        return self.model.node("gather", self, indices, name=name, axis=self._axis(axis))

    def reshape(self, *dims: int, name: Optional[str] = None) -> "Value":
        """The same elements in other dimensions; the first is -1 if the value has samples."""
        return self.model.node("reshape", self, name=name, dims=dims)

    def transpose(self, *dims: int, name: Optional[str] = None) -> "Value":
        """Axis i of the result is axis dims[i]."""
        return self.model.node("transpose", self, name=name, dims=dims)

    # Layers

    def linear(self, out_features: int, *, bias: bool = True, std: float = 0.02, out_in: bool = False, name: Optional[str] = None) -> "Value":
        """x W + b with the new parameters NAME.weight, [in, out] of N(0, std), and NAME.bias, 0. About 1 / sqrt(in) suits narrow layers. With
        `out_in`, the weight is [out, in], as in PyTorch."""
        shape = (out_features, self.shape[-1]) if out_in else (self.shape[-1], out_features)
        made = self.model._weights(name, "linear", shape, std, bias and (out_features,))
        return self._layer("linear", name, made, flags=NodeFlags.OUT_IN if out_in else 0)

    def embedding(self, rows: int, width: int, *, positions: bool = False, std: float = 0.02, name: Optional[str] = None) -> "Value":
        """The rows of the new parameter NAME.weight [rows, width] that this value selects, or, with `positions`, its positions."""
        made = self.model._weights(name, "embedding", (rows, width), std, False)
        return self._layer("embedding", name, made, flags=NodeFlags.POSITIONS if positions else 0)

    def layer_norm(self, *, epsilon: float = 1e-5, name: Optional[str] = None) -> "Value":
        """Layer normalization over the last axis with the new parameters NAME.weight, 1, and NAME.bias, 0."""
        return self._layer("layer_norm", name, self.model._norm(name, "layer_norm", self.shape[-1], True), factor=epsilon)

    def batch_norm(self, *, epsilon: float = 1e-5, momentum: float = 0.1, name: Optional[str] = None) -> "Value":
        """Batch normalization of the last axis with the new parameters NAME.weight, 1, NAME.bias, 0, NAME.running_mean, 0, and NAME.running_var, 1.

        A training step normalizes each micro-batch with its own moments, and moves the running ones, with which other steps normalize, by
        `momentum` towards their mean over the micro-batches.
        """
        made = self.model._norm(name, "batch_norm", self.shape[-1], True)
        made[1].extend([self.model.parameter(made[0] + ".running_mean", self.shape[-1:]),
                        self.model.parameter(made[0] + ".running_var", self.shape[-1:], "constant", 1.0)])
        return self._layer("batch_norm", name, made, factor=epsilon, momentum=momentum)

    def rms_norm(self, *, epsilon: float = 1e-5, unit_offset: bool = False, name: Optional[str] = None) -> "Value":
        """x / sqrt(mean(x^2) + epsilon) over the last axis, times the new parameter NAME.weight, 1, or with `unit_offset` times 1 + it, 0."""
        made = self.model._norm(name, "rms_norm", self.shape[-1], False, 0.0 if unit_offset else 1.0)
        return self._layer("rms_norm", name, made, factor=epsilon, flags=NodeFlags.UNIT_OFFSET if unit_offset else 0)

    def conv1d(self, channels: int, size: int, *, stride: int = 1, padding: int = 0, dilation: int = 1, bias: bool = True, std: float = 0.02,
               name: Optional[str] = None) -> "Value":
        """A convolution along the rows of [.., t, in]. NAME.weight is [size, in, channels]."""
        made = self.model._weights(name, "conv1d", (size, self.shape[-1], channels), std, bias and (channels,))
        return self._layer("conv1d", name, made, dims=[stride, padding, dilation])

    def conv2d(self, channels: int, size: Union[int, Tuple[int, int]], *, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1,
               bias: bool = True, std: float = 0.02, name: Optional[str] = None) -> "Value":
        """A convolution of images [.., h, w, in]. NAME.weight is [a, b, in / groups, channels]."""
        a, b = (size, size) if isinstance(size, int) else size
        made = self.model._weights(name, "conv2d", (a, b, self.shape[-1] // groups, channels), std, bias and (channels,))
        return self._layer("conv2d", name, made, dims=[stride, padding, dilation, groups])

    def _layer(self, op: str, name: Optional[str], made: "Tuple[str, Sequence[Parameter]]", **fields: Any) -> "Value":
        return self.model.node(op, self, params=made[1], name=made[0], **fields)

    def max_pool(self, size: int, stride: Optional[int] = None, padding: int = 0, name: Optional[str] = None) -> "Value":
        """The greatest element of each window of images [.., h, w, c]. Default of `stride`: `size`."""
        return self.model.node("max_pool", self, name=name, dims=[size, stride or size, padding])

    def average_pool(self, size: int, stride: Optional[int] = None, padding: int = 0, name: Optional[str] = None) -> "Value":
        """The mean of each window of images [.., h, w, c]. Default of `stride`: `size`."""
        return self.model.node("average_pool", self, name=name, dims=[size, stride or size, padding])

    def attention(self, heads: int, *, causal: bool = False, mask: Optional["Value"] = None, dropout: float = 0.0, cap: float = 0.0,
                  name: Optional[str] = None) -> "Value":
        """Attention over queries, keys and values, which are side by side in the last dimension. If not causal, a mask [.., rows] can hide keys
        whose element is 0. Scores s become cap * tanh(s / cap); 0: no cap."""
        return self.model._attention((self,), heads, causal, mask, dropout, cap, name)

    def cached_attention(self, heads: int, positions: "Value", sequences: "Value", places: int, length: int, *, bf16: bool = False,
                         cap: float = 0.0, name: Optional[str] = None) -> "Value":
        """Causal attention of single tokens [.., 3 d], whose keys and values stay in a cache of `places` sequences of `length` positions."""
        return self.model.node("cached_attention", self, positions, sequences, name=name, heads=heads, dims=[places, length],
                               flags=NodeFlags.BF16_CACHE if bf16 else 0, cap=cap)

    def rope(self, heads: int, frequencies: Sequence[float], positions: "Optional[Value]" = None, *, factor: float = 1.0,
             name: Optional[str] = None) -> "Value":
        """Rotary position embeddings: columns i and i + n of each head are rotated by frequencies[i] radians per position."""
        inputs = (self,) if positions is None else (self, positions)
        return self.model.node("rope", *inputs, name=name, heads=heads, frequencies=frequencies, factor=factor)

    # Losses. A model has at most one; its targets are an input.

    def mse(self, target: "Value", name: Optional[str] = None) -> "Value":
        """The loss mean((x - target)^2)."""
        return self.model.node("mse", self, target, name=name)

    def softmax_cross_entropy(self, target: "Value", *, smoothing: float = 0.0, name: Optional[str] = None) -> "Value":
        """The loss -log(softmax(x)[target]), with targets of int32; -1 does not count."""
        return self.model.node("softmax_cross_entropy", self, target, name=name, factor=smoothing)

    def binary_cross_entropy(self, target: "Value", name: Optional[str] = None) -> "Value":
        """The loss log(1 + exp(x)) - x target, with targets from 0 to 1."""
        return self.model.node("binary_cross_entropy", self, target, name=name)

    def sum_loss(self, samples: "Value", name: Optional[str] = None) -> "Value":
        """The loss sum(x) per sample of the input `samples`."""
        return self.model.node("sum_loss", self, samples, name=name)

    # Programs over axes

    def cut(self, dim: int, axis: str, drop: bool = False) -> "Value":
        """Cuts a dimension of an input over an axis of the model; see Model.axis. Model.output() cuts outputs."""
        self.model._cut("input", self.id, dim, axis, drop)
        return self

    def all_gather(self, over: str, axis: int) -> "Value":
        """The values of all coordinates of the axis `over`, joined along dimension `axis`."""
        return self.model.node("all_gather", self, axis_name=over, axis=axis)

    def all_reduce(self, over: str) -> "Value":
        """The sum of the values of all coordinates of the axis `over`."""
        return self.model.node("all_reduce", self, axis_name=over)

    def all_to_all(self, over: str, cut: int, join: int) -> "Value":
        """Receives a piece of dimension `cut` from each coordinate, and joins them along dimension `join`."""
        return self.model.node("all_to_all", self, axis_name=over, dims=[cut, join])

    def broadcast(self, over: str, source: int) -> "Value":
        """The value of the coordinate `source`."""
        return self.model.node("broadcast", self, axis_name=over, coordinates=[source])

    def mask(self, over: str, coordinates: Sequence[int]) -> "Value":
        """The value at these coordinates, zeros at the others."""
        return self.model.node("mask", self, axis_name=over, coordinates=coordinates)

    def ppermute(self, over: str, sources: Sequence[int]) -> "Value":
        """For each coordinate, the value of sources[coordinate], or zeros if that is -1."""
        return self.model.node("ppermute", self, axis_name=over, coordinates=sources)

    def reduce_scatter(self, over: str, axis: int) -> "Value":
        """The piece of this coordinate, along dimension `axis`, of the sum of the values of all coordinates."""
        return self.model.node("reduce_scatter", self, axis_name=over, axis=axis)
