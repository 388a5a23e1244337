"""Loads libweft: the file that WEFT_LIBRARY names, the copy in the package, or the library of the system."""
import ctypes
import os
import pathlib

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
