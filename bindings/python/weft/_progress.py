"""A progress line for training loops in terminals and in Jupyter."""
import sys
import time
from typing import Iterator, Optional, TextIO

from .run import Run

INTERVAL = 0.2   # seconds between two versions of the line


def _replaces_lines(file: TextIO) -> bool:
    """Whether a carriage return goes back to the start of the line: in terminals, and in the output of Jupyter."""
    return file.isatty() or "ipykernel" in sys.modules


def progress(run: Run, steps: int, file: Optional[TextIO] = None) -> Iterator[int]:
    """Yields 0 to `steps` - 1, and shows the step, the last loss and the time left on one line. Default of `file`: standard error.

    for step in weft.progress(run, 500):
        run.train(x, y)
    """
    file = file or sys.stderr
    live, width = _replaces_lines(file), 0
    begin = shown = time.monotonic()
    for step in range(steps):
        yield step
        now, last = time.monotonic(), step + 1 == steps
        if not last and (not live or now - shown < INTERVAL):
            continue
        shown = now
        loss = "" if run.last_loss is None else f"  loss {run.last_loss:.4g}"
        left = f"{now - begin:.3g} s" if last else f"{(now - begin) / (step + 1) * (steps - step - 1):.0f} s left"
        line = f"step {step + 1}/{steps}{loss}  {left}"
        file.write(("\r" if live else "") + line.ljust(width) + ("\n" if last else ""))
        file.flush()
        width = len(line)
