"""Variable and Parameter: what a block declares about a name. Values live in scopes, never here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fluidtool.errors import ArgumentTypeError, ProgramError, WrongKindError
from fluidtool.ir import unique_name
from fluidtool.ir.original import Original
from fluidtool.proto.enums import VarType
from fluidtool.shapes import shape_text

if TYPE_CHECKING:
    from fluidtool.ir.block import Block
    from fluidtool.ir.descriptions import VarDesc
    from fluidtool.ir.operator import Operator

_DATA_TYPES = {
    "bool": VarType.BOOL,
    "int8": VarType.INT8,
    "int16": VarType.INT16,
    "int32": VarType.INT32,
    "int64": VarType.INT64,
    "uint8": VarType.UINT8,
    "float16": VarType.FP16,
    "bfloat16": VarType.BF16,
    "uint16": VarType.BF16,
    "float32": VarType.FP32,
    "float64": VarType.FP64,
    "complex64": VarType.COMPLEX64,
    "complex128": VarType.COMPLEX128,
}
# what numpy also calls them
_OTHER_NAMES = {
    "bool_": "bool",
    "half": "float16",
    "single": "float32",
    "float": "float64",
    "double": "float64",
    "short": "int16",
    "intc": "int32",
    "int": "int64",
    "long": "int64",
}


def data_type(dtype: Any) -> VarType:
    """A data type from a VarType, its number, a name ('float32', 'FP32') or a numpy dtype or scalar type."""
    if isinstance(dtype, int) and not isinstance(dtype, bool):
        return VarType(dtype)
    named = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype)
    name = str(named)
    name = _OTHER_NAMES.get(name, name)
    if name in _DATA_TYPES:
        return _DATA_TYPES[name]
    if name in VarType.__members__:
        return VarType[name]
    raise WrongKindError(f"{dtype!r} is not a data type; expected one of {', '.join(_DATA_TYPES)}")


def data_type_name(dtype: int | None) -> str:
    """'float32' for FP32; '?' for None."""
    if dtype is None:
        return "?"
    for name, value in _DATA_TYPES.items():
        if value == dtype:
            return name
    return VarType(dtype).name.lower()


class Variable:
    """A declared name of a block: kind, shape (-1 = known only when running), data type, LoD level, persistable.

    shape, dtype and lod_level are None when the program does not say. `type_bytes` keeps what the encoded type says
    beyond that (readers, channels, tuples), `extra` fields of newer versions; both survive load and save. `original` is
    how the file that the variable was read from has it, None for one that was made here.
    """

    __slots__ = (
        "__dict__",  # scripts keep what they like with their variables
        "_block",
        "_dtype",
        "_info",
        "_lod_level",
        "_name",
        "_persistable",
        "_shape",
        "_type",
        "capacity",
        "error_clip",
        "extra",
        "is_data",
        "need_check_feed",
        "original",
        "stop_gradient",
        "type_bytes",
    )

    def __init__(
        self,
        block: Block,
        type: VarType | int = VarType.LOD_TENSOR,
        name: str | None = None,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        lod_level: int | None = None,
        capacity: int | None = None,
        persistable: bool | None = None,
        error_clip: Any = None,
        stop_gradient: bool = False,
        is_data: bool = False,
        need_check_feed: bool = False,
        belong_to_optimizer: bool = False,
        **ignored: Any,  # Paddle takes whatever a script gives, and reads none of it
    ) -> None:
        if name is None:
            name = unique_name.generate("_generated_var")
        self._block, self._name = block, name
        self._type: VarType | int = type
        self._shape: tuple[int, ...] | None = (
            None if shape is None else tuple(-1 if s is None else int(s) for s in shape)
        )
        self._dtype: VarType | None = None if dtype is None else data_type(dtype)
        self._lod_level = lod_level
        self._persistable = None if persistable is None else bool(persistable)
        self.capacity = capacity
        self.error_clip = error_clip
        self.stop_gradient = stop_gradient
        self.is_data = is_data
        self.need_check_feed = need_check_feed
        self.type_bytes: bytes | None = None
        self.extra: bytes = b""
        self.original: Original | None = None

    # -- declared fields; writing one counts as a change of the program
    @property
    def block(self) -> Block:
        """The block that declares this variable."""
        return self._block

    @block.setter
    def block(self, block: Block) -> None:
        self._block = block

    @property
    def name(self) -> str:
        """The name, unique in its block."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name
        self._changed()

    @property
    def op(self) -> Operator | None:
        """The last operator that writes this variable, in its own block or otherwise in another; None if there is none."""
        for block in (self._block, *self._block.program.blocks):
            for op in reversed(block.ops):
                if self._name in op.output_arg_names:
                    return op
        return None

    @property
    def grad_name(self) -> str:
        """What the gradient of this variable is called, whether there is one or not."""
        return f"{self._name}@GRAD"

    @property
    def shape(self) -> tuple[int, ...]:
        """The declared shape; () when the program does not say (see `has_shape`)."""
        return self._shape or ()

    @shape.setter
    def shape(self, shape: Sequence[int] | None) -> None:
        self._shape = None if shape is None else tuple(int(size) for size in shape)
        self._changed()

    @property
    def has_shape(self) -> bool:
        """Whether a shape is declared at all."""
        return self._shape is not None

    @property
    def dtype(self) -> VarType | None:
        """The declared data type, or None."""
        return self._dtype

    @dtype.setter
    def dtype(self, dtype: Any) -> None:
        self._dtype = None if dtype is None else data_type(dtype)
        self._changed()

    @property
    def lod_level(self) -> int:
        """The declared number of LoD levels; 0 when the program does not say."""
        return self._lod_level or 0

    @lod_level.setter
    def lod_level(self, lod_level: int | None) -> None:
        self._lod_level = lod_level
        self._changed()

    @property
    def has_lod_level(self) -> bool:
        """Whether a LoD level is declared at all."""
        return self._lod_level is not None

    @property
    def type(self) -> VarType | int:
        """The kind: LOD_TENSOR, SELECTED_ROWS, LOD_TENSOR_ARRAY …"""
        return self._type

    @type.setter
    def type(self, type: VarType | int) -> None:
        self._type = type
        self._changed()

    @property
    def persistable(self) -> bool:
        """Whether the value outlives a run (parameters, accumulators, counters)."""
        return bool(self._persistable)

    @persistable.setter
    def persistable(self, persistable: bool) -> None:
        self._persistable = bool(persistable)
        self._changed()

    @property
    def says_persistable(self) -> bool:
        """Whether the program says if the value outlives a run; if it does not say, the value does not."""
        return self._persistable is not None

    def _changed(self) -> None:
        self._block.program.touch()

    # -- methods of the Fluid API
    def _set_info(self, key: str, value: Any) -> None:
        """Note something about the variable, which is neither saved nor copied."""
        self._info = {**getattr(self, "_info", {}), key: value}

    def _get_info(self, key: str) -> Any:
        """What `_set_info` noted, or None."""
        return getattr(self, "_info", {}).get(key)

    def set_error_clip(self, error_clip: Any) -> None:
        """Set the clip of this variable's gradient (a `BaseErrorClipAttr`), or None; raises ArgumentTypeError."""
        if error_clip is not None and not hasattr(error_clip, "append_clip_op"):
            raise ArgumentTypeError(
                f"Variable's error_clip should be an instance of BaseErrorClipAttr or None, found {error_clip!r}"
            )
        self.error_clip = error_clip

    _set_error_clip = set_error_clip

    @property
    def desc(self) -> VarDesc:
        """What scripts use as `var.desc`."""
        from fluidtool.ir.descriptions import VarDesc

        return VarDesc(self)

    def set_desc(self, input: VarDesc | Variable) -> None:
        """Take over what another variable declares: kind, shape, data type, LoD level, persistable."""
        from fluidtool.ir.descriptions import VarDesc

        if isinstance(input, VarDesc):
            input = input.variable
        if not isinstance(input, Variable):
            raise ArgumentTypeError(f"set_desc takes the description of a variable, found {type(input).__name__}")
        for field in ("_type", "_shape", "_dtype", "_lod_level", "_persistable"):
            setattr(self, field, getattr(input, field))
        self._changed()

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """The variable as protobuf text; with_details adds what the format does not keep."""
        return self._block.program.text_of(self, throw_on_error, with_details)

    def __str__(self) -> str:
        return self.to_string()

    def __repr__(self) -> str:
        kind = VarType(self._type).name if self._type in VarType._value2member_map_ else str(self._type)
        return f"<{type(self).__name__} {self._name}: {kind} {shape_text(self._shape)} {data_type_name(self._dtype)}>"


