"""The outputs of a run beside those that were expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fluidtool.errors import FetchError, Location, UsageError
from fluidtool.io.arrays import read_values
from fluidtool.records import dataclass
from fluidtool.tensor import LoDTensor, SelectedRows
from fluidtool.tensor.compare import Comparison, compare
from fluidtool.workflows.names import are_unnamed, did_you_mean, in_order


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far an element may be from the expected one: `atol` plus `rtol` times the expected one. Raises UsageError."""

    rtol: float = 1e-4
    atol: float = 1e-5

    def __post_init__(self) -> None:
        if not (self.rtol >= 0 and self.atol >= 0):
            raise UsageError(
                f"the tolerances rtol and atol must not be negative or NaN, found {self.rtol} and {self.atol}"
            )


def read_expected(path: Path, outputs: Sequence[str], known: Sequence[str]) -> dict[str, LoDTensor]:
    """The expected values by variable name; raises UsageError for none, or for a name that the program does not have.

    Arrays without names (numpy's arr_0, arr_1 …, or one .npy) stand for the outputs in order.
    """
    values = read_values(path)
    if "" in values:
        values = {"arr_0": values[""]}
    if not values:
        raise UsageError(f"{path} must have the values of outputs, found none")
    if are_unnamed(values) and not any(name in known for name in values):
        meant = in_order(outputs)
        if not values.keys() <= meant.keys():
            raise UsageError(
                f"{path} must have one array per output that is fetched ({', '.join(meant)}), found {', '.join(values)}"
            )
        return {meant[name]: value for name, value in values.items()}
    unknown = [name for name in values if name not in known]
    if unknown:
        hint = did_you_mean(unknown[0], known) or f"it computes {', '.join(outputs)}"
        text = f"{path} expects {unknown[0]!r}, which the program does not have"
        raise FetchError(text, hint=hint, location=Location(str(path), variable=unknown[0]))
    return values


def compare_all(
    outputs: Mapping[str, Any], expected: Mapping[str, LoDTensor], tolerance: Tolerance
) -> list[Comparison]:
    """One comparison for each expected value."""
    return [_compare(name, outputs.get(name), value, tolerance) for name, value in expected.items()]


def _compare(name: str, found: Any, expected: LoDTensor, tolerance: Tolerance) -> Comparison:
    if isinstance(found, SelectedRows):
        found = found.tensor
    if not isinstance(found, LoDTensor) or not found.is_initialized():
        kind = "has no value" if found is None or isinstance(found, LoDTensor) else f"is a {type(found).__name__}"
        return Comparison(name, f"{kind}, expected a tensor")
    return compare(name, found, expected, tolerance.rtol, tolerance.atol)
