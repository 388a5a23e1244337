"""Generators: sequences of tokens that the run of a decoder continues."""
import ctypes
import threading
import time
import typing
import weakref
from typing import Any, Callable, Iterator, List, Optional, Sequence

import numpy as np

from . import _raw
from ._core import CALLBACKS, SECOND, CallLock, Config, Object, check, contained, exact, expect, new, result
from ._types import DType, Token
from .arrays import desc_of, empty, view
from .errors import Error
from .events import SLICE
from .run import Run

FOREVER = float("inf")
NONE = -1   # no token


class Choice:
    """The next token of a sequence, before it is chosen: `sequence`, as add() returned it; `index`, among the tokens that are added, from `first`;
    `tokens` of the sequence, without the next one; `logits`, one for each token of the vocabulary, as the model computes them.

    The function may change the logits, also by an assignment to `choice.logits`; -inf excludes a token. The arrays are valid until the function
    returns. After that they are empty, as the memory belongs to the library. Views of them must not be used then: copy what the program keeps."""

    def __init__(self, choice: Any) -> None:
        self.sequence, self.index = int(choice.sequence), int(choice.index)
        self.tokens = view(ctypes.addressof(choice.tokens.contents), desc_of((choice.n_tokens,), DType.I32), writable=False)
        self._logits = view(ctypes.addressof(choice.logits.contents), desc_of((choice.n_logits,), DType.F32), writable=True)
        self._lent = (self.tokens, self._logits)

    @property
    def logits(self) -> "np.ndarray[Any, Any]":
        return self._logits

    @logits.setter
    def logits(self, values: Any) -> None:
        self._logits[...] = values

    def _end(self) -> None:
        for array in self._lent:
            empty(array)


class _Chooser:
    """The function of a sequence that reads and changes logits."""

    def __init__(self, choose: Callable[[Choice], None]) -> None:
        self.sequence = ctypes.c_uint64()   # weft_generator_add sets it
        self.failures: List[BaseException] = []

        def call(struct: Any) -> None:
            choice = Choice(struct)
            try:
                choose(choice)
            finally:
                choice._end()

        calls = _shielded(contained(_raw.weft_choice, call, self.failures.append), self.failures)
        next(calls)   # to its first yield
        self.function = _raw.weft_sequence_config_choose(calls.send)


def _shielded(function: Callable[[int], int], failures: List[BaseException]) -> "typing.Generator[int, int, None]":
    """Calls `function` with what send() gets. The main thread may raise KeyboardInterrupt when a function begins, before its first `try`, and ctypes
    would drop it. A generator resumes inside a `try`."""
    answer = 0
    while True:
        try:
            while True:
                answer = function((yield answer))
        except GeneratorExit:
            return
        except BaseException as failure:
            CALLBACKS.discard(threading.get_ident())   # if it was raised at the end of `function`
            failures.append(failure)
            answer = 1


class Generator(Object):
    """Continues sequences with a run whose model is of Model.decoder. Until it is closed, no other call uses the run. Sequences may join and leave
    between tokens."""

    _lock = CallLock()   # of the run

    def __init__(self, run: Run) -> None:
        self._lock = expect(run, Run, "run")._lock
        self._choosers: List[_Chooser] = []   # of sequences that have not ended
        with self._lock:
            super().__init__(new(_raw.weft_generator_new, run._ptr), _raw.weft_generator_free, run, lock=self._lock)
            self._token = _raw.weft_token(ctypes.sizeof(_raw.weft_token), token=NONE)
            run._generator = weakref.ref(self)   # a run that is closed closes it first

    def close(self) -> None:
        if not self.closed:
            with self._lock:
                super().close()
                self._choosers.clear()

    def add(self, tokens: Sequence[int], choose: Optional[Callable[[Choice], None]] = None, **options: Any) -> int:
        """Adds a sequence that begins with these tokens, and returns its identifier. Options: temperature, top_k, top_p, min_p, repetition_penalty,
        seed, number, first, limit and stops.

        `choose` reads, and may change, the logits of each next token, before the penalty and the temperature. poll() calls it, in its thread. It
        cannot use models, runs, meshes, generators and checkpoints: StateError. An exception ends the sequence; see poll().

        >>> import numpy as np, weft
        >>> model = weft.Model.decoder("gpt-nano:blocks=1,width=32,heads=2,context=20")
        >>> def only_even_tokens(choice):
        ...     choice.logits[1::2] = -np.inf
        >>> with model.plan(micro_batches=1).run() as run, weft.Generator(run) as generator:
        ...     sequence = generator.add([1, 2, 3], only_even_tokens, limit=4)
        ...     [token.token % 2 for token in generator.tokens(1)]
        [0, 0, 0, 0]
        """
        config = Config("weft_sequence_config", options)
        array = exact(ctypes.c_int32, tokens)
        out = ctypes.c_uint64()
        with self._lock:
            try:
                if choose is not None:
                    chooser = _Chooser(choose)
                    out = chooser.sequence
                    config.struct.choose = ctypes.c_void_p.from_buffer(chooser.function).value   # cast() would make a cycle
                    self._choosers.append(chooser)   # before KeyboardInterrupt can follow the call of the library
                check(_raw.weft_generator_add, self._ptr, array, len(tokens), config.pointer, ctypes.byref(out))
            finally:
                self._drop(0)
        return out.value

    def _drop(self, sequence: int) -> Optional[BaseException]:
        """Drops the function of a sequence that has ended, or was not added: 0. Returns the exception of the function."""
        failure = None
        for chooser in [chooser for chooser in self._choosers if chooser.sequence.value == sequence]:
            self._choosers.remove(chooser)
            failure = chooser.failures.pop() if chooser.failures else None
        return failure

    def remove(self, sequence: int) -> None:
        """Ends a sequence. Its tokens that have not been polled are dropped."""
        with self._lock:
            check(_raw.weft_generator_remove, self._ptr, sequence)
            self._drop(sequence)

    def poll(self, timeout: float = 0) -> Optional[Token]:
        """The next token, or None if the time, in seconds, has passed or there is no sequence.

        DataError: a logit of a sequence is NaN, or the largest one is not finite. CallbackError: `choose` of a sequence has raised the exception
        that is its __cause__; KeyboardInterrupt is raised itself, and the CallbackError is its __cause__. The attribute `sequence` of these errors
        is the sequence, which has ended; the others continue."""
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
                        failure.sequence = self._token.sequence or None
                        cause = self._drop(self._token.sequence)
                        if isinstance(cause, KeyboardInterrupt):
                            raise cause from failure
                        raise failure from cause
                if self._token.token != NONE:
                    token: Token = result(self._token)
                    if token.end:
                        self._drop(token.sequence)
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
