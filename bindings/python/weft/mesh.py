"""The processes of a run, and processes of this machine as ranks."""
import contextlib
import ctypes
import functools
import os
import pickle
import runpy
import subprocess
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence

from . import _raw
from ._core import CallLock, Config, Object, check, encode, expect, new
from ._types import MeshOptions, RunOptions
from .errors import PeerError
from .events import Service, run_config
from .model import Model
from .plan import Plan

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .ops import Op


class Mesh(Object):
    """Rank 0 listens and starts the run; every other process joins and serves. Calls from several threads are made one after another; these
    do not wait for the end of a run."""

    _lock = CallLock()

    @classmethod
    def listen(cls, endpoint: Optional[str] = None, /, **options: "Unpack[MeshOptions]") -> "Mesh":
        """Rank 0. Other processes join with `join_endpoint`."""
        return cls(_raw.weft_mesh_listen, endpoint, options)

    @classmethod
    def join(cls, endpoint: str, /, **options: "Unpack[MeshOptions]") -> "Mesh":
        """Any other rank."""
        return cls(_raw.weft_mesh_join, endpoint, options)

    def __init__(self, function: Any, endpoint: Optional[str], options: Any) -> None:
        self._lock = threading.RLock()
        config = Config("weft_mesh_config", {"endpoint": endpoint, **options})
        super().__init__(new(function, config.pointer), _raw.weft_mesh_free)
        self._run: Optional[Callable[[], Optional[Object]]] = None   # a weak reference

    @property
    def endpoint(self) -> str:
        """The endpoint of this process."""
        return str(_raw.weft_mesh_endpoint(self._ptr).decode())

    @property
    def join_endpoint(self) -> str:
        """The endpoint with which other processes join. Over tcp it contains keys: keep it secret."""
        return str(_raw.weft_mesh_join_endpoint(self._ptr).decode())

    def cancel(self) -> None:
        """Ends all present and future calls on the mesh in this process with CanceledError. Any thread may call it."""
        _raw.weft_mesh_cancel(self._ptr)

    def serve(self, plan: Optional[Plan] = None, ops: Optional[Model] = None, **options: "Unpack[RunOptions]") -> None:
        """Joins, receives a rank, model and plan, and serves until the run ends. `ops`: a model whose ops are available here."""
        with self._join(plan, ops, options) as service:
            service.wait()

    async def serve_async(self, plan: Optional[Plan] = None, ops: Optional[Model] = None, **options: "Unpack[RunOptions]") -> None:
        """The same in a loop of asyncio."""
        with self._join(plan, ops, options) as service:
            await service.wait_async()

    def _join(self, plan: Optional[Plan], ops: Optional[Model], options: Any) -> Service:
        expect(plan, Plan, "plan", optional=True)
        expect(ops, Model, "ops", optional=True)
        config = run_config(options)
        with self._lock, ops._lock if ops else contextlib.nullcontext():
            service = Service(_raw.weft_run_join, self._ptr, plan and plan._ptr, ops and ops._ptr, config.pointer,
                              keeps=(self, plan and plan._ops, ops and ops._ops, config))
            self._run = weakref.ref(service)
        return service

    @property
    def _started(self) -> bool:
        """Whether the run that this process serves has started."""
        service = self._run() if self._run else None
        return isinstance(service, Service) and service.started

    def close(self) -> None:
        """Ends the run of the mesh, and the mesh."""
        run = self._run() if self._run else None
        if run is not None:
            run.close()
        super().close()


WORKER_MAIN = "__weft_worker__"   # __name__ of the program while a rank loads it for its ops


def main_of(ops: "Sequence[Op]") -> Optional[Callable[[], Dict[str, Any]]]:
    """What runs the program as a module, if ops are defined in it: a process that has these ops calls it first."""
    if all(type(op).__module__ != "__main__" for op in ops):
        return None
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != "__main__":   # python -m NAME
        return functools.partial(runpy.run_module, spec.name, run_name=WORKER_MAIN, alter_sys=True)
    path: Optional[str] = getattr(main, "__file__", None)
    if path is None or path == "<stdin>":
        raise TypeError("an op that other processes run is defined in an interactive session or on standard input; define it in a file")
    return functools.partial(runpy.run_path, os.path.abspath(path), run_name=WORKER_MAIN)


END_TIME = 10.0   # seconds; how long the processes of a run may take to end after it


class Ranks:
    """Ranks 1 to `count` - 1 as processes of this machine, which run `python -m weft.worker`."""

    def __init__(self, count: int, threads: int = 1, ops: "Sequence[Op]" = ()) -> None:
        if WORKER_MAIN in sys.modules:
            raise RuntimeError("a rank that loads the program for its ops would start ranks; put what starts the run below 'if __name__ == \"__main__\":'")
        self.mesh = Mesh.listen()
        self.processes: List[subprocess.Popen[bytes]] = []
        task = pickle.dumps((self.mesh.join_endpoint, threads, main_of(ops), pickle.dumps(ops)))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        try:
            for _ in range(1, count):
                process = subprocess.Popen([sys.executable, "-m", "weft.worker", "--task"], stdin=subprocess.PIPE, env=environment)
                self.processes.append(process)
                assert process.stdin   # stays open: the process notices the end of this one
                with contextlib.suppress(BrokenPipeError):   # check_joining() reports a process that has ended
                    process.stdin.write(task)
                    process.stdin.flush()
        except BaseException:
            self.kill()
            self.wait(expect_success=False)
            raise

    def check_joining(self) -> None:
        """Raises an error if a process has ended. Before the run starts, that is too early."""
        for process in self.processes:
            if process.poll() is not None:
                raise PeerError(f"process {process.pid} of a rank ended with status {process.returncode} before the run started; its error output has the reason")

    def kill(self) -> None:
        """Ends all processes, and does not wait."""
        for process in self.processes:
            process.kill()

    def wait(self, expect_success: bool) -> None:
        """Waits for all processes, which end with the run, and kills those that do not."""
        self.mesh.close()
        failed = []
        limit = time.monotonic() + END_TIME
        for process in self.processes:
            while process.poll() is None:
                if time.monotonic() >= limit:
                    process.kill()
                time.sleep(0.01)   # process.wait() does not end if another thread receives the signal of ^C
            assert process.stdin
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            if process.returncode != 0:
                failed.append(f"process {process.pid} of a rank ended with status {process.returncode}")
        if failed and expect_success:
            raise PeerError("; ".join(failed))


def new_key() -> str:
    """A new secret key for a mesh over tcp."""
    buffer = ctypes.create_string_buffer(_raw.WEFT_KEY_SIZE)
    check(_raw.weft_key_new, buffer)
    return buffer.value.decode()


def public_key(secret: str) -> str:
    """The public key of a secret key."""
    buffer = ctypes.create_string_buffer(_raw.WEFT_KEY_SIZE)
    check(_raw.weft_key_public, encode(secret), buffer)
    return buffer.value.decode()
