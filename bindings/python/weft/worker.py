"""Serves one rank of a run: python -m weft.worker ENDPOINT, where ENDPOINT is Mesh.join_endpoint of rank 0."""
import argparse
import pickle
import signal
import sys

from .errors import Error
from .mesh import Mesh


def serve(endpoint: str, threads: int) -> int:
    # ^C goes to all processes of a terminal. Rank 0 decides whether the run ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Mesh.join(endpoint) as mesh:
            mesh.serve(threads=threads)
    except Error as error:
        print(f"weft.worker: {error}", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m weft.worker", description="Serves one rank of a run.")
    parser.add_argument("endpoint", nargs="?", metavar="ENDPOINT", help="the join endpoint of rank 0")
    parser.add_argument("--threads", type=int, default=1, help="compute threads. Default: 1")
    parser.add_argument("--task", action="store_true", help="read the endpoint from standard input, as weft.Run does")
    arguments = parser.parse_args()
    if arguments.task:
        endpoint, threads = pickle.load(sys.stdin.buffer)
        return serve(endpoint, threads)
    if not arguments.endpoint:
        parser.error("ENDPOINT is missing")
    return serve(arguments.endpoint, arguments.threads)


if __name__ == "__main__":
    sys.exit(main())
