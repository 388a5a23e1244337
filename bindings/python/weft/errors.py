"""A class of exceptions for each status of the library. All are Errors, and most are also what Python would raise itself."""
from typing import Dict, Optional, Type

from ._types import Failure, StatusCode


class Error(Exception):
    """A call has failed, or a run. The text names what failed, what was expected and what was found."""

    status: StatusCode = StatusCode.EINTERNAL
    failure: Optional[Failure] = None   # the failure of the run, if it has failed
    sequence: Optional[int] = None      # the sequence that has ended with it, if poll() of a generator raised it; the others continue

    def __init__(self, text: str, failure: Optional[Failure] = None) -> None:
        super().__init__(text)
        self.failure = failure


class InvalidError(Error, ValueError):
    """An argument, shape or name is not valid."""
    status = StatusCode.EINVAL


class NoMemoryError(Error, MemoryError):
    """Memory cannot be allocated."""
    status = StatusCode.ENOMEM


class StateError(Error, RuntimeError):
    """The call is valid, but not at this time."""
    status = StatusCode.ESTATE


class QueueFullError(Error):
    """16 steps and saves are not finished."""
    status = StatusCode.EAGAIN


class CanceledError(Error):
    """The mesh was canceled, or rank 0 ended the run during a step."""
    status = StatusCode.ECANCELED


class TimedOutError(Error, TimeoutError):
    """A deadline has passed."""
    status = StatusCode.ETIMEDOUT


class PeerError(Error, ConnectionError):
    """Another rank is lost, or was refused."""
    status = StatusCode.EPEER


class ProtocolError(Error, ConnectionError):
    """A peer violated the protocol."""
    status = StatusCode.EPROTO


class NotSupportedError(Error, NotImplementedError):
    """This build or machine does not support it."""
    status = StatusCode.ENOTSUP


class NotFoundError(Error, LookupError):
    """There is no such item."""
    status = StatusCode.ENOENT


class CallbackError(Error):
    """An op of the program, or `choose` of a sequence, failed. __cause__ is its exception, if it ran in this process."""
    status = StatusCode.EUSER


class InternalError(Error):
    """An error in weft; please report it."""
    status = StatusCode.EINTERNAL


class InputOutputError(Error, OSError):
    """Input or output failed."""
    status = StatusCode.EIO


class DataError(Error, ValueError):
    """The content of a file, or of an input, is wrong, or a logit of a generator is not finite."""
    status = StatusCode.EDATA


CLASSES: Dict[int, Type[Error]] = {
    int(c.status): c
    for c in (InvalidError, NoMemoryError, StateError, QueueFullError, CanceledError, TimedOutError, PeerError, ProtocolError, NotSupportedError,
              NotFoundError, CallbackError, InternalError, InputOutputError, DataError)
}


def error_of(status: int, text: str, failure: Optional[Failure] = None) -> Error:
    return CLASSES.get(status, Error)(text or f"status {status}", failure)
