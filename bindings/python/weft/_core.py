"""What all classes use: calls that raise exceptions, objects of the library that are freed once, configurations and results."""
import collections
import collections.abc
import contextlib
import ctypes
import operator
import os
import sys
import threading
import weakref
from typing import Any, Callable, Deque, Dict, Iterable, List, Mapping, Optional, Set, Union

from . import _raw
from ._types import CONVERSIONS, OPTIONS
from .errors import InvalidError, StateError, error_of

SECOND = 1e9   # in nanoseconds, the unit of the C API


def check(function: Callable[..., int], *arguments: Any) -> int:
    """Calls a function whose last parameter is a weft_error, and raises its failure."""
    error = _raw.weft_error(ctypes.sizeof(_raw.weft_error))
    try:
        status = function(*arguments, ctypes.byref(error))
    finally:
        del arguments   # the traceback of an exception would keep the handles of objects
    if status < 0:
        raise error_of(status, error.text.decode(errors="replace"))
    return status


def new(function: Callable[..., int], *arguments: Any) -> int:
    """Calls a function that creates an object, and returns the object."""
    free_left()
    out = ctypes.c_void_p()
    check(function, *arguments, ctypes.byref(out))
    assert out.value is not None
    return out.value


def expect(value: Any, kind: Any, argument: str = "", optional: bool = False) -> Any:
    """The value, which must be an object of the class: the library would take any pointer. Config.set() adds the name of an option."""
    if not isinstance(value, kind) and not (optional and value is None):
        name = f"argument {argument!r}: " if argument else ""
        raise TypeError(f"{name}expected {kind.__name__}, got {type(value).__name__}")
    return value


def encode(text: Any) -> Optional[bytes]:
    """Text, a path or None for C."""
    out = None if text is None else os.fsencode(text)
    if out and b"\0" in out:
        raise InvalidError(f"{text!r} contains a NUL, where C ends a text")
    return out


def exact(element: Any, values: Iterable[Any]) -> Any:
    """The values as an array for C. ctypes would cut an integer that is out of range."""
    items = list(values)
    array = (element * len(items))(*items)
    for item, stored in zip(items, array):
        if isinstance(stored, int) and stored != item:
            raise OverflowError(f"{item} is out of the range of {element.__name__.removeprefix('c_')}")
    return array


def text_of(function: Callable[..., int], *arguments: Any) -> str:
    """The text of a function that writes to a buffer and returns the size that it needs."""
    size = function(*arguments, None, 0)
    buffer = ctypes.create_string_buffer(size)
    function(*arguments, buffer, size)
    return buffer.value.decode(errors="replace")


CALLBACKS: Set[int] = set()   # threads in which the library calls the program
LEFT: Deque[Callable[[], Any]] = collections.deque()   # what callbacks have left to the next call that creates or closes an object, or to the exit


def free_left() -> None:
    """Frees what callbacks have left. A callback may not: the library would wait for the thread of the callback."""
    while LEFT and threading.get_ident() not in CALLBACKS:
        with contextlib.suppress(IndexError):   # another thread was faster
            LEFT.popleft()()


def contained(struct: Any, call: Callable[[Any], None], note: Callable[[BaseException], None]) -> Callable[[int], int]:
    """A function that the library calls with the address of a struct. `note` gets the exception of `call`, whose text the library gets."""
    def function(address: int) -> int:
        thread = threading.get_ident()
        outer = thread in CALLBACKS   # of a callback that has made the call of the library
        try:
            CALLBACKS.add(thread)   # before anything that could start the garbage collector
            call(struct.from_address(address))
            return 0
        except BaseException as failure:   # it must not pass the library
            with contextlib.suppress(BaseException):   # of its __str__
                note(failure)
                error, name = struct.from_address(address).err.contents, type(failure).__name__
                error.text = _text(name)
                error.text = _text(f"{name}: {failure}")
            return 1
        finally:
            if not outer:
                CALLBACKS.discard(thread)

    return function


def _text(text: str) -> bytes:
    """A NUL would end the text, and half a character would be shown as bytes."""
    return text.replace("\0", "\\x00").encode(errors="replace")[:500].decode(errors="ignore").encode()


class CallLock:
    """An attribute: a lock that calls of an object hold. In a callback it is a StateError, as the call that holds the lock may wait for the end of
    the callback. The value is the lock itself, as KeyboardInterrupt could come between its acquisition and the return from a method in Python."""

    def __set_name__(self, _: Any, name: str) -> None:
        self.name = name

    def __set__(self, instance: Any, lock: Any) -> None:
        instance.__dict__[self.name] = lock

    def __get__(self, instance: Any, _: Any) -> Any:
        if threading.get_ident() in CALLBACKS:
            raise StateError(f"a {type(instance).__name__} cannot be used in an op, a log function or `choose`")
        return instance.__dict__[self.name]


