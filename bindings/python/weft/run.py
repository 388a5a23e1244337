"""Runs: plans that are being executed."""
import collections
import contextlib
import ctypes
import itertools
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Deque, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Union

import numpy as np

from . import _raw, timeline
from ._core import CallLock, Config, Object, check, choice, encode, expect, result
from ._types import Event, EventKind, Load, Part, RunOptions, SaveFlags, SaveOptions, StepMode
from .arrays import Wrapped, as_array, dtype_code, samples_of, tensor_view
from .checkpoint import Checkpoint
from .errors import StateError, error_of
from .events import NOWAIT, SLICE, Polled, public, run_config
from .mesh import Mesh, Ranks
from .model import Item
from .ops import cause_of
from .plan import Path, Plan, Profile, _trace_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

Array = "np.ndarray[Any, Any]"
FINAL = {EventKind.DONE, EventKind.ERROR, EventKind.SAVED}
FAILURES = {EventKind.ERROR, EventKind.FAILED}
WITHOUT_LOSS = {StepMode.FORWARD, StepMode.FILL}
OWN_TAGS = 1 << 63    # the first tag that a run gives
OTHERS = None         # as a tag: the events of submit(), save() and the start, which poll() returns
NOBODY = -1           # as a tag: no events


class _Pending:
    """A step or save that is not finished. The run uses the memory of the arrays until then."""

    def __init__(self, tag: int, arrays: Sequence[Any], has_loss: bool) -> None:
        self.tag, self.arrays, self.has_loss = tag, arrays, has_loss


def _outputs(event: Any) -> Sequence[Any]:
    """The outputs of an event, or of its struct."""
    return event.outputs if isinstance(event, Event) else [tensor_view(event.outputs[i]) for i in range(event.n_outputs)]


def _final(event: Any) -> Tuple[bool, float]:
    return event.kind in FINAL, float(event.loss)


def _rows(item: Item, samples: int) -> Tuple[int, ...]:
    """The shape of an input or output for that many samples, each of which may have several rows."""
    return (samples * item.shape[0], *item.shape[1:])


