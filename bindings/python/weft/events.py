"""What runs and services share: a queue of events with a descriptor."""
import asyncio
import contextlib
import ctypes
import os
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from . import _raw
from ._core import CALLBACKS, SECOND, CallLock, Config, Object, check, result
from ._types import Event, EventKind, Failure, LogLevel, RunFlags
from .arrays import tensor_view
from .errors import error_of

SLICE = 0.05   # seconds; a wait is divided so that KeyboardInterrupt ends it


def run_config(options: Mapping[str, Any], flags: int = 0) -> Config:
    """A weft_run_config. `log` is called with the level and the text of each line."""
    rest: Dict[str, Any] = dict(options)
    log = rest.pop("log", None)
    config = Config("weft_run_config", {**rest, "flags": flags})
    if log is not None:
        function = _raw.weft_log_cb(_logging(log))
        config.keeps.append(function)
        config.struct.log = ctypes.cast(function, ctypes.c_void_p).value
    return config


def _logging(log: Callable[[LogLevel, str], None]) -> Callable[[int, bytes, Any], None]:
    def function(level: int, text: bytes, _: Any) -> None:
        thread = threading.get_ident()
        outer = thread in CALLBACKS   # as for ops
        try:
            CALLBACKS.add(thread)   # before anything that could start the garbage collector
            log(LogLevel(level), text.decode(errors="replace"))
        finally:
            if not outer:
                CALLBACKS.discard(thread)

    return function


class Polled(Object):
    """A run or a service. Calls from several threads are made one after another."""

    _lock = CallLock()

    def __init__(self, function: Any, *arguments: Any, keeps: Any) -> None:
        """`function` creates the object; `keeps` is what it uses."""
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._watches: List[Tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._turns: Optional[Tuple[asyncio.AbstractEventLoop, asyncio.Lock]] = None   # of the loop that was the last to make a step
        out = ctypes.c_void_p()
        super().__init__(out, _raw.weft_run_free, keeps, lock=self._lock)
        try:
            check(function, *arguments, ctypes.byref(out))
        finally:
            del arguments   # as in check()
        self._event = _raw.weft_event(ctypes.sizeof(_raw.weft_event))
        self._taken = True   # the caller of _next() has used the event

    @property
    def closed(self) -> bool:
        """Whether it is closed, or belongs to another process: after fork(), the new process has none of its threads."""
        return super().closed or os.getpid() != self._process

    def close(self) -> None:
        if not self.closed:
            with self._lock:
                super().close()
            self._wake()

    def fileno(self) -> int:
        """A descriptor that is readable while there may be an event. Do not read from it. close() closes it, so stop watching it before."""
        with self._lock:
            return int(_raw.weft_run_fd(self._ptr))

    async def _wait_async(self, look: Callable[[], Any]) -> Any:
        """The first result of `look` that is not None. It is called when there may be an event, and when another call has taken one."""
        with self._watch() as woken:
            while True:
                woken.clear()   # before the look
                found = look()
                if found is not None:
                    return found
                await woken.wait()

    def _turn(self) -> asyncio.Lock:
        """What a task holds during a step, so that the tasks of a loop take turns."""
        loop, turns = asyncio.get_running_loop(), self._turns
        if turns is None or turns[0] is not loop:
            turns = self._turns = (loop, asyncio.Lock())
        return turns[1]

    @contextlib.contextmanager
    def _watch(self) -> Iterator[asyncio.Event]:
        watch = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            descriptor = os.dup(self.fileno())   # the loop watches it until after close(), when another file may have the number of the other one
        self._watches.append(watch)
        try:
            watch[0].add_reader(descriptor, watch[1].set)
            yield watch[1]
        finally:
            self._watches.remove(watch)
            watch[0].remove_reader(descriptor)
            os.close(descriptor)

    def _wake(self) -> None:
        for loop, woken in list(self._watches):
            loop.call_soon_threadsafe(woken.set)

    def _next(self, seconds: float) -> Any:
        """The struct of the next event, or None after this time. The caller sets _taken when it has used the event.

        KeyboardInterrupt often follows the call of the library at once. The event is then still in the struct, for the next call.
        """
        if self._taken or self._event.kind == 0:
            self._event.kind = 0
            self._taken = False
            begin = time.monotonic()
            if not check(_raw.weft_run_poll, self._ptr, ctypes.byref(self._event), int(seconds * SECOND)) and time.monotonic() - begin < seconds:
                self._nothing()
        return self._event if self._event.kind else None

    def _nothing(self) -> None:
        """The library has no event, and nothing is in progress."""

    @property
    def failure(self) -> Optional[Failure]:
        """The failure of the run, or None. str() gives its text."""
        out = _raw.weft_failure(ctypes.sizeof(_raw.weft_failure))
        with self._lock:
            return result(out) if _raw.weft_run_failure(self._ptr, ctypes.byref(out)) == 1 else None


def public(event: Any) -> Event:
    """An event whose outputs are copies, from its struct or as it is."""
    if isinstance(event, Event):
        return event
    out: Event = result(event)
    return out._replace(outputs=tuple(np.array(tensor_view(tensor)) for tensor in out.outputs))


class Service(Polled):
    """A rank other than 0 that serves; Mesh.serve() waits for its end."""

    started = False   # the run; the library then notices the end of another rank

    def _ended(self, seconds: float) -> bool:
        """Takes an event. True: the run has ended normally. Its failure is raised."""
        with self._lock:
            event = self._next(seconds)
            if event is None:
                return False
            self._taken = True
            self.started = self.started or event.kind == EventKind.STARTED
            if event.kind == EventKind.FAILED:
                failed = result(event)
                raise error_of(event.status, failed.text, failed.failure)
            return bool(event.kind == EventKind.ENDED)

    def wait(self) -> None:
        while not self._ended(SLICE):
            pass

    async def wait_async(self) -> None:
        await self._wait_async(lambda: self._ended(0) or None)


NOWAIT = int(RunFlags.NOWAIT)