class Handle:
    """A pointer to an object of the library, as an argument of calls. The last one that drops it, which may be a call, frees the object."""

    def __init__(self, pointer: ctypes.c_void_p, function: Callable[[int], None], lock: Any, keeps: Any) -> None:
        self._as_parameter_ = pointer
        self.function, self.lock, self.keeps = function, lock, keeps
        self.process = os.getpid()

    def free(self) -> None:
        if self._as_parameter_.value is None or os.getpid() != self.process:   # no object of the library survives fork()
            return
        if threading.get_ident() in CALLBACKS or isinstance(threading.current_thread(), threading._DummyThread):   # of the garbage collector
            LEFT.append(weakref.finalize(LEFT, self.free))
            return
        with self.lock or contextlib.nullcontext():   # a call in another thread may use the object
            pointer, self._as_parameter_.value = self._as_parameter_.value, None
            if pointer is not None:
                self.function(pointer)

    __del__ = free


def _drop(held: List[Handle]) -> None:
    handle = held.pop()
    if handle.lock:   # no call uses it then, and a traceback may keep it
        handle.free()


class Object:
    """An object of the library. It is freed by close(), by the end of a with statement, when it is no longer used, or at exit. If another thread is
    in a call that uses it, it is freed after the call."""

    def __init__(self, pointer: Union[int, ctypes.c_void_p], free: Callable[[int], None], *keeps: Any, lock: Any = None) -> None:
        """`keeps` are the Python objects that the library may use until `pointer` is freed; `lock` is held by all calls that use it, if there is one.
        A c_void_p can get its value later, by the call that creates the object, so that KeyboardInterrupt cannot come between the two."""
        self._held = [Handle(pointer if isinstance(pointer, ctypes.c_void_p) else ctypes.c_void_p(pointer), free, lock, keeps)]
        self._finalizer = weakref.finalize(self, _drop, self._held)

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} is memory of this process, which cannot be copied or pickled")

    @property
    def _ptr(self) -> Handle:
        """For the argument of a call. A caller that reads borrowed memory after the call keeps the handle until then."""
        handle = next(iter(self._held), None)
        if handle is None or self.closed:
            raise ValueError(f"the {type(self).__name__} is closed")
        return handle

    def _in_config(self) -> Any:
        """What a field of a configuration contains."""
        return self._ptr

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def close(self) -> None:
        """Frees the object. A second call has no effect."""
        free_left()
        self._finalizer()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def choice(enumeration: Any, value: Any) -> int:
    """A member of an enumeration, from itself, its number or its name in any case."""
    if not isinstance(value, str):
        return int(enumeration(value))
    try:
        return int(enumeration[value.upper()])
    except KeyError:
        names = ", ".join(repr(member.name.lower()) for member in enumeration)
        raise ValueError(f"{value!r} is not one of {names}") from None


