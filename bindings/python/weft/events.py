"""What runs and services share: a queue of events with a descriptor."""
import asyncio
import ctypes
import threading
import time
from typing import Any, Dict, Mapping, Optional

import numpy as np

from . import _raw
from ._core import SECOND, Config, Object, check, result
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
        function = _raw.weft_log_cb(lambda level, text, _: log(LogLevel(level), text.decode(errors="replace")))
        config.keeps.append(function)
        config.struct.log = ctypes.cast(function, ctypes.c_void_p).value
    return config


def _set(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


class Polled(Object):
    """A run or a service. Calls from several threads are made one after another."""

    def __init__(self, function: Any, *arguments: Any, keeps: Any) -> None:
        """`function` creates the object; `keeps` is what it uses."""
        self._lock = threading.RLock()
        out = ctypes.c_void_p()
        super().__init__(out, _raw.weft_run_free, keeps, lock=self._lock)
        check(function, *arguments, ctypes.byref(out))
        self._event = _raw.weft_event(ctypes.sizeof(_raw.weft_event))
        self._taken = True   # the caller of _next() has used the event

    def close(self) -> None:
        with self._lock:
            super().close()

    def fileno(self) -> int:
        """A descriptor that is readable while there may be an event. Do not read from it."""
        return int(_raw.weft_run_fd(self._ptr))

    async def _readable(self) -> None:
        loop, descriptor = asyncio.get_running_loop(), self.fileno()
        ready = loop.create_future()
        loop.add_reader(descriptor, _set, ready)
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)

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
        """The failure of the run, or None."""
        out = _raw.weft_failure(ctypes.sizeof(_raw.weft_failure))
        with self._lock:
            return result(out) if _raw.weft_run_failure(self._ptr, ctypes.byref(out)) == 1 else None


def public(event: Any) -> Event:
    """An event whose outputs are copies."""
    out: Event = result(event)
    return out._replace(outputs=tuple(np.array(tensor_view(tensor)) for tensor in out.outputs))


class Service(Polled):
    """A rank other than 0 that serves; Mesh.serve() waits for its end."""

    def _ended(self, seconds: float) -> bool:
        """Takes an event. True: the run has ended normally. Its failure is raised."""
        with self._lock:
            event = self._next(seconds)
            if event is None:
                return False
            self._taken = True
            if event.kind == EventKind.FAILED:
                failed = result(event)
                raise error_of(event.status, failed.text, failed.failure)
            return bool(event.kind == EventKind.ENDED)

    def wait(self) -> None:
        while not self._ended(SLICE):
            pass

    async def wait_async(self) -> None:
        while not self._ended(0):
            await self._readable()


NOWAIT = int(RunFlags.NOWAIT)
