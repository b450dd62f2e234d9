"""Arithmetic on Variables: `a + b`, `2 * a`, `a < b` append operators (Paddle 1.8.5 math_op_patch.py).

`install()` adds the methods to `fluidtool.ir.Variable`, which does not depend on operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluidtool.errors import AssertedError
from fluidtool.ir import Block, Variable, unique_name
from fluidtool.proto.enums import VarType

INTEGERS = frozenset({VarType.UINT8, VarType.INT8, VarType.INT16, VarType.INT32, VarType.INT64})
Scalar = Callable[[float], tuple[float, float]]

# method, operator, other operand first, (scale, bias) for an operand that is a Python number
ARITHMETIC: tuple[tuple[str, str, bool, Scalar | None], ...] = (
    ("__add__", "elementwise_add", False, lambda value: (1.0, value)),
    ("__radd__", "elementwise_add", False, lambda value: (1.0, value)),
    ("__sub__", "elementwise_sub", False, lambda value: (1.0, -value)),
    ("__rsub__", "elementwise_sub", True, lambda value: (-1.0, value)),
    ("__mul__", "elementwise_mul", False, lambda value: (value, 0.0)),
    ("__rmul__", "elementwise_mul", False, lambda value: (value, 0.0)),
    ("__truediv__", "elementwise_div", False, lambda value: (1.0 / value, 0.0)),
    ("__div__", "elementwise_div", False, lambda value: (1.0 / value, 0.0)),
    ("__rtruediv__", "elementwise_div", True, None),
    ("__rdiv__", "elementwise_div", True, None),
    ("__pow__", "elementwise_pow", False, None),
    ("__rpow__", "elementwise_pow", True, None),
    ("__floordiv__", "elementwise_floordiv", False, None),
    ("__mod__", "elementwise_mod", False, None),
)
COMPARISONS = (
    ("__eq__", "equal"),
    ("__ne__", "not_equal"),
    ("__lt__", "less_than"),
    ("__le__", "less_equal"),
    ("__gt__", "greater_than"),
    ("__ge__", "greater_equal"),
)


def _temporary(block: Block, dtype: Any) -> Variable:
    return block.create_var(name=unique_name.generate("tmp"), dtype=dtype)


def _scaled(var: Variable, scale: float, bias: float) -> Variable:
    block = var.block.program.current_block()
    out = _temporary(block, var.dtype)
    block.append_op(type="scale", inputs={"X": [var]}, outputs={"Out": [out]}, attrs={"scale": scale, "bias": bias})
    return out


def cast(var: Variable, dtype: Any) -> Variable:
    """The variable converted to another data type (the method `astype`)."""
    block = var.block.program.current_block()
    out = _temporary(block, dtype)
    block.append_op(
        type="cast",
        inputs={"X": [var]},
        outputs={"Out": [out]},
        attrs={"in_dtype": int(var.dtype or 0), "out_dtype": int(out.dtype or 0)},
    )
    return out


def _filled(like: Variable, value: float, whole: bool) -> Variable:
    """A number as a variable: with one element, or with the shape of `like`."""
    block = like.block.program.current_block()
    out = _temporary(block, like.dtype)
    out.stop_gradient = True
    shape = list(like.shape) if whole else [1]
    unknown = [axis for axis, size in enumerate(shape) if size < 0]
    if unknown:
        shape = [1 if size < 0 and axis != unknown[0] else size for axis, size in enumerate(shape)]
        attrs = {"shape": shape, "value": float(value), "input_dim_idx": unknown[0], "output_dim_idx": unknown[0]}
        block.append_op(
            type="fill_constant_batch_size_like", inputs={"Input": [like]}, outputs={"Out": [out]}, attrs=attrs
        )
    else:
        attrs = {"dtype": int(like.dtype or 0), "shape": shape, "value": float(value), "force_cpu": False}
        block.append_op(type="fill_constant", outputs={"Out": [out]}, attrs=attrs)
    return out


def _binary(op_type: str, reverse: bool, scalar: Scalar | None, result: VarType | None) -> Callable[..., Variable]:
    def method(self: Variable, other: Any) -> Variable:
        divides_integers = op_type == "elementwise_div" and self.dtype in INTEGERS
        if scalar is not None and isinstance(other, (int, float)) and not divides_integers:
            if self.dtype in INTEGERS and other != int(other):
                raise AssertedError(f"float value {other} cannot convert to integer")
            return _scaled(self, *scalar(float(other)))
        left, right = self, other if isinstance(other, Variable) else _filled(self, other, reverse)
        if left.dtype != right.dtype:
            right = cast(right, left.dtype)
        if reverse:
            left, right = right, left
        block = left.block.program.current_block()
        out = _temporary(block, result if result is not None else self.dtype)
        axis = 0 if right.shape and right.shape[0] == -1 else -1
        block.append_op(type=op_type, inputs={"X": [left], "Y": [right]}, outputs={"Out": [out]}, attrs={"axis": axis})
        return out

    return method


def _negated(self: Variable) -> Variable:
    return _scaled(self, -1.0, 0.0)


def install() -> None:
    """Add operators to `Variable`. Variables stay hashable by identity, as scripts use them as dict keys."""
    for name, op_type, reverse, scalar in ARITHMETIC:
        setattr(Variable, name, _binary(op_type, reverse, scalar, None))
    for name, op_type in COMPARISONS:
        setattr(Variable, name, _binary(op_type, False, None, VarType.BOOL))
    setattr(Variable, "__neg__", _negated)  # noqa: B010
    setattr(Variable, "__hash__", object.__hash__)  # noqa: B010
    setattr(Variable, "astype", cast)  # noqa: B010


install()
monkey_patch_variable = install  # Paddle's name
