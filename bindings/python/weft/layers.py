"""Plain networks as lists of layers. A layer is a function from a value to a value."""
from typing import Any, Callable

from .value import Value

Layer = Callable[[Value], Value]


class Sequential:
    """Applies layers one after another.

    >>> import weft
    >>> net = Sequential(Linear(32), GELU(), Linear(1))
    >>> model = weft.Model()
    >>> net(model.input("x", (4,)))
    <Value float32 [1, 1]>
    """

    def __init__(self, *layers: Layer) -> None:
        self.layers = layers

    def __call__(self, value: Value) -> Value:
        for layer in self.layers:
            value = layer(value)
        return value

    def __repr__(self) -> str:
        return f"Sequential({', '.join(map(repr, self.layers))})"


class _Method:
    """A method of Value with its arguments."""

    method = ""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.arguments, self.options = arguments, options

    def __call__(self, value: Value) -> Value:
        out = getattr(value, self.method)(*self.arguments, **self.options)
        assert isinstance(out, Value)
        return out

    def __repr__(self) -> str:
        words = [*map(repr, self.arguments), *(f"{key}={value!r}" for key, value in self.options.items())]
        return f"{type(self).__name__}({', '.join(words)})"


def _layer(name: str, method: str) -> Any:
    return type(name, (_Method,), {"method": method, "__doc__": f"Value.{method}() with these arguments.", "__module__": __name__})


Attention = _layer("Attention", "attention")
AveragePool = _layer("AveragePool", "average_pool")
BatchNorm = _layer("BatchNorm", "batch_norm")
Conv1d = _layer("Conv1d", "conv1d")
Conv2d = _layer("Conv2d", "conv2d")
Dropout = _layer("Dropout", "dropout")
Embedding = _layer("Embedding", "embedding")
GELU = _layer("GELU", "gelu")
LayerNorm = _layer("LayerNorm", "layer_norm")
Linear = _layer("Linear", "linear")
MaxPool = _layer("MaxPool", "max_pool")
ReLU = _layer("ReLU", "relu")
Reshape = _layer("Reshape", "reshape")
RMSNorm = _layer("RMSNorm", "rms_norm")
Sigmoid = _layer("Sigmoid", "sigmoid")
SiLU = _layer("SiLU", "silu")
Softmax = _layer("Softmax", "softmax")
Tanh = _layer("Tanh", "tanh")