class Parameter(Variable):
    """A persistable variable of block 0 that training changes."""

    __slots__ = (
        "do_model_average",
        "gradient_clip_attr",
        "is_distributed",
        "optimize_attr",
        "regularizer",
        "trainable",
    )

    def __init__(
        self,
        block: Block,
        shape: Sequence[int],
        dtype: Any,
        type: VarType | int = VarType.LOD_TENSOR,
        *,
        trainable: bool = True,
        optimize_attr: dict[str, Any] | None = None,
        regularizer: Any = None,
        gradient_clip_attr: Any = None,
        do_model_average: bool | None = None,
        is_distributed: bool = False,
        persistable: bool = True,
        **kwargs: Any,
    ) -> None:
        if shape is None or dtype is None:
            raise ProgramError("The shape and dtype of a Parameter must be set, found None")
        if len(shape) == 0:
            raise ProgramError("The dimensions of shape for Parameter must be greater than 0")
        if any(size is None or int(size) < 0 for size in shape):
            raise ProgramError(
                f"Each dimension of shape for Parameter must be greater than 0, but received {shape_text(shape)}"
            )
        super().__init__(block, type=type, shape=shape, dtype=dtype, persistable=persistable, **kwargs)
        self.trainable = trainable
        self.stop_gradient = not trainable
        self.optimize_attr = {"learning_rate": 1.0} if optimize_attr is None else optimize_attr
        self.regularizer = regularizer
        self.gradient_clip_attr = gradient_clip_attr
        self.do_model_average = do_model_average
        self.is_distributed = is_distributed
