"""Serves one rank of a run: python -m weft.worker ENDPOINT, where ENDPOINT is Mesh.join_endpoint of rank 0."""
import argparse
import importlib
import os
import pickle
import signal
import sys
import threading
import types
from typing import Any, Callable, Dict, Optional, Sequence

from .errors import Error
from .mesh import Mesh
from .model import Model
from .ops import Op


class Parent(threading.Thread):
    """Waits until the process of rank 0 has ended, and then cancels a mesh whose run has not started."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__(daemon=True)
        self._mesh, self.ended = mesh, False

    def run(self) -> None:
        while os.read(0, 1):   # without the lock of sys.stdin, which the end of this process requires
            pass
        if not self._mesh._started:
            self.ended = True
            self._mesh.cancel()


def serve(endpoint: str, threads: int, ops: Sequence[Op] = (), has_parent: bool = False) -> int:
    parent: Optional[Parent] = None
    # ^C goes to all processes of a terminal. Rank 0 decides whether the run ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        model = Model()
        for op in ops:
            model.op(op)
        with Mesh.join(endpoint) as mesh:
            if has_parent:
                parent = Parent(mesh)
                parent.start()
            mesh.serve(ops=model, threads=threads)
    except Error as error:
        print("weft.worker:", "the process of rank 0 has ended" if parent and parent.ended else error, file=sys.stderr)
        return 1
    return 0


def load_main(program: Optional[Callable[[], Dict[str, Any]]]) -> None:
    """Makes what a program defines available under the name of its module, without running its part for __main__."""
    if program is not None:
        module = types.ModuleType("__main__")
        module.__dict__.update(program())
        sys.modules["__main__"] = module


def load_ops(names: Sequence[str]) -> Sequence[Op]:
    """Ops from texts of the form MODULE:NAME, where NAME is a subclass of Op or an object of one."""
    out = []
    for name in names:
        module, _, attribute = name.partition(":")
        found = getattr(importlib.import_module(module), attribute)
        out.append(found() if isinstance(found, type) else found)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m weft.worker", description="Serves one rank of a run.")
    parser.add_argument("endpoint", nargs="?", metavar="ENDPOINT", help="the join endpoint of rank 0")
    parser.add_argument("--threads", type=int, default=1, help="compute threads. Default: 1")
    parser.add_argument("--op", action="append", default=[], metavar="MODULE:NAME", help="an op of the program; may be repeated")
    parser.add_argument("--task", action="store_true", help="read the endpoint from standard input, as weft.Run does")
    arguments = parser.parse_args()
    if arguments.task:
        endpoint, threads, program, ops = pickle.load(sys.stdin.buffer)
        load_main(program)
        return serve(endpoint, threads, pickle.loads(ops), has_parent=True)
    if not arguments.endpoint:
        parser.error("ENDPOINT is missing")
    return serve(arguments.endpoint, arguments.threads, load_ops(arguments.op))


if __name__ == "__main__":
    sys.exit(main())
