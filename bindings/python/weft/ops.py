"""Ops of the program, in Python."""
import ctypes
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _raw
from ._core import check, contained, encode
from ._types import DType, OpReads, StatusCode
from .arrays import DTYPES, desc_of, dtype_code, empty, shape_of, view


class Shape(NamedTuple):
    """Dimensions and dtype of a tensor. The first dimension of inputs and outputs counts samples."""
    dims: Tuple[int, ...]
    dtype: str = "float32"


ShapeLike = Union[Shape, Sequence[int]]


class OpCall:
    """The operands of one call of an op, as NumPy arrays. They are valid until the method returns. After that they are empty, as the memory belongs
    to the run. Views of them, such as `call.output[1:]` or tensors of torch, must not be used then: copy what the program keeps.

    What a method writes: forward() `output` and `stash`, backward() each of `grad_inputs` that is not None, backward_params() each of
    `grad_params` that is not None. Gradients hold zeros before. A tensor that the op has not asked for is None.

    `training` says whether the step has a backward pass. `seed` is for random numbers: np.random.default_rng(call.seed). It depends on the
    node, the micro-batch and the updates before the step, so it is the same in forward() and the gradients.
    """

    def __init__(self, call: Any, method: str) -> None:
        self._lent: List[Any] = []
        self.training, self.seed = bool(call.training), int(call.seed)
        self.inputs = [self._array(call.inputs[i]) for i in range(call.n_inputs)]
        self.params = [self._array(call.params[i]) for i in range(call.n_params)]
        self.output = self._array(call.output, method == "forward")
        self.stash = self._array(call.stash, method == "forward")
        self.grad_output = self._array(call.grad_output)
        self.grad_inputs = [self._array(call.grad_inputs[i], True) for i in range(call.n_inputs)] if call.grad_inputs else []
        self.grad_params = [self._array(call.grad_params[i], True) for i in range(call.n_params)] if call.grad_params else []

    def _array(self, operand: Any, writable: bool = False) -> Any:
        if not operand.data:
            return None
        self._lent.append(view(operand.data, operand.desc, writable))
        return self._lent[-1]

    def _end(self) -> None:
        """Makes the arrays empty, which a program may have kept."""
        for array in self._lent:
            empty(array)


class Op:
    """An op of the program: a subclass defines forward(), backward() and, if it has parameters, backward_params().

    Each method must depend on its call only. shape() is called by the thread that adds a node or makes a plan; threads of the run call the other
    methods, also several at the same time, and never the main thread. They cannot use models, runs, meshes,
    generators and checkpoints: StateError. An exception ends the call or the run, with a CallbackError whose __cause__ it is.

    >>> class Square(Op):
    ...     def forward(self, call):
    ...         call.output[...] = call.inputs[0] ** 2
    ...     def backward(self, call):
    ...         call.grad_inputs[0][...] = 2 * call.inputs[0] * call.grad_output
    >>> import weft
    >>> model = weft.Model()
    >>> model.apply(Square(), model.input("x", (3,)))
    <Value float32 [1, 3]>
    """

    name: str = ""   # default: the name of the class
    version = 1      # a process with another version cannot join a run
    backward_reads = OpReads.ALL          # what backward() reads besides grad_output; less saves memory
    backward_params_reads = OpReads.ALL   # the same for backward_params()

    def shape(self, inputs: Sequence[Shape], params: Sequence[Shape]) -> ShapeLike:
        """The shape of the output: that of the first input."""
        return inputs[0]

    def stash(self, inputs: Sequence[Shape], params: Sequence[Shape]) -> Optional[ShapeLike]:
        """The shape of memory that forward() writes and the gradients read: none."""
        return None

    def forward(self, call: OpCall) -> None:
        """Writes the output and the stash."""
        raise NotImplementedError(f"{type(self).__name__}.forward")

    def backward(self, call: OpCall) -> None:
        """Writes the gradients of the inputs."""

    def backward_params(self, call: OpCall) -> None:
        """Writes the gradients of the parameters for this micro-batch."""


class Registered:
    """An op in a model, with the functions that the library calls."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.failure: Optional[BaseException] = None
        self.struct = _raw.weft_op()
        _raw.weft_op_init(ctypes.byref(self.struct), ctypes.sizeof(_raw.weft_op))
        self.name = op.name or type(op).__name__
        self.struct.name = encode(self.name)
        self.struct.version = op.version
        self.struct.backward_reads = op.backward_reads
        self.struct.backward_params_reads = op.backward_params_reads
        self.functions: List[Any] = []
        self._set("shape", self._shape)
        for method in ("forward", "backward", "backward_params"):
            if getattr(type(op), method) is not getattr(Op, method):
                self._set(method, lambda call, method=method: self._operate(OpCall(call, method), method))

    def _set(self, field: str, method: Any) -> None:
        made = getattr(_raw, "weft_op_" + field)(contained(_raw.weft_op_call, method, self._note))
        self.functions.append(made)
        setattr(self.struct, field, ctypes.cast(made, ctypes.c_void_p).value)

    def _note(self, failure: BaseException) -> None:
        if self.failure is None:
            self.failure = failure

    def _operate(self, call: OpCall, method: str) -> None:
        try:
            getattr(self.op, method)(call)
        finally:
            call._end()

    def _shape(self, call: Any) -> None:
        inputs, params = ([_shape_of(operands[i].desc) for i in range(count)] for operands, count in ((call.inputs, call.n_inputs), (call.params, call.n_params)))
        call.output.desc = _desc(self.op.shape(inputs, params))
        stash = self.op.stash(inputs, params)
        if stash is not None:
            call.stash.desc = _desc(stash)

    def add_to(self, model: Any) -> None:
        check(_raw.weft_model_add_op, model, ctypes.byref(self.struct), None)


def _shape_of(desc: Any) -> Shape:
    return Shape(shape_of(desc), str(DTYPES[DType(desc.dtype)]))


def _desc(shape: ShapeLike) -> Any:
    if not isinstance(shape, Shape):
        shape = Shape(tuple(shape))
    return desc_of(shape.dims, dtype_code(shape.dtype))


def cause_of(ops: Mapping[str, Any], status: int) -> Optional[BaseException]:
    """The exception of an op behind a status."""
    if status != StatusCode.EUSER:
        return None
    for op in list(ops.values()):   # another thread may add one
        failure, op.failure = op.failure, None
        if failure is not None:
            return failure   # type: ignore[no-any-return]
    return None
