"""Runs: plans that are being executed."""
import collections
import ctypes
import itertools
import time
import weakref
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Deque, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Union

import numpy as np

from . import _raw, timeline
from ._core import Config, Object, check, choice, encode, result
from ._types import Event, EventKind, Load, Part, RunOptions, SaveFlags, SaveOptions, StepMode
from .arrays import Wrapped, as_array, dtype_code, tensor_view
from .checkpoint import Checkpoint
from .errors import StateError, error_of
from .events import NOWAIT, SLICE, Polled, public, run_config
from .mesh import Mesh, Ranks
from .ops import cause_of
from .plan import Path, Plan, Profile, _trace_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

Array = "np.ndarray[Any, Any]"
FINAL = {EventKind.DONE, EventKind.ERROR, EventKind.SAVED}
OWN_TAGS = 1 << 63    # the first tag of the steps that the methods of Run make themselves


class _Pending:
    """A step or save that is not finished. The run uses the memory of the arrays until then."""

    def __init__(self, tag: int, arrays: Sequence[Any]) -> None:
        self.tag, self.arrays = tag, arrays


class Run(Polled):
    """A plan that is being executed. A with statement ends it.

    In this process by default; with `processes`, each rank but this one is a process of this machine; with `mesh`, the ranks are the
    processes that join it. `threads` is the number of compute threads per rank; 0: the calls that wait compute.

    Calls from several threads are made one after another. The option `log` is a function that gets the level and the text of log lines.
    """

    def __init__(self, plan: Plan, mesh: Optional[Mesh] = None, processes: bool = False, wait: bool = True, **options: "Unpack[RunOptions]") -> None:
        """`wait=False` returns before the ranks of `mesh` have joined; events tell the progress, and steps are possible after STARTED."""
        config = run_config(options, NOWAIT)
        self._plan = plan
        self._ranks = Ranks(plan.info.ranks, config.struct.threads or 1, [registered.op for registered in plan._ops.values()]) if processes else None
        self._mesh = self._ranks.mesh if self._ranks else mesh
        self._pending: Deque[_Pending] = collections.deque()
        self._dropped: Set[int] = set()   # tags of steps whose events are not used
        self._tags = itertools.count(OWN_TAGS)
        self._samples = 0
        self._failed = False
        self._starting = True
        self._generator: Callable[[], Optional[Object]] = lambda: None   # a weak reference
        self.last_loss: Optional[float] = None   # of the last step with a loss that has finished
        try:
            super().__init__(_raw.weft_run_start, plan._ptr, self._mesh and self._mesh._ptr, config.pointer, keeps=(plan._ops, self._mesh, config))
            if self._mesh is not None:
                self._mesh._run = weakref.ref(self)
            while self._starting and (wait or self._mesh is None):
                self._take(None, None)
        except BaseException:
            if self._ranks:
                self._ranks.kill()   # this also closes the run
            elif hasattr(self, "_finalizer"):
                super().close()
            raise

    def close(self) -> None:
        """Ends the run on every rank, and waits for the processes that it started."""
        if self.closed:
            return
        ended = not self._pending and not self._failed
        with self._lock:
            generator = self._generator()
            if generator:
                generator.close()
            super().close()
        self._pending.clear()
        if self._ranks:
            self._ranks.wait(expect_success=ended)

    # Steps

    def train(self, *inputs: Any, **named: Any) -> float:
        """Makes a training step and returns its loss. Inputs are in the order of the model, or named."""
        return self.step(*inputs, mode=StepMode.TRAIN, **named)

    def gradients(self, *inputs: Any, **named: Any) -> float:
        """Computes gradients without an update, and returns the loss; read(name, "grad") reads them."""
        return self.step(*inputs, mode=StepMode.NO_UPDATE, **named)

    def evaluate(self, *inputs: Any, **named: Any) -> float:
        """Returns the loss."""
        return self.step(*inputs, mode=StepMode.EVAL, **named)

    def step(self, *inputs: Any, mode: Union[StepMode, str] = StepMode.TRAIN, **named: Any) -> float:
        """Makes a step and returns its loss. Only between steps."""
        tag = self._begin(inputs, mode, named)
        for event in self._until_final(tag):
            pass
        return float(event.loss)

    def forward(self, *inputs: Any, out: Optional[Sequence[Any]] = None, **named: Any) -> Any:
        """Returns the outputs: an array, or a tuple of them. `out`: arrays to write them to. Targets need not be given."""
        tag = self._begin(inputs, StepMode.FORWARD, named)
        outputs: List[Any] = list(out or [])
        done = 0
        for _ in self._until_final(tag):
            done += self._copy_outputs(outputs, done)
        return outputs[0] if len(self._plan.outputs) == 1 else tuple(outputs)

    def _begin(self, inputs: Sequence[Any], mode: Union[StepMode, str], named: Mapping[str, Any]) -> int:
        self._settle()
        if self._pending:
            raise StateError(f"{len(self._pending)} steps and saves are not finished; take their events first")
        tag = next(self._tags)
        self._dropped.add(tag)   # if the caller is interrupted; _until_final() removes it
        try:
            return self.submit(*inputs, mode=mode, tag=tag, **named)
        except Exception:
            self._dropped.discard(tag)
            raise

    def _until_final(self, tag: int) -> Iterator[Any]:
        """The structs of the events of a step. If the caller does not wait for its end, the events are dropped later."""
        while True:
            event = self._take(None, tag)
            yield event
            if event.kind in FINAL:
                self._dropped.discard(tag)
                return

    def _copy_outputs(self, outputs: List[Any], done: int) -> int:
        """Copies the outputs of a micro-batch behind those of the first `done` samples. Returns the number of samples."""
        event, count = self._event, 0
        for i in range(event.n_outputs):
            piece = tensor_view(event.outputs[i])
            count = piece.shape[0]
            if len(outputs) <= i:
                outputs.append(np.empty((self._samples, *piece.shape[1:]), piece.dtype))
            outputs[i][done:done + count] = piece
        return count

    def submit(self, *inputs: Any, mode: Union[StepMode, str] = StepMode.TRAIN, tag: Optional[int] = None, **named: Any) -> int:
        """Queues a step and returns its tag. Its events follow: poll(), events() or `async for`. The inputs must not change until then."""
        mode = StepMode(choice(StepMode, mode))
        tag = next(self._tags) if tag is None else tag
        arrays = self._arrays(inputs, named, mode)
        wrapped = [None if a is None else Wrapped(a) for a in arrays]
        pointers = (ctypes.c_void_p * len(arrays))()
        step = _Pending(tag, arrays)
        try:
            for i, tensor in enumerate(wrapped):
                pointers[i] = None if tensor is None else tensor.__enter__()
            with self._lock:
                self._pending.append(step)   # first: the library uses the arrays even if KeyboardInterrupt follows the call
                try:
                    check(_raw.weft_run_submit, self._ptr, pointers, len(arrays), mode, tag)
                except Exception:
                    self._pending.remove(step)
                    raise
        finally:
            for tensor in wrapped:
                if tensor and tensor.pointer:
                    tensor.__exit__()
        self._samples = next((len(a) for a in arrays if a is not None), 0)
        return tag

    def _arrays(self, inputs: Sequence[Any], named: Mapping[str, Any], mode: StepMode) -> List[Any]:
        """The arrays of all inputs of the model, in their order. Those of a forward step may be missing."""
        items = self._plan.inputs
        if len(inputs) > len(items):
            raise TypeError(f"got {len(inputs)} inputs, the model has {len(items)}")
        given = dict(zip((item.name for item in items), inputs))
        for name, value in named.items():
            if name in given or all(item.name != name for item in items):
                raise TypeError(f"input {name!r} is {'given twice' if name in given else 'not an input of the model'}")
            given[name] = value
        out: List[Any] = []
        for item in items:
            value = given.get(item.name)
            if value is None and mode != StepMode.FORWARD:
                raise TypeError(f"input {item.name!r} is missing")
            out.append(None if value is None else as_array(value, dtype_code(item.dtype)))
        return out

    # Events

    @property
    def pending(self) -> int:
        """The number of steps and saves that are not finished."""
        return len(self._pending)

    @property
    def _busy(self) -> bool:
        return self._starting or bool(self._pending)

    def poll(self, timeout: Optional[float] = None) -> Optional[Event]:
        """The next event, or None after `timeout` seconds or if nothing was submitted. A failure of the run is raised."""
        self._settle()
        event = self._take(timeout, None)
        return None if event is None else public(event)

    def events(self) -> Iterator[Event]:
        """The events of the start, and of all steps and saves that are not finished."""
        while self._busy:
            event = self.poll()
            if event is not None:
                yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        """The same, in a loop of asyncio."""
        while self._busy:
            event = self.poll(0)
            if event is None:
                await self._readable()
            else:
                yield event

    async def step_async(self, *inputs: Any, mode: Union[StepMode, str] = StepMode.TRAIN, **named: Any) -> Event:
        """Makes a step in a loop of asyncio, and returns its final event. Only between steps."""
        tag = self._begin(inputs, mode, named)
        while True:
            event = self._take(0, tag)
            if event is None:
                await self._readable()
            elif event.kind in FINAL:
                self._dropped.discard(tag)
                return public(event)

    def _settle(self) -> None:
        """Waits for the end of steps whose caller was interrupted."""
        while self._dropped:
            self._take(None, None)

    def _take(self, timeout: Optional[float], tag: Optional[int]) -> Any:
        """The struct of the next event; it is valid until the next call. `tag`: the step of which the caller uses the events."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            wait = SLICE if end is None else min(max(end - time.monotonic(), 0), SLICE)
            with self._lock:
                event = self._next(wait)
                if event is not None:
                    self._finish(event)
                    self._taken = True
                    if event.tag == tag or event.tag not in self._dropped:
                        return event
                    if event.kind in FINAL:
                        self._dropped.discard(event.tag)
                        return None
                    continue
            if not self._busy or (end is not None and time.monotonic() >= end):
                return None

    def _finish(self, event: Any) -> None:
        """Drops the arrays of a finished step, and raises a failure of the run."""
        if event.kind == EventKind.STARTED:
            self._starting = False
        if event.kind == EventKind.FAILED:
            self._starting = False
            self._raise(event)
        if event.kind not in FINAL:
            return
        for i, item in enumerate(self._pending):
            if item.tag == event.tag:
                del self._pending[i]
                break
        if event.kind == EventKind.DONE and event.loss:
            self.last_loss = event.loss
        if event.kind == EventKind.ERROR:
            self._dropped.discard(event.tag)
            self._raise(event)

    def _raise(self, event: Any) -> None:
        self._failed = self._taken = True
        failed = result(event)
        raise error_of(event.status, failed.text, failed.failure) from cause_of(self._plan._ops, event.status)

    def _nothing(self) -> None:
        self._pending.clear()   # of a caller that was interrupted before the library had the step
        self._dropped.clear()

    # Parameters

    def _call(self, function: Any, *arguments: Any) -> int:
        self._settle()
        with self._lock:
            return check(function, self._ptr, *arguments)

    def read(self, name: str, part: Union[Part, str] = Part.VALUE, out: Optional[Any] = None) -> Any:
        """A parameter, its gradient ("grad") or a state of the optimizer; or the gradient of an input. `out`: an array to write it to."""
        array = np.empty(self._shape(name), np.float32) if out is None else out
        if not array.flags.writeable:
            raise ValueError("the array is read-only")
        with Wrapped(array) as tensor:
            self._call(_raw.weft_run_read, encode(name), choice(Part, part), tensor)
        return array

    def write(self, name: str, value: Any, part: Union[Part, str] = Part.VALUE) -> None:
        """Sets a parameter or a state of the optimizer."""
        with Wrapped(as_array(value, dtype_code("float32"))) as tensor:
            self._call(_raw.weft_run_write, encode(name), choice(Part, part), tensor)

    def _shape(self, name: str) -> Tuple[int, ...]:
        shape = self._plan._shapes.get(name)
        if shape is None:   # an input has the samples of the last step
            shape = next(((self._samples, *item.shape[1:]) for item in self._plan.inputs if item.name == name), ())
        return shape

    def parameters(self, part: Union[Part, str] = Part.VALUE) -> Dict[str, Any]:
        """All parameters by name."""
        return {name: self.read(name, part) for name in self._plan._shapes}

    def digest(self) -> str:
        """32 hexadecimal digits: two runs have the same parameters if and only if their digests are equal."""
        return self._digest(_raw.weft_run_digest)

    def optimizer_digest(self) -> str:
        """The same for the state of the optimizer."""
        return self._digest(_raw.weft_run_optimizer_digest)

    def _digest(self, function: Any) -> str:
        buffer = ctypes.create_string_buffer(33)
        self._call(function, buffer)
        return buffer.value.decode()

    def resident(self, rank: int) -> int:
        """Bytes of the tensors of a rank that are in memory."""
        out = ctypes.c_int64()
        self._call(_raw.weft_run_resident, rank, ctypes.byref(out))
        return out.value

    # Files

    def save(self, directory: Path, /, *, queue: bool = False, **options: "Unpack[SaveOptions]") -> Optional[int]:
        """Writes a checkpoint. With `queue` it returns the tag of the save at once, and an event of the kind SAVED follows."""
        tag = next(self._tags)
        settings = Config("weft_save_config", {"tag": tag, **options, "directory": directory, "flags": SaveFlags.QUEUE if queue else 0})
        with self._lock:
            self._call(_raw.weft_run_save, settings.pointer)
            if queue:
                self._pending.append(_Pending(settings.struct.tag, ()))
        return settings.struct.tag if queue else None

    def load(self, checkpoint: Union[Checkpoint, Path], what: Union[Load, str] = Load.ALL) -> None:
        """Loads parameters by name; "all" also loads the optimizer state and the number of steps, "weights" does not."""
        if not isinstance(checkpoint, Checkpoint):
            with Checkpoint(checkpoint) as opened:
                return self.load(opened, what)
        self._call(_raw.weft_run_load, checkpoint._ptr, choice(Load, what))

    def export(self, path: Path) -> None:
        """Writes all parameters as one safetensors file."""
        self._call(_raw.weft_run_export, encode(path))

    def record(self, jobs: int = 4096) -> None:
        """Makes every rank record the times of its next jobs; 0: stop."""
        self._call(_raw.weft_run_trace, jobs)

    def save_trace(self, path: Path) -> None:
        """Writes the recorded times as a Chrome trace, for Perfetto."""
        self._call(_raw.weft_run_save_trace, encode(path))

    def profile(self, profile: Profile) -> Profile:
        """A profile with the times that the run has recorded since record(), in at least five steps."""
        out = ctypes.c_void_p()
        self._call(_raw.weft_run_profile, profile._ptr, ctypes.byref(out))
        return Profile._of(out)

    def trace(self) -> Dict[str, Any]:
        """The recorded times as the content of a Chrome trace."""
        return _trace_of(self.save_trace)

    def timeline(self) -> "timeline.Picture":
        """The recorded times of the last training step as a picture."""
        return timeline.Picture([("measured", self.trace())])

    def __repr__(self) -> str:
        return "<Run, closed>" if self.closed else f"<Run of {self._plan!r}, {len(self._pending)} steps not finished>"
