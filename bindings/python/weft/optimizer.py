"""Update rules."""
import ctypes
from typing import TYPE_CHECKING, Any

from ._core import Config, options_of
from ._types import OptimizerOptions, ParameterGroupOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Optimizer:
    """An update rule and its settings, as in PyTorch. AdamW, Adam and SGD are the rules."""

    rule = "adamw"

    def __init__(self, rate: float = 1e-3, /, **options: "Unpack[OptimizerOptions]") -> None:
        self.options = {"rule": self.rule, "rate": rate, **options}
        self._config = Config("weft_optimizer", self.options)

    @classmethod
    def _of(cls, struct: Any) -> "Optimizer":
        options = options_of(struct)
        return cls(options.pop("rate"), **options)

    def _in_config(self) -> Any:
        return ctypes.pointer(self._config.struct)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Optimizer) and options_of(self._config.struct) == options_of(other._config.struct)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.options.items() if name != 'rule')})"


class AdamW(Optimizer):
    """Adam with decoupled weight decay."""


class Adam(Optimizer):
    """Adam; weight decay is a part of the gradient."""

    rule = "adam"


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if that is not 0."""

    rule = "sgd"


class ParameterGroup:
    """How a plan trains the parameters whose names match a pattern, for example "wte.*": frozen, or with other factors."""

    def __init__(self, pattern: str, /, **options: "Unpack[ParameterGroupOptions]") -> None:
        self._config = Config("weft_parameter_group", {"pattern": pattern, **options})

    @classmethod
    def _of(cls, struct: Any) -> "ParameterGroup":
        options = options_of(struct)
        return cls(options.pop("pattern"), **options)

    def _in_config(self) -> Any:
        return self._config.struct

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ParameterGroup) and options_of(self._config.struct) == options_of(other._config.struct)
