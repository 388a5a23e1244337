"""Generators: sequences of tokens that the run of a decoder continues."""
import ctypes
import time
import weakref
from typing import Any, Iterator, Optional, Sequence

from . import _raw
from ._core import SECOND, CallLock, Config, Object, check, exact, expect, new, result
from ._types import Token
from .errors import DataError, Error
from .events import SLICE
from .run import Run

FOREVER = float("inf")
NONE = -1   # no token


class Generator(Object):
    """Continues sequences with a run whose model is of Model.decoder. Until it is closed, no other call uses the run. Sequences may join and leave
    between tokens."""

    _lock = CallLock()   # of the run

    def __init__(self, run: Run) -> None:
        self._lock = expect(run, Run, "run")._lock
        with self._lock:
            super().__init__(new(_raw.weft_generator_new, run._ptr), _raw.weft_generator_free, run, lock=self._lock)
            self._token = _raw.weft_token(ctypes.sizeof(_raw.weft_token), token=NONE)
            run._generator = weakref.ref(self)   # a run that is closed closes it first

    def add(self, tokens: Sequence[int], **options: Any) -> int:
        """Adds a sequence that begins with these tokens, and returns its identifier. Options: temperature, top_k, top_p, min_p, repetition_penalty,
        seed, number, first, limit and stops."""
        config = Config("weft_sequence_config", options)
        array = exact(ctypes.c_int32, tokens)
        out = ctypes.c_uint64()
        with self._lock:
            check(_raw.weft_generator_add, self._ptr, array, len(tokens), config.pointer, ctypes.byref(out))
        return out.value

    def remove(self, sequence: int) -> None:
        """Ends a sequence. Its tokens that have not been polled are dropped."""
        with self._lock:
            check(_raw.weft_generator_remove, self._ptr, sequence)

    def poll(self, timeout: float = 0) -> Optional[Token]:
        """The next token, or None if the time, in seconds, has passed or there is no sequence. DataError: a logit of a sequence is NaN,
        or the largest one is not finite. The attribute `sequence` of the exception is this sequence, which has ended; the others continue."""
        end = time.monotonic() + timeout
        while True:
            begin = time.monotonic()
            wait = min(max(end - begin, 0), SLICE)
            with self._lock:
                if self._token.token == NONE:   # KeyboardInterrupt often follows the call at once; the token is then for the next poll()
                    self._token.sequence = 0
                    try:
                        check(_raw.weft_generator_poll, self._ptr, ctypes.byref(self._token), round(wait * SECOND))
                    except Error as failure:
                        self._token.token = NONE
                        if isinstance(failure, DataError):
                            failure.sequence = self._token.sequence or None
                        raise
                if self._token.token != NONE:
                    token: Token = result(self._token)
                    self._token.token = NONE
                    return token
            now = time.monotonic()
            if now >= end or now < begin + wait / 2:   # before its time, poll() returns without a token only if there is no sequence
                return None

    def tokens(self, left: int) -> Iterator[Token]:
        """The tokens of the sequences until `left` of them have ended, or none is left. After an exception of poll(), another call continues."""
        while left > 0:
            token = self.poll(FOREVER)
            if token is None:
                return
            left -= token.end != 0
            yield token
