"""Models: graphs of ops over named parameters."""
import ctypes
import itertools
import operator
import threading
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _raw
from ._core import CallLock, Config, Object, check, choice, encode, expect, new, result
from ._types import CutFlags, DType, Init, InputFlags, ItemKind, NodeFlags, PlanOptions, PresetInfo
from .arrays import DTYPES, desc_of, dtype_code, shape_of
from .errors import CallbackError
from .ops import Op, Registered, cause_of
from .value import Parameter, Value

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .plan import Plan


def _dims(shape: Union[int, Sequence[int]]) -> Tuple[int, ...]:
    """One number is one dimension, as in NumPy."""
    return (operator.index(shape),) if hasattr(shape, "__index__") else tuple(shape)


class Item(NamedTuple):
    """An input, parameter, node or output of a model."""
    name: str
    op: Optional[str]
    value: Optional[Value]
    shape: Tuple[int, ...]
    dtype: str


class Model(Object):
    """A graph of ops. Inputs, and the methods of values, add to it; the first plan ends that. Calls from several threads are made one after
    another.

    >>> model = Model()
    >>> x, y = model.input("x", (64,)), model.input("y", (), "int32")
    >>> out = x.linear(32).relu().linear(10)
    >>> model.output(out)
    <Value float32 [1, 10]>
    >>> loss = out.softmax_cross_entropy(y)
    >>> model.n_parameters
    2410
    """

    _lock = CallLock()

    def __init__(self) -> None:
        self._adopt(new(_raw.weft_model_new))

    def _adopt(self, pointer: Any) -> None:
        self._lock = threading.RLock()
        self._ops: Dict[str, Registered] = {}
        super().__init__(pointer, _raw.weft_model_free, self._ops)
        self._counts: Dict[str, Any] = {}
        self.preset_info: Optional[PresetInfo] = None

    @classmethod
    def preset(cls, text: str, seq_len: int = 0, stages: int = 1) -> "Model":
        """A model by its name and keys: "mlp", "gpt-nano", "gpt2:blocks=2", ... It cannot be changed. preset_info describes its inputs."""
        return cls._of(_raw.weft_model_preset, encode(text), seq_len, stages)

    @classmethod
    def packed(cls, text: str, seq_len: int = 0, stages: int = 1) -> "Model":
        """A preset with tokens for samples of several sequences. A third input "positions" is that of each token in its sequence, from 0; padding has
        the target -1."""
        return cls._of(_raw.weft_model_packed, encode(text), seq_len, stages)

    @classmethod
    def decoder(cls, text: str, sequences: int = 1, context: int = 0, *, bf16_cache: bool = False) -> "Model":
        """The decoder of a preset with tokens, which keeps the keys and values of sequences between forward steps. A sample is a token, of int32:
        inputs "tokens", "positions" in their sequences, and "sequences", or -1 for a sample without one. `context`: positions of each sequence."""
        config = Config("weft_decoder_config", {"sequences": sequences, "context": context, "flags": NodeFlags.BF16_CACHE if bf16_cache else 0})
        return cls._of(_raw.weft_model_decoder, encode(text), config.pointer)

    @classmethod
    def _of(cls, function: Any, *arguments: Any) -> "Model":
        info = _raw.weft_preset_info(ctypes.sizeof(_raw.weft_preset_info))
        out = ctypes.c_void_p()
        check(function, *arguments, ctypes.byref(out), ctypes.byref(info))
        model = cls.__new__(cls)
        model._adopt(out)
        model.preset_info = result(info)
        return model

    def adapt(self, rank: int = 8, alpha: float = 8, targets: Sequence[str] = (), *, dropout: float = 0) -> "Model":
        """A copy in which linear nodes have adapters of low rank: NAME.lora_A.weight and NAME.lora_B.weight. It cannot be changed. `targets`: names
        of linear nodes, or their ends after a dot; or ["all-linear"]. `dropout`: probability with which training drops an element of the input of A.
        A plan trains only adapters with groups=[ParameterGroup("*", frozen=True),
        ParameterGroup("*.lora_?.weight")]."""
        config = Config("weft_adapter_config", {"rank": rank, "alpha": alpha, "dropout": dropout, "targets": targets or None})
        out = ctypes.c_void_p()
        self._call(_raw.weft_model_adapt, config.pointer, ctypes.byref(out))
        model = type(self).__new__(type(self))
        model._adopt(out)
        model._ops.update(self._ops)
        model.preset_info = self.preset_info
        return model

    # Inputs, parameters, outputs

    def input(self, name: str, shape: Union[int, Sequence[int]] = (), dtype: Any = "float32", *, want_grad: bool = False) -> Value:
        """An input, float32 or int32. `shape` is that of one sample, without a dimension for the samples. A number is one dimension."""
        desc = desc_of((1, *_dims(shape)), dtype_code(dtype))
        out = _raw.weft_value()
        self._call(_raw.weft_model_add_input, encode(name), ctypes.byref(desc), InputFlags.WANT_GRAD if want_grad else 0, ctypes.byref(out))
        return Value(self, out.id)

    def parameter(self, name: str, shape: Union[int, Sequence[int]], init: Union[Init, str] = "zeros", value: float = 0.0) -> Parameter:
        """A parameter of float32: "zeros", "constant" of `value`, or "normal" with the standard deviation `value`."""
        dims = _dims(shape)
        desc = desc_of(dims, DType.F32)
        out = _raw.weft_param()
        self._call(_raw.weft_model_add_param, encode(name), ctypes.byref(desc), choice(Init, init), value, ctypes.byref(out))
        return Parameter(self, out.id, name, dims)

    def output(self, value: Value, *, cut: Optional[Tuple[int, str]] = None, drop: bool = False) -> Value:
        """Makes a value an output of forward steps. `cut`: a dimension and the axis of the model over which it is cut."""
        self._call(_raw.weft_model_add_output, self._operand(value))
        if cut:
            self._cut("output", value.id, cut[0], cut[1], drop)
        return value

    # Nodes

    def node(self, op: str, *inputs: Value, params: Sequence[Parameter] = (), name: Optional[str] = None, **fields: Any) -> Value:
        """Any op with its fields, as in weft_model_add_node(3). The methods of values are shorter."""
        config = Config("weft_node_config", {"op": op, "name": name})
        values = (_raw.weft_value * len(inputs))(*map(self._operand, inputs))
        parameters = (_raw.weft_param * len(params))(*(self._operand(p, Parameter) for p in params))
        config.struct.inputs, config.struct.n_inputs = values, len(inputs)
        config.struct.params, config.struct.n_params = parameters, len(params)
        for field, value in fields.items():
            config.set(field, value)
        out = _raw.weft_value()
        self._call(_raw.weft_model_add_node, config.pointer, ctypes.byref(out))
        return Value(self, out.id)

    def concat(self, values: Sequence[Value], axis: int = -1, name: Optional[str] = None) -> Value:
        """The values joined along an axis, which is not the samples."""
        return self.node("concat", *values, name=name, axis=values[0]._axis(axis))

    def attention(self, q: Value, k: Value, v: Value, heads: int, *, causal: bool = False, mask: Optional[Value] = None, dropout: float = 0.0,
                  cap: float = 0.0, name: Optional[str] = None) -> Value:
        """Attention over separate queries, keys and values; Value.attention() is for those that are side by side. If not causal, keys can have
        another number of rows than queries, and a mask [.., rows of keys] can hide those whose element is 0."""
        return self._attention((q, k, v), heads, causal, mask, dropout, cap, name)

    def _attention(self, inputs: Tuple[Value, ...], heads: int, causal: bool, mask: Optional[Value], dropout: float, cap: float,
                   name: Optional[str]) -> Value:
        if mask is not None and causal:
            raise ValueError("attention has a mask of keys, expected none with causal")   # the library would take it for positions
        if mask is not None:
            inputs += (mask,)
        return self.node("attention", *inputs, name=name, heads=heads, flags=NodeFlags.CAUSAL if causal else 0, factor=dropout, cap=cap)

    def op(self, op: Op) -> None:
        """Makes an op of the program available under its name, for node() and for the processes of a run."""
        registered = Registered(op)
        with self._lock:
            known = self._ops.setdefault(registered.name, registered)   # first: the library uses it even if KeyboardInterrupt follows the call
            try:
                registered.add_to(self._ptr)
            except Exception:
                if known is registered:
                    del self._ops[registered.name]
                raise

    def apply(self, op: Op, *inputs: Value, params: Sequence[Parameter] = (), name: Optional[str] = None) -> Value:
        """Adds a node with an op of the program."""
        with self._lock:
            known = self._ops.get(op.name or type(op).__name__)
            if known is None or known.op is not op:
                self.op(op)
        return self.node(op.name or type(op).__name__, *inputs, params=params, name=name)

    def _call(self, function: Any, *arguments: Any) -> int:
        """Calls a function of the model, which may call the ops of the program."""
        with self._lock:
            try:
                return check(function, self._ptr, *arguments)
            except CallbackError as error:
                raise error from cause_of(self._ops, error.status)

    def _name(self, name: Optional[str], op: str) -> str:
        return name or f"{op}_{next(self._counts.setdefault(op, itertools.count()))}"

    def _weights(self, name: Optional[str], op: str, shape: Sequence[int], std: float, bias: Union[bool, Tuple[int]]) -> Tuple[str, List[Parameter]]:
        name = self._name(name, op)
        made = [self.parameter(name + ".weight", shape, "normal", std)]
        if not isinstance(bias, bool):
            made.append(self.parameter(name + ".bias", bias))
        return name, made

    def _norm(self, name: Optional[str], op: str, width: int, bias: bool, value: float = 1.0) -> Tuple[str, List[Parameter]]:
        name = self._name(name, op)
        made = [self.parameter(name + ".weight", (width,), "constant", value)]
        if bias:
            made.append(self.parameter(name + ".bias", (width,)))
        return name, made

    def _operand(self, operand: Any, kind: Any = Value) -> Any:
        """A value or a parameter of the model, for C."""
        expect(operand, kind)
        if operand.model is not self:
            raise ValueError(f"the {kind.__name__.lower()} belongs to another model")
        return (_raw.weft_value if kind is Value else _raw.weft_param)(operand.id)

    # Programs over axes

    def axis(self, name: str, size: int) -> None:
        """Makes the model an SPMD program over an axis, as weft_model_add_axis(3) describes."""
        self._call(_raw.weft_model_add_axis, encode(name), size)

    def _cut(self, what: str, id: int, dim: int, axis: str, drop: bool) -> None:
        operand = _raw.weft_param(id) if what == "param" else _raw.weft_value(id)
        self._call(getattr(_raw, "weft_model_cut_" + what), operand, dim, encode(axis), CutFlags.DROP if drop else 0)

    def _share_gradient(self, parameter: Parameter) -> None:
        self._call(_raw.weft_model_share_gradient, _raw.weft_param(parameter.id))

    # Contents

    def _desc(self, value: Value, samples: int) -> Any:
        desc = _raw.weft_desc()
        self._call(_raw.weft_model_shape, self._operand(value), samples, ctypes.byref(desc))
        return desc

    def _items(self, kind: ItemKind) -> List[Item]:
        out: List[Item] = []
        item = _raw.weft_item(ctypes.sizeof(_raw.weft_item))
        with self._lock:   # also while the names are read, which belong to the model
            pointer = self._ptr
            while _raw.weft_model_describe(pointer, kind, len(out), ctypes.byref(item)) == 0:
                out.append(Item(
                    item.name.decode(),
                    item.op.decode() if item.op else None,
                    Value(self, item.value.id) if item.value.id else None,
                    shape_of(item.desc),
                    str(DTYPES[DType(item.desc.dtype)]),
                ))
        return out

    @property
    def inputs(self) -> List[Item]:
        return self._items(ItemKind.INPUT)

    @property
    def parameters(self) -> List[Item]:
        return self._items(ItemKind.PARAM)

    @property
    def nodes(self) -> List[Item]:
        return self._items(ItemKind.NODE)

    @property
    def outputs(self) -> List[Item]:
        return self._items(ItemKind.OUTPUT)

    @property
    def n_parameters(self) -> int:
        """The number of elements of all parameters."""
        with self._lock:
            return int(_raw.weft_model_parameters(self._ptr))

    def plan(self, **options: "Unpack[PlanOptions]") -> "Plan":
        """Cuts the model into stages, makes a schedule, and lays out the memory; see PlanOptions."""
        from .plan import Plan
        return Plan(self, **options)
