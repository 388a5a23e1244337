"""Trains and runs neural networks in parallel across threads, processes and machines, with the same bits however the work is split.

>>> import numpy as np, weft
>>> model = weft.Model()
>>> x, y = model.input("x", (1,)), model.input("y", (1,))
>>> out = model.output(x.linear(32).gelu().linear(1))
>>> loss = out.mse(y)
>>> plan = model.plan(ranks=2, micro_batches=4, micro_batch_size=16, optimizer=weft.AdamW(0.02))
>>> samples = np.linspace(-3, 3, 64, dtype=np.float32)[:, None]
>>> with plan.run() as run:
...     losses = [run.train(samples, np.sin(samples)) for step in range(100)]
...     predicted = run.forward(samples)
>>> losses[-1] < losses[0]
True
>>> predicted.shape
(64, 1)
"""
import ctypes as _ctypes

from . import _raw
from ._core import text_of as _text_of
from ._types import (Activity, Awaited, Candidate, Cause, CheckpointInfo, CutFlags, DType, Event, EventKind, Failure, Init, InputFlags, ItemKind,
                     LinkPrediction, Load, LogLevel, LongSamples, MemoryKind, MeshFlags, NodeFlags, NodeTimes, OpReads, Part, PlanInfo, PlanOptions, PredictionInfo, PresetInfo, RankPrediction,
                     RateCurve, Rule, ScheduleInfo, SequenceEnd, Split, StatusCode, StepKinds, StepMode, Token)
from .checkpoint import Checkpoint, keep_source
from .data import Data
from .errors import (CallbackError, CanceledError, DataError, Error, InputOutputError, InternalError, InvalidError, NoMemoryError, NotFoundError,
                     NotSupportedError, PeerError, ProtocolError, QueueFullError, StateError, TimedOutError)
from .generator import Choice, Generator
from .layers import (GELU, Attention, AveragePool, BatchNorm, Conv1d, Conv2d, Dropout, Embedding, LayerNorm, Linear, MaxPool, ReLU, Reshape, RMSNorm,
                     Sequential, Sigmoid, SiLU, Softmax, Tanh)
from .mesh import Mesh, new_key, public_key
from .model import Item, Model
from .ops import Op, OpCall, Shape
from .optimizer import SGD, Adam, AdamW, Optimizer, ParameterGroup
from .plan import Cluster, Plan, Prediction, Profile, compare, schedules
from ._progress import progress
from .run import Run
from .tokenizer import Tokenizer
from .value import Parameter, Value

__version__: str = _raw.weft_version().decode()


def kernels() -> str:
    """The name of the kernels that multiply matrices."""
    return _text_of(lambda buffer, size: _raw.weft_kernels(buffer, size, None))


def slow_kernels() -> bool:
    """Whether these kernels use only a part of the processor; kernels() then gives the reason."""
    slow = _ctypes.c_uint32()
    _raw.weft_kernels(None, 0, _ctypes.byref(slow))
    return bool(slow.value)


__all__ = [name for name in dir() if not name.startswith("_")]
