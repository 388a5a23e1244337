"""Checkpoints and safetensors files."""
import ctypes
import threading
from typing import TYPE_CHECKING, Dict, NamedTuple, Optional, Tuple

from . import _raw
from ._core import CallLock, Config, Object, check, encode, filled, new
from ._types import CheckpointInfo, ExportOptions
from .arrays import shape_of
from .plan import Path

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Tensor(NamedTuple):
    """A tensor of a file."""
    shape: Tuple[int, ...]
    dtype: str   # as in the file


class Checkpoint(Object):
    """A checkpoint, a safetensors file, or the latest checkpoint of a directory. Calls from several threads are made one after another."""

    _lock = CallLock()

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        with self._lock:
            super().__init__(new(_raw.weft_checkpoint_open, encode(path)), _raw.weft_checkpoint_free, lock=self._lock)
        self.info: CheckpointInfo = filled(_raw.weft_checkpoint_info, _raw.weft_checkpoint_describe, self._ptr)
        self._numbers: Dict[str, int] = {}
        self.tensors: Dict[str, Tensor] = {}
        self._list()

    def _list(self) -> None:
        desc, dtype = _raw.weft_desc(), ctypes.c_char_p()
        while True:
            number = len(self._numbers)
            name = _raw.weft_checkpoint_tensor(self._ptr, number, ctypes.byref(desc), ctypes.byref(dtype))
            if name is None:
                return
            self._numbers[name.decode()] = number
            self.tensors[name.decode()] = Tensor(shape_of(desc), (dtype.value or b"").decode())

    def digest(self, name: Optional[str] = None) -> str:
        """The digest of a tensor, or of all parameters, as Run.digest()."""
        buffer = ctypes.create_string_buffer(33)
        with self._lock:
            check(_raw.weft_checkpoint_digest, self._ptr, -1 if name is None else self._numbers[name], buffer)
        return buffer.value.decode()

    def export(self, path: Path, **options: "Unpack[ExportOptions]") -> None:
        """Writes the parameters as one safetensors file. If the path ends with "/", writes a directory that Transformers loads, with the
        files of keep_source(). If the model has adapters, the directory is one of PEFT with only these; merge=1 adds them to the weights.
        `adapters` is a directory of PEFT, whose adapters are added to the model."""
        with self._lock:
            check(_raw.weft_checkpoint_export_as, self._ptr, encode(path), Config("weft_export_config", options).pointer)


def keep_source(directory: Path, source: Optional[Path] = None, tokenizer: Optional[Path] = None) -> None:
    """Copies the files of a model that are neither weights nor checkpoints into directory/source, for exports of the checkpoints in
    `directory`: the files of a tokenizer and of special tokens. `source` is a directory of Transformers, or Checkpoint.info.source.
    `tokenizer` is a file tokenizer.json, or its directory, which replaces the tokenizer of `source`. The copies replace earlier ones."""
    paths = [None if path is None else encode(path) for path in (source, tokenizer)]
    check(_raw.weft_checkpoint_keep_source, encode(directory), *paths)