class Config:
    """A configuration struct with options. It keeps what its pointers refer to."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        kind = getattr(_raw, name)
        self.name = name
        self.struct = kind()
        self.keeps: List[Any] = []
        self.types = dict(kind._fields_)
        getattr(_raw, name + "_init")(ctypes.byref(self.struct), ctypes.sizeof(kind))
        for option, value in options.items():
            if value is not None:
                self.set(option, value)

    @property
    def pointer(self) -> Any:
        return ctypes.byref(self.struct)

    def set(self, option: str, value: Any) -> None:
        field = option[:-len("_seconds")] + "_ns" if option.endswith("_seconds") else option
        options = OPTIONS[self.name]
        if field not in options:
            names = ", ".join(map(_option, options))
            raise TypeError(f"{self.name} has no option {option!r}; it has {names}")
        try:
            converted = self.convert(option, self.types[field], options[field], value)
            setattr(self.struct, field, converted)
        except TypeError as reason:
            raise TypeError(f"option {option!r}: {reason}") from None
        if isinstance(converted, int) and getattr(self.struct, field) != converted:
            raise OverflowError(f"option {option!r} is {value}, which is out of range")

    def convert(self, option: str, kind: Any, of: Any, value: Any) -> Any:
        """`kind` is the type of the field, `of` the enumeration or the name of the class of the values."""
        if option.endswith("_seconds"):
            return round(value * SECOND)
        if isinstance(of, type):
            return choice(of, value)
        if kind is ctypes.c_char_p:
            return encode(value)
        if "n_" + option in self.types and hasattr(kind, "contents"):
            return self.array(option, kind, of, value)
        if of:
            return self.content(of, value)
        if hasattr(kind, "_length_"):
            if len(value) > kind._length_:
                raise InvalidError(f"option {option!r} has {len(value)} elements, expected at most {kind._length_}")
            setattr(self.struct, "n_" + option, len(value))
            return kind(*exact(kind._type_, value))
        return value if kind is ctypes.c_double else operator.index(value)

    def content(self, of: str, value: Any) -> Any:
        made = expect(value, getattr(sys.modules[__package__], of))._in_config()
        self.keeps += [value, made]
        return made._as_parameter_.value if isinstance(made, Handle) else made

    def array(self, option: str, kind: Any, of: Any, value: Any) -> Any:
        element = kind._type_
        if of:
            items = [self.content(of, x) for x in value]
        elif hasattr(element, "_fields_"):   # axes: name and size; options: key and value
            second = element._fields_[1][1]
            pairs = expect(value, collections.abc.Mapping).items()
            items = [element(encode(key), encode(x) if second is ctypes.c_char_p else exact(second, [x])[0]) for key, x in pairs]
        else:
            items = [encode(x) if element is ctypes.c_char_p else x for x in value]
        array = exact(element, items)
        self.keeps += [array, value]
        setattr(self.struct, "n_" + option, len(items))
        return ctypes.cast(array, kind)


def _option(field: str) -> str:
    return field[:-len("_ns")] + "_seconds" if field.endswith("_ns") else field


def options_of(struct: Any) -> Dict[str, Any]:
    """The numbers and texts of a configuration struct, by the names of its options."""
    out = {}
    for field, of in OPTIONS[type(struct).__name__].items():
        value = getattr(struct, field)
        if not isinstance(value, (int, float, bytes)):
            continue
        if of:
            value = of(value)
        elif isinstance(value, bytes):
            value = value.decode()
        out[_option(field)] = value / SECOND if field.endswith("_ns") else value
    return out


def _array(struct: Any, field: str, count: str) -> Any:
    pointer = getattr(struct, field)
    return tuple(pointer[i] for i in range(getattr(struct, count))) if pointer else ()


def result(struct: Any) -> Any:
    """The NamedTuple of a struct that the library has filled."""
    out, fields = CONVERSIONS[type(struct).__name__]
    return out(*(_convert(struct, field, how) for field, how in fields))


def _convert(struct: Any, field: str, how: Any) -> Any:
    if how in ("array", "pairs", "tensors"):
        items = _array(struct, field, "n_" + field)
        return {pair.key.decode(): pair.value.decode() for pair in items} if how == "pairs" else items
    if how == "ranks":
        return _array(struct, field, "n_ranks")
    value = getattr(struct, field)
    if how is None:
        return value
    if how == "seconds":
        return -1.0 if value == -1 else value / SECOND   # -1: unknown
    if how == "text":
        return None if value is None else value.decode(errors="replace")
    if how == "path":
        return None if value is None else os.fsdecode(value)
    if how == "struct":
        return result(value.contents) if value else None
    try:
        return how(value)
    except ValueError:   # of a later version of the library, or none
        return value


def described(name: str, values: Iterable[Any]) -> str:
    """The text of a NamedTuple that result() has made of the struct `name`: of numbers, texts and arrays."""
    struct = getattr(_raw, name)(ctypes.sizeof(getattr(_raw, name)))
    for (field, how), value in zip(CONVERSIONS[name][1], values):
        if how == "array":
            setattr(struct, "n_" + field, len(value))
            pointer = dict(struct._fields_)[field]
            value = ctypes.cast(exact(pointer._type_, value), pointer)
        elif how == "seconds":
            value = -1 if value == -1 else round(value * SECOND)
        elif how == "text":
            value = encode(value)
        setattr(struct, field, value)
    return text_of(getattr(_raw, name + "_text"), ctypes.byref(struct))


def filled(kind: Any, function: Callable[..., int], *arguments: Any) -> Any:
    """The result of a function that fills a struct, or None if there is no such item."""
    struct = kind(ctypes.sizeof(kind))
    status = function(*arguments, ctypes.byref(struct))
    if status == -10:   # WEFT_ENOENT
        return None
    if status < 0:
        raise error_of(status, _raw.weft_status_text(status).decode())
    return result(struct)


def listed(kind: Any, function: Callable[..., int], pointer: Any) -> List[Any]:
    """All items of a function that describes item 0, 1, ..."""
    out: List[Any] = []
    while True:
        item = filled(kind, function, pointer, len(out))
        if item is None:
            return out
        out.append(item)
