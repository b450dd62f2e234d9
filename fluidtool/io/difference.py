"""`parameter_differences(left, right)`: which parameters two models do not have in common, and by how much they differ."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan

import numpy as np

from fluidtool.io.parameters import Value
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor, SelectedRows
from fluidtool.tensor.compare import Comparison, compare


@dataclass(frozen=True, slots=True)
class ParameterDifference:
    """A parameter that one side lacks (what it is there is ''), or whose values differ.

    `differing` of `elements` are not the same; `largest` is the largest absolute difference: NaN where one side alone is NaN,
    infinite where one side alone is, None where shapes or kinds differ, so that elements cannot be compared.
    """

    name: str
    left: str
    right: str
    elements: int = 0
    differing: int = 0
    largest: float | None = None


def parameter_differences(left: Mapping[str, Value], right: Mapping[str, Value]) -> list[ParameterDifference]:
    """Every difference, by name; values count as the same when they are equal, and NaN equals NaN."""
    found = []
    for name in sorted({*left, *right}):
        mine, other = left.get(name), right.get(name)
        if mine is None or other is None:
            found.append(ParameterDifference(name, describe(mine), describe(other)))
            continue
        result = compare(name, tensor(mine), tensor(other), 0.0, 0.0, worst=1)
        if result.fault or describe(mine) != describe(other):
            found.append(ParameterDifference(name, describe(mine), describe(other)))
        elif result.differing:
            largest = _largest(tensor(mine), tensor(other), result)
            found.append(
                ParameterDifference(name, describe(mine), describe(other), result.elements, result.differing, largest)
            )
    return found


def _largest(mine: LoDTensor, other: LoDTensor, result: Comparison) -> float:
    a, b = np.asarray(mine), np.asarray(other)
    return nan if bool(np.any((a != a) != (b != b))) else result.worst[0].error


def tensor(value: Value) -> LoDTensor:
    """What is compared of a value: a tensor, or the rows of SelectedRows."""
    return value.tensor if isinstance(value, SelectedRows) else value


def describe(value: Value | None) -> str:
    """'float32 [3, 4]'; '' for a value that is not there."""
    if value is None:
        return ""
    array = np.asarray(tensor(value))
    rows = f" rows {list(value.rows())} of {value.height()}" if isinstance(value, SelectedRows) else ""
    lod = f" LoD {value.recursive_sequence_lengths()}" if isinstance(value, LoDTensor) and value.lod() else ""
    return f"{array.dtype} {shape_text(array.shape)}{rows}{lod}"
