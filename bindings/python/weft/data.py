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

Batch = Tuple["np.ndarray[Any, Any]", ...]


class Data(Object):
    """A file of tokens, or synthetic data if there is no path; see DataOptions."""

    def __init__(self, path: Optional[Path] = None, /, **options: "Unpack[DataOptions]") -> None:
        config = Config("weft_data_config", {"path": path, **options})
        super().__init__(new(_raw.weft_data_open, config.pointer), _raw.weft_data_free)
        tokens = config.struct.vocabulary != 0
        self._width = config.struct.seq_len if tokens else config.struct.width
        self._dtype = np.int32 if tokens else np.float32
        self._packed = config.struct.packed != 0

    def sample(self, seed: int, step: int, samples: int) -> Batch:
        """Inputs and targets of a step, and positions if samples are packed."""
        return self._filled(samples, lambda x, target: check(_raw.weft_data_sample, self._ptr, seed, step, x, target),
                            lambda positions: check(_raw.weft_data_positions, self._ptr, seed, step, positions))

    @property
    def windows(self) -> int:
        """The number of windows of an epoch; 0: there is no file for training."""
        return int(_raw.weft_data_windows(self._ptr))

    @property
    def eval_windows(self) -> int:
        """The number of windows of held-out data."""
        return int(_raw.weft_data_eval_windows(self._ptr))

    @property
    def cut_samples(self) -> int:
        """The number of samples, training and held out, of which LongSamples.CUT has cut the end off."""
        return int(_raw.weft_data_cut_samples(self._ptr))

    @property
    def skipped_samples(self) -> int:
        """The number of samples, training and held out, that LongSamples.CUT and LongSamples.SKIP have left out."""
        return int(_raw.weft_data_skipped_samples(self._ptr))

    def eval(self, first: int, samples: int) -> Batch:
        """Held-out windows, starting at `first`, with positions if samples are packed. After the last one follows padding with targets of -1."""
        return self._filled(samples, lambda x, target: check(_raw.weft_data_eval, self._ptr, first, x, target),
                            lambda positions: check(_raw.weft_data_eval_positions, self._ptr, first, positions))

    def _filled(self, samples: int, fill: Any, fill_positions: Any) -> Batch:
        x, target, positions = (np.empty((samples, self._width), self._dtype) for _ in range(3))
        with Wrapped(x) as inputs, Wrapped(target) as targets:
            fill(inputs, targets)
        if not self._packed:
            return x, target
        with Wrapped(positions) as wrapped:
            fill_positions(wrapped)
        return x, target, positions
