"""`x[0]`, `x[:, 1:3]`, `x[::-1]`: indexing of Variables appends slices (Paddle 1.8.5 framework.py).

`install()` adds the method to `fluidtool.ir.Variable`, which does not depend on operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidtool.errors import ArgumentTypeError, AssertedError
from fluidtool.ir import Block, Variable, unique_name
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

TO_THE_END = 10000000
Bound = int | Variable


@dataclass(frozen=True, slots=True)
class _Cut:
    """The range that one dimension keeps: from start to before end, in steps of step."""

    axis: int
    start: Bound
    end: Bound
    step: Bound = 1
    is_index: bool = False


def sliced(var: Variable, item: Any) -> Variable:
    """The part of `var` selected by numbers, slices, or one of these per dimension; numbers drop their dimension.

    A number, and the bounds of a slice, may be int32 Variables of one element. Raises UsageError for other items.
    """
    items = item if isinstance(item, tuple) else (item,)
    cuts, reversed_axes = [], []
    for axis, part in enumerate(items):
        if not isinstance(part, slice):
            cuts.append(_index(var.block, axis, part))
        elif part.start is not None or part.stop is not None:
            end = TO_THE_END if part.stop is None else part.stop
            cuts.append(_Cut(axis, part.start or 0, end, 1 if part.step is None else part.step))
        elif part.step is not None:
            if part.step != -1:
                raise AssertedError(
                    f"a slice without bounds must have step -1, found {part.step}; write [0::{part.step}]"
                )
            reversed_axes.append(axis)
    out = _append_slice(var, cuts) if cuts else var
    return _append_reverse(var, out, reversed_axes) if reversed_axes else out


def _index(block: Block, axis: int, position: Any) -> _Cut:
    if isinstance(position, int):
        return _Cut(axis, position, TO_THE_END if position == -1 else position + 1, is_index=True)
    if not isinstance(position, Variable):
        raise ArgumentTypeError(
            f"a Variable is indexed by numbers, slices and Variables, found {type(position).__name__}"
        )
    one, end = _number(block, 1), block.create_var(dtype="int32")
    block.append_op(type="elementwise_add", inputs={"X": position, "Y": one}, outputs={"Out": end}, attrs={"axis": -1})
    return _Cut(axis, position, end, is_index=True)


def _number(block: Block, value: int) -> Variable:
    out = block.create_var(dtype="int32", stop_gradient=True)
    attrs = {"shape": [1], "dtype": int(VarType.INT32), "value": float(value), "force_cpu": True}
    block.append_op(type="fill_constant", outputs={"Out": [out]}, attrs=attrs)
    return out


def _append_slice(var: Variable, cuts: Sequence[_Cut]) -> Variable:
    strided = any(isinstance(cut.step, Variable) or cut.step != 1 for cut in cuts)
    bounds: dict[str, list[Bound]] = {"Starts": [cut.start for cut in cuts], "Ends": [cut.end for cut in cuts]}
    if strided:
        bounds["Strides"] = [cut.step for cut in cuts]
    inputs: dict[str, list[Variable]] = {"Input": [var]}
    attrs: dict[str, Any] = {
        "axes": [cut.axis for cut in cuts],
        "decrease_axis": [cut.axis for cut in cuts if cut.is_index],
    }
    flags = [1] * len(cuts)
    for slot, values in bounds.items():
        attrs[slot.lower()] = [-1 if isinstance(value, Variable) else value for value in values]
        if any(isinstance(value, Variable) for value in values):
            inputs[f"{slot}TensorList"] = [_tensor(var.block, value) for value in values]
            flags = [-1 if isinstance(value, Variable) else flag for value, flag in zip(values, flags, strict=True)]
    op_type = "strided_slice" if strided else "slice"
    out = _result(var, op_type)
    var.block.append_op(type=op_type, inputs=inputs, outputs={"Out": [out]}, attrs=attrs | {"infer_flags": flags})
    return out


def _tensor(block: Block, value: Bound) -> Variable:
    if not isinstance(value, Variable):
        return _number(block, value)
    value.stop_gradient = True
    return value


def _append_reverse(var: Variable, source: Variable, axes: list[int]) -> Variable:
    out = _result(var, "slice_reverse")
    var.block.append_op(type="reverse", inputs={"X": source}, outputs={"Out": [out]}, attrs={"axis": axes})
    return out


def _result(var: Variable, suffix: str) -> Variable:
    return var.block.create_var(name=unique_name.generate(f"{var.name}_{suffix}"), dtype=var.dtype)


def install() -> None:
    """Add indexing to `Variable`; it is still not iterable, as its sizes may be unknown."""
    setattr(Variable, "__getitem__", sliced)  # noqa: B010
    setattr(Variable, "__iter__", None)  # noqa: B010


install()