class Run(Polled):
    """A plan that is being executed. A with statement ends it.

    In this process by default; with `processes`, each rank but this one is a process of this machine; with `mesh`, the ranks are the
    processes that join it. `threads` is the number of compute threads per rank; 0: the calls that wait compute, or one thread per rank if the
    model has ops of the program, so that ^C does not end an op.

    Calls from several threads are made one after another; submit(), poll() and close() do not wait for the end of a step. The option `log` is
    a function that gets the level and the text of log lines. Ops and this function cannot use models, runs, meshes, generators and checkpoints:
    StateError.
    """

    _calls = CallLock()

    def __init__(self, plan: Plan, mesh: Optional[Mesh] = None, processes: bool = False, wait: bool = True, **options: "Unpack[RunOptions]") -> None:
        """`wait=False` returns before the ranks of `mesh` have joined; events tell the progress, and steps are possible after STARTED."""
        expect(plan, Plan, "plan")
        expect(mesh, Mesh, "mesh", optional=True)
        config = run_config(options, NOWAIT)
        config.struct.threads = config.struct.threads or bool(plan._ops)   # Python raises KeyboardInterrupt in the main thread, at any place
        self._plan = plan
        self._ranks = Ranks(plan.info.ranks, config.struct.threads or 1, [registered.op for registered in plan._ops.values()]) if processes else None
        mesh = self._mesh = self._ranks.mesh if self._ranks else mesh
        self._calls = threading.RLock()   # held during a call that is possible between steps only; before _lock
        self._pending: Deque[_Pending] = collections.deque()
        self._own: Set[int] = set()       # tags of the steps of calls, until these are finished
        self._boxes: Dict[Optional[int], Deque[Event]] = {OTHERS: collections.deque()}   # by tag: what calls wait for, taken by another call
        self._tags = itertools.count(OWN_TAGS)
        self._samples = 0
        self._failed = False
        self._starting = True
        self._generator: Callable[[], Optional[Object]] = lambda: None   # a weak reference
        self.last_loss: Optional[float] = None   # of the last step with a loss that has finished
        try:
            with mesh._lock if mesh else contextlib.nullcontext():
                super().__init__(_raw.weft_run_start, plan._ptr, mesh and mesh._ptr, config.pointer, keeps=(plan._ops, mesh, config))
                if mesh:
                    mesh._run = weakref.ref(self)
            while self._starting and (wait or mesh is None):
                self._take(SLICE, OTHERS, public)
        except BaseException:
            self._failed = True
            if self._ranks:
                self._ranks.kill()
                self._ranks.wait(expect_success=False)   # this also closes the run
            elif hasattr(self, "_finalizer"):
                super().close()
            raise

    def close(self) -> None:
        """Ends the run on every rank, and waits for the processes that it started. It kills those that do not end within 10 s."""
        if self.closed:
            return
        ended = not (self._pending or self._failed or self._starting)
        if self._ranks and self._starting:
            self._ranks.kill()   # they would notice the end as a failure
        with self._lock:
            if generator := self._generator():
                generator.close()
            super().close()
        self._pending.clear()
        if self._ranks:
            self._ranks.wait(expect_success=ended)

    # Steps

    def train(self, *inputs: Any, **named: Any) -> float:
        """Makes a training step and returns its loss. Inputs are in the order of the model, or named. step() describes KeyboardInterrupt."""
        return self.step(*inputs, mode=StepMode.TRAIN, **named)

    def gradients(self, *inputs: Any, **named: Any) -> float:
        """Computes gradients without an update, and returns the loss; read(name, "grad") reads them."""
        return self.step(*inputs, mode=StepMode.NO_UPDATE, **named)

    def evaluate(self, *inputs: Any, **named: Any) -> float:
        """Returns the loss."""
        return self.step(*inputs, mode=StepMode.EVAL, **named)

    def step(self, *inputs: Any, mode: Union[StepMode, str] = StepMode.TRAIN, **named: Any) -> float:
        """Makes a step and returns its loss. Only between steps. A step that KeyboardInterrupt leaves goes on, and may read the arrays until the
        next call that is possible between steps only, which waits for its end."""
        mode = StepMode(choice(StepMode, mode))
        return self._made(self._arrays(inputs, named, mode), mode, _final)

    def forward(self, *inputs: Any, out: Optional[Sequence[Any]] = None, **named: Any) -> Any:
        """Returns the outputs: an array, or a tuple of them. `out`: the array, or a sequence of arrays, to write them to. Targets need not be given."""
        return self._outputs_of(self._arrays(inputs, named, StepMode.FORWARD), StepMode.FORWARD, out)[1]

    def step_outputs(self, *inputs: Any, mode: Union[StepMode, str] = StepMode.TRAIN, out: Optional[Sequence[Any]] = None,
                     **named: Any) -> Tuple[float, Any]:
        """Makes a step and returns its loss and its outputs, as forward(). The plan has StepKinds.TRAIN_OUTPUTS or EVAL_OUTPUTS."""
        mode = StepMode(choice(StepMode, mode))
        if not self._plan._delivers(mode):
            raise StateError(f"the plan delivers no outputs of steps of mode {mode.name}; see StepKinds")
        return self._outputs_of(self._arrays(inputs, named, mode), mode, out)

    def _outputs_of(self, arrays: Sequence[Any], mode: StepMode, out: Optional[Sequence[Any]]) -> Tuple[float, Any]:
        samples = samples_of(arrays)
        if out is None:
            out = [np.empty(_rows(item, samples), item.dtype) for item in self._plan.outputs]
        elif len(self._plan.outputs) == 1 and isinstance(out, np.ndarray):
            out = [out]
        outputs = self._checked(out, samples)
        done = [0] * len(outputs)   # rows of each output

        def copy(event: Any) -> Tuple[bool, float]:
            """Copies the outputs of a micro-batch behind the rows that are done."""
            for i, piece in enumerate(_outputs(event)):
                outputs[i][done[i]:done[i] + len(piece)] = piece
                done[i] += len(piece)
            return _final(event)

        loss = self._made(arrays, mode, copy)
        return loss, outputs[0] if len(self._plan.outputs) == 1 else tuple(outputs)

    def _checked(self, out: Sequence[Any], samples: int) -> Sequence[Any]:
        """Refuses arrays that cannot have the outputs of that many samples."""
        if len(out) != len(self._plan.outputs):
            raise ValueError(f"out has {len(out)} arrays, the model has {len(self._plan.outputs)} outputs")
        for array, item in zip(out, self._plan.outputs):
            shape = _rows(item, samples)
            if array.shape != shape or not np.can_cast(item.dtype, array.dtype, "same_kind") or not array.flags.writeable:
                writable = "" if array.flags.writeable else ", read-only"
                raise ValueError(f"the array for output {item.name!r} is {array.dtype} {list(array.shape)}{writable}, expected {item.dtype} {list(shape)}")
        return out

    def _made(self, arrays: Sequence[Any], mode: StepMode, use: Callable[[Any], Tuple[bool, float]]) -> float:
        """Makes a step and calls `use` for each event. Returns the number of the last event, for which `use` also returns True."""
        with self._calls, self._owned() as tag:
            while not self._begun(SLICE, arrays, mode, tag):
                pass
            while True:
                final, number = self._take(None, tag, use)
                if final:
                    return number   # type: ignore[no-any-return]

    @contextlib.contextmanager
    def _owned(self) -> Iterator[int]:
        """The tag of a step whose call waits for its end. If it does not, for example because of KeyboardInterrupt, the events are dropped later."""
        tag = next(self._tags)
        self._boxes[tag] = collections.deque()
        try:
            yield tag
        finally:
            del self._boxes[tag]

    def _begun(self, wait: float, arrays: Sequence[Any], mode: StepMode, tag: int) -> bool:
        """Queues the step, or returns False if that of another call is in progress."""
        with self._lock:
            if not self._settled(wait):
                return False
            if self._pending:
                raise StateError(f"{len(self._pending)} steps and saves are not finished; take their events first")
            self._own.add(tag)
            self._queue(arrays, mode, tag)
            return True

    def submit(self, *inputs: Any, mode: Union[StepMode, str] = StepMode.TRAIN, tag: Optional[int] = None, **named: Any) -> int:
        """Queues a step and returns its tag. Its events follow: poll(), events() or `async for`. The inputs must not change until then."""
        mode = StepMode(choice(StepMode, mode))
        tag = next(self._tags) if tag is None else tag
        self._queue(self._arrays(inputs, named, mode), mode, tag)
        return tag

    def _queue(self, arrays: Sequence[Any], mode: StepMode, tag: int) -> None:
        wrapped = [None if a is None else Wrapped(a) for a in arrays]
        pointers = (ctypes.c_void_p * len(arrays))()
        try:
            for i, tensor in enumerate(wrapped):
                pointers[i] = None if tensor is None else tensor.__enter__()
            with self._lock:
                self._promise(_Pending(tag, arrays, mode not in WITHOUT_LOSS), _raw.weft_run_submit, pointers, len(arrays), mode, tag)
                self._samples = samples_of(arrays)
        except Exception:
            self._own.discard(tag)
            raise
        finally:
            for tensor in wrapped:
                if tensor and tensor.pointer:
                    tensor.__exit__()

    def set_rate(self, rate: float) -> None:
        """Sets the learning rate of all steps after this call, in place of that of the plan."""
        with self._lock:
            check(_raw.weft_run_set_rate, self._ptr, rate)

    def _promise(self, pending: _Pending, function: Any, *arguments: Any) -> None:
        """Makes a call after which a final event follows."""
        self._pending.append(pending)   # first: the library uses the arrays even if KeyboardInterrupt follows the call
        try:
            check(function, self._ptr, *arguments)
        except Exception:
            self._pending.remove(pending)
            raise

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
        """Whether poll() may return an event."""
        return self._starting or bool(self._pending) or bool(self._boxes[OTHERS])

    def poll(self, timeout: Optional[float] = None) -> Optional[Event]:
        """The next event, or None after `timeout` seconds or if nothing is in progress. A failure of the run is raised."""
        event: Optional[Event] = self._take(timeout, OTHERS, public)
        return event

    def events(self) -> Iterator[Event]:
        """The events of the start, and of all steps and saves that are not finished."""
        while self._busy:
            event = self.poll()
            if event is not None:
                yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        """The same, in a loop of asyncio."""
        def look() -> Any:
            event = self.poll(0)
            return event if event is not None or self._busy else False

        while self._busy:
            event = await self._wait_async(look)
            if event:
                yield event

    async def step_async(self, *inputs: Any, mode: Union[StepMode, str] = StepMode.TRAIN, **named: Any) -> Event:
        """Makes a step in a loop of asyncio, and returns its final event. Waits for the steps of other tasks and threads before. A cancelled step
        goes on, as step() describes."""
        mode = StepMode(choice(StepMode, mode))
        arrays = self._arrays(inputs, named, mode)
        async with self._turn():
            with self._owned() as tag:
                await self._wait_async(lambda: self._begun(0, arrays, mode, tag) or None)
                while True:
                    event: Event = await self._wait_async(lambda: self._take(0, tag, public))
                    if event.kind in FINAL:
                        return event

    def _settled(self, wait: float) -> bool:
        """Whether no step of a call is in progress, also none whose call was interrupted. Otherwise waits for an event."""
        if self._own:
            self._look(wait, NOBODY, public)
        return not self._own

    def _take(self, timeout: Optional[float], tag: Optional[int], use: Callable[[Any], Any]) -> Any:
        """What `use` returns for the next event with this tag; None after `timeout` seconds or if nothing is in progress. `use` gets the struct of the
        event, which is valid during the call, or a copy."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self._look(SLICE if end is None else min(max(end - time.monotonic(), 0), SLICE), tag, use)
            if found is None and self._starting and self._ranks:
                self._ranks.check_joining()
            over = not self._busy and not self._boxes.get(tag)   # in this order: another call fills the box first
            if found is not None or over or (end is not None and time.monotonic() >= end):
                return found

    def _look(self, wait: float, tag: Optional[int], use: Callable[[Any], Any]) -> Any:
        """The same for one event, which may be one for another call."""
        with self._lock:
            box = self._boxes.get(tag)
            if box:
                copied = box.popleft()
                self._raise_failure(copied)
                return use(copied)
            event = self._next(wait)
            if event is None:
                return None
            to = event.tag if event.tag in self._own else OTHERS
            mine, found = to == tag or event.kind == EventKind.FAILED, None
            if mine and event.kind not in FAILURES:
                found = use(event)
            elif not mine and to in self._boxes:
                self._boxes[to].append(public(event))
            self._taken = True
            self._account(event)
            self._wake()
            if mine:
                self._raise_failure(event)
            return found

    def _account(self, event: Any) -> None:
        """Notes what is no longer in progress, and drops the arrays of a finished step."""
        if event.kind in (EventKind.STARTED, EventKind.FAILED):
            self._starting = False
        if event.kind in FAILURES:
            self._failed = True
        if event.kind not in FINAL:
            return
        self._own.discard(event.tag)
        for i, item in enumerate(self._pending):
            if item.tag == event.tag:
                del self._pending[i]
                if event.kind == EventKind.DONE and item.has_loss:
                    self.last_loss = event.loss
                break

    def _raise_failure(self, event: Any) -> None:
        """Raises the failure that an event, or its struct, tells."""
        if event.kind in FAILURES:
            failed = event if isinstance(event, Event) else result(event)
            raise error_of(event.status, failed.text or "", failed.failure) from cause_of(self._plan._ops, event.status)

    def _nothing(self) -> None:
        """Drops what KeyboardInterrupt has left: a step that the library does not have, or an event that was not noted."""
        self._starting = False
        self._pending.clear()
        self._own.clear()

    # Parameters

    @contextlib.contextmanager
    def _between(self) -> Iterator[None]:
        """The time of a call that is possible between steps only."""
        with self._calls:
            while True:
                with self._lock:
                    if self._settled(SLICE):
                        yield
                        return

    def _call(self, function: Any, *arguments: Any) -> int:
        with self._between():
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
            shape = next((_rows(item, self._samples) for item in self._plan.inputs if item.name == name), ())
        return shape

    def parameters(self, part: Union[Part, str] = Part.VALUE) -> Dict[str, Any]:
        """All parameters by name."""
        return {name: self.read(name, part) for name in self._plan._shapes}

    def digest(self) -> str:
        """A hash over all parameters, 32 hexadecimal digits: runs with the same parameters have the same digest."""
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
        if not queue:
            self._call(_raw.weft_run_save, settings.pointer)
            return None
        with self._between():
            self._promise(_Pending(settings.struct.tag, (), False), _raw.weft_run_save, settings.pointer)
        return int(settings.struct.tag)

    def load(self, checkpoint: Union[Checkpoint, Path], what: Union[Load, str, None] = None, kept: Union[str, Sequence[str], None] = None) -> None:
        """Loads parameters by name; "all" (the default) also loads the optimizer state and the number of steps, "weights" does not. `kept`: a pattern
        of names, such as "head.*", or several. These parameters keep their values; then "weights" is the default and the only choice."""
        if kept is not None and choice(Load, what or Load.WEIGHTS) != Load.WEIGHTS:
            raise ValueError("kept requires what='weights'")
        if not isinstance(checkpoint, Checkpoint):
            with Checkpoint(checkpoint) as opened:
                return self.load(opened, what, kept)
        last = choice(Load, what or Load.ALL) if kept is None else encode(kept if isinstance(kept, str) else ",".join(kept))
        with checkpoint._lock:
            self._call(_raw.weft_run_load if kept is None else _raw.weft_run_load_except, checkpoint._ptr, last)

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
        """A profile with the times that the run has recorded since record(), in at least five training steps."""
        out = ctypes.c_void_p()
        self._call(_raw.weft_run_profile, expect(profile, Profile, "profile")._ptr, ctypes.byref(out))
        return Profile._of(out)

    def trace(self) -> Dict[str, Any]:
        """The recorded times as the content of a Chrome trace."""
        return _trace_of(self.save_trace)

    def timeline(self) -> "timeline.Picture":
        """The recorded times of the last training step as a picture."""
        return timeline.Picture([("measured", self.trace())])

    def __repr__(self) -> str:
        return "<Run, closed>" if self.closed else f"<Run of {self._plan!r}, {len(self._pending)} steps not finished>"
