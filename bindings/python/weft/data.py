"""Training data of presets."""
from typing import TYPE_CHECKING, Any, Optional, Tuple

import numpy as np

from . import _raw
from ._core import Config, Object, check, new
from ._types import DataOptions
from .arrays import Wrapped
from .plan import Path

if TYPE_CHECKING:
    from typing_extensions import Unpack

Batch = Tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]


class Data(Object):
    """A file of tokens, or synthetic data if there is no path; see DataOptions."""

    def __init__(self, path: Optional[Path] = None, /, **options: "Unpack[DataOptions]") -> None:
        config = Config("weft_data_config", {"path": path, **options})
        super().__init__(new(_raw.weft_data_open, config.pointer), _raw.weft_data_free)
        tokens = config.struct.vocabulary != 0
        self._width = config.struct.seq_len if tokens else config.struct.width
        self._dtype = np.int32 if tokens else np.float32

    def sample(self, seed: int, step: int, samples: int) -> Batch:
        """Inputs and targets of a step."""
        return self._filled(samples, lambda x, target: check(_raw.weft_data_sample, self._ptr, seed, step, x, target))

    @property
    def eval_windows(self) -> int:
        """The number of consecutive windows of held-out data."""
        return int(_raw.weft_data_eval_windows(self._ptr))

    def eval(self, first: int, samples: int) -> Batch:
        """Held-out windows, starting at `first`."""
        return self._filled(samples, lambda x, target: check(_raw.weft_data_eval, self._ptr, first, x, target))

    def _filled(self, samples: int, fill: Any) -> Batch:
        x, target = (np.empty((samples, self._width), self._dtype) for _ in range(2))
        with Wrapped(x) as inputs, Wrapped(target) as targets:
            fill(inputs, targets)
        return x, target
