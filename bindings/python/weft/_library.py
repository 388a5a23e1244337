"""Loads libweft: the file that WEFT_LIBRARY names, the copy in the package, or the library of the system."""
import ctypes
import os
import pathlib
from typing import Any

SONAME = "libweft.so.0"


def find() -> str:
    named = os.environ.get("WEFT_LIBRARY")
    if named:
        return named
    bundled = pathlib.Path(__file__).resolve().parent / SONAME
    return str(bundled) if bundled.exists() else SONAME


def load() -> ctypes.CDLL:
    path = find()
    try:
        return ctypes.CDLL(path)
    except OSError as reason:
        raise ImportError(f"weft: the library cannot be loaded from {path!r}: {reason}. WEFT_LIBRARY can name the file.") from reason


lib = load()
INTEGERS = {ctypes.c_int32: (-1 << 31, (1 << 31) - 1), ctypes.c_uint32: (0, (1 << 32) - 1),
            ctypes.c_int64: (-1 << 63, (1 << 63) - 1), ctypes.c_uint64: (0, (1 << 64) - 1)}


def require(major: int, minor: int) -> None:
    """Refuses a library of another version, which may lack functions."""
    version = declare("weft_version", ctypes.c_char_p)().decode()
    if version.split(".")[:2] != [str(major), str(minor)]:
        raise ImportError(f"weft: {lib._name!r} is version {version}, expected {major}.{minor}. WEFT_LIBRARY can name the file.")


def declare(name: str, result: Any, *parameters: Any) -> Any:
    """A function of the library. It refuses integers that are out of range, which ctypes would cut."""
    try:
        function: Any = getattr(lib, name)
    except AttributeError:
        raise ImportError(f"weft: {lib._name!r} has no function {name}, expected the libweft of this package. WEFT_LIBRARY can name the file.") from None
    function.restype = result
    function.argtypes = parameters
    limits = [(i, *INTEGERS[kind]) for i, kind in enumerate(parameters) if kind in INTEGERS]
    if not limits:
        return function

    def checked(*arguments: Any) -> Any:   # not by from_param(), in which ctypes makes KeyboardInterrupt an ArgumentError
        for i, least, greatest in limits:
            if not least <= arguments[i] <= greatest:
                raise OverflowError(f"{arguments[i]} is out of range, expected {least} to {greatest}")
        return function(*arguments)

    checked.argtypes = parameters   # type: ignore[attr-defined]
    return checked
