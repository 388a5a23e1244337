"""NumPy arrays as tensors of the library and tensors as arrays, both without copies."""
import ctypes
import operator
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy as np

from . import _raw
from ._core import check, exact, new
from ._types import DType

DTYPES: Dict[DType, "np.dtype[Any]"] = {DType.F32: np.dtype(np.float32), DType.I32: np.dtype(np.int32), DType.F64: np.dtype(np.float64)}
CODES = {dtype: code for code, dtype in DTYPES.items()}


def dtype_code(dtype: Any) -> DType:
    """float32, int32 or float64, as any name or type that NumPy knows."""
    code = CODES.get(np.dtype(dtype))
    if code is None:
        raise TypeError(f"dtype {np.dtype(dtype)} is not one of {', '.join(map(str, CODES))}")
    return code


def desc_of(shape: Sequence[int], code: DType) -> Any:
    if len(shape) > _raw.WEFT_MAX_DIMS:
        raise ValueError(f"the array has {len(shape)} dimensions, expected at most {_raw.WEFT_MAX_DIMS}")
    desc = _raw.weft_desc(code, len(shape))
    desc.dims[:len(shape)] = exact(ctypes.c_int64, map(operator.index, shape))
    return desc


def samples_of(arrays: Sequence[Any]) -> int:
    """The samples of the first array that is not missing."""
    return next((len(array) for array in arrays if array is not None), 0)


def shape_of(desc: Any) -> Tuple[int, ...]:
    return tuple(desc.dims[:desc.n_dims])


def _exported(value: Any) -> "np.ndarray[Any, Any]":
    """An array around the memory of `value` if it has any: a buffer, DLPack (torch, JAX, ...) or NumPy's interface."""
    if isinstance(value, np.ndarray):
        return value
    if not hasattr(value, "__dlpack__") or not hasattr(np, "from_dlpack"):
        return np.asarray(value)
    if getattr(value, "requires_grad", False):  # of torch, which exports only what is detached
        value = value.detach()
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError) as error:
        dtype = getattr(value, "dtype", "unknown dtype")
        raise TypeError(f"cannot read a {type(value).__name__} of {dtype} as an array: {error}") from error


def as_array(value: Any, code: Optional[DType] = None) -> "np.ndarray[Any, Any]":
    """An array of the dtype in row-major order. It is a copy only if the value has another dtype, other strides or no memory."""
    array = _exported(value)
    dtype = array.dtype if code is None else DTYPES[code]
    if array.dtype != dtype:
        if not np.can_cast(array.dtype, dtype, "same_kind"):
            raise TypeError(f"expected an array of {dtype}, got {array.dtype}")
        if dtype.kind == "i" and array.size:
            limits = np.iinfo(dtype)
            if array.min() < limits.min or array.max() > limits.max:
                raise OverflowError(f"an element is out of the range of {dtype}")
    array = np.asarray(array, dtype=dtype, order="C")
    return array if array.flags.aligned else array.copy()


class Wrapped:
    """A tensor of the library around an array, for the time of a with statement. The array must outlive every use of the memory."""

    def __init__(self, array: "np.ndarray[Any, Any]") -> None:
        if not array.flags.c_contiguous or not array.flags.aligned:
            raise ValueError("the array is not contiguous in row-major order")
        self.array = array
        self.pointer: Optional[int] = None

    def __enter__(self) -> int:
        desc = desc_of(self.array.shape, dtype_code(self.array.dtype))
        self.pointer = new(_raw.weft_tensor_wrap, ctypes.byref(desc), self.array.ctypes.data, None, None)
        return self.pointer

    def __exit__(self, *_: Any) -> None:
        _raw.weft_tensor_unref(self.pointer)


def view(address: int, desc: Any, writable: bool) -> "np.ndarray[Any, Any]":
    """The memory at `address` as an array, which does not keep the memory."""
    dtype, shape = DTYPES[DType(desc.dtype)], shape_of(desc)
    size = dtype.itemsize
    for n in shape:
        size *= n
    if size == 0:
        return np.empty(shape, dtype)
    array: "np.ndarray[Any, Any]" = np.ndarray(shape, dtype, buffer=memoryview((ctypes.c_char * size).from_address(address)))
    array.flags.writeable = writable
    return array


def empty(array: Any) -> None:
    """Makes a view of lent memory empty, which a program may have kept."""
    array.__setstate__((1, (0,), array.dtype, False, b""))


def tensor_view(tensor: int) -> "np.ndarray[Any, Any]":
    """The content of a tensor of the library, valid as long as the library says."""
    return view(_raw.weft_tensor_data(tensor), _raw.weft_tensor_desc(tensor), writable=False)
