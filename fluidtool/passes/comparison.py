"""`compare_runs(before, after, feed, names)`: two programs that should compute the same, run and compared."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from math import log2
from time import perf_counter
from typing import Any

import numpy as np

from fluidtool.ir import Program
from fluidtool.passes.inference.quantisers import is_quantiser
from fluidtool.passes.pipeline import copy_scope, trains
from fluidtool.records import dataclass
from fluidtool.runtime import Executor, Policy, Scope
from fluidtool.tensor import LoDTensor, LoDTensorArray, SelectedRows
from fluidtool.tensor.compare import Comparison, compare

OBSERVER = "moving_average_abs_max_scale"
SAME_ROWS = frozenset({"assign", "cast", "scale"})
SUPPRESSING = frozenset(
    {
        "generate_proposals",
        "generate_proposals_v2",
        "locality_aware_nms",
        "matrix_nms",
        "multiclass_nms",
        "multiclass_nms2",
        "multiclass_nms3",
        "retinanet_detection_output",
    }
)
RTOL = 1e-5
SEED = 1
PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Runnable:
    """A program with the scope that holds its parameters; running it leaves that scope as it is."""

    program: Program
    scope: Scope

    def run(
        self, executor: Executor, feed: Mapping[str, Any], names: Sequence[str], scope: Scope | None = None
    ) -> tuple[dict[str, Any], Scope]:
        """The values of `names`, and the scope after the run: a copy, or the one that is given."""
        scope = copy_scope(self.scope, self.program) if scope is None else scope
        complete = self.program.known(
            trains, self.program
        )  # parameters are changed whether somebody fetches them or not
        values = executor.run(self.program, feed, names, scope, needed_only=not complete)
        return dict(zip(names, values, strict=True)), scope


def compare_runs(
    before: Runnable,
    after: Runnable,
    feed: Mapping[str, Any],
    names: Sequence[str],
    *,
    exact: bool,
    rtol: float = RTOL,
    policy: Policy | None = None,
) -> tuple[Comparison, ...]:
    """Run both programs on the same feed and compare `names`, and the persistable variables that the run changes.

    exact: every bit must be the same. Else an element may differ by `rtol` times itself plus `rtol` times the largest
    element of its output, which is what rounding in another order makes of it, plus a few last bits of 1 (`floor`). What
    suppression gives is compared row by row in any order: rounding exchanges boxes that score alike. Scales that only
    quantisers wrote are no state once these are gone. Random operators draw the same numbers in both runs if they come in
    the same order. policy: what operators may do, as of Executor.
    """
    expected, left = before.run(Executor(seed=SEED, policy=policy, engine="numpy"), feed, names)
    found, right = after.run(Executor(seed=SEED, policy=policy, engine="numpy"), feed, names)
    tolerance = 0.0 if exact else rtol
    items: list[Comparison] = []
    for name in names:
        compared = _compare(name, found[name], expected[name], tolerance)
        if not exact and not all(item.agrees for item in compared) and comes_from_suppression(before.program, name):
            compared = in_any_order(name, found[name], expected[name], tolerance) or compared
        items += compared
    gone = scales_of_removed_quantisers(before.program, after.program)
    for name in _written(before.program):
        if name in gone:
            continue
        changed = not _same(_value(left, name), _value(before.scope, name))
        if changed or after.program.global_block().has_var(name):
            state = _compare(name, _value(right, name), _value(left, name), tolerance)
            items += state if changed or not all(item.agrees for item in state) else []
    return tuple(items)


def _written(program: Program) -> list[str]:
    """The persistable variables that operators write: what training changes."""
    block = program.global_block()
    names = dict.fromkeys(name for each in program.blocks for op in each.ops for name in op.output_arg_names)
    return [name for name in names if name in block.vars and block.vars[name].persistable and name != "fetch"]


def _value(scope: Scope, name: str) -> Any:
    found = scope.find_var(name)
    return None if found is None else found.value


def _compare(name: str, found: Any, expected: Any, tolerance: float) -> Collection[Comparison]:
    if isinstance(expected, LoDTensorArray):
        if not isinstance(found, LoDTensorArray) or len(found) != len(expected):
            return [Comparison(name, f"is {_kind(found)}, expected {_kind(expected)}")]
        pairs = enumerate(zip(found, expected, strict=True))
        return [item for index, (a, b) in pairs for item in _compare(f"{name}[{index}]", a, b, tolerance)]
    if isinstance(expected, SelectedRows) and isinstance(found, SelectedRows):
        if list(found.rows()) != list(expected.rows()):
            return [Comparison(name, "has other rows")]
        return _compare(name, found.tensor, expected.tensor, tolerance)
    if not isinstance(expected, LoDTensor) or not expected.is_initialized():
        same = _kind(found) == _kind(expected)
        return [] if same else [Comparison(name, f"is {_kind(found)}, expected {_kind(expected)}")]
    if not isinstance(found, LoDTensor) or not found.is_initialized():
        return [Comparison(name, f"is {_kind(found)}, expected a tensor")]
    if found.lod() != expected.lod():
        return [Comparison(name, f"has LoD {found.lod()}, expected {expected.lod()}")]
    if found.numpy().dtype != expected.numpy().dtype:
        return [Comparison(name, f"is {found.numpy().dtype}, expected {expected.numpy().dtype}")]
    return [compare(name, found, expected, tolerance, absolute_tolerance(expected.numpy(), tolerance))]


def absolute_tolerance(expected: np.ndarray[Any, Any], rtol: float) -> float:
    """By how much an element may be off, whatever its size; 0 where every bit counts."""
    return rtol * _largest(expected) + floor(expected) if rtol else 0.0


def floor(array: np.ndarray[Any, Any]) -> float:
    """What rounding leaves of numbers around 1 that cancel: a few last bits, more for the worst of many elements."""
    if not is_floating(array) or not array.size:
        return 0.0
    epsilon = 2.0**-7 if array.dtype.name == "bfloat16" else float(np.finfo(array.dtype).eps)
    return epsilon * (1 + log2(array.size))


def _same(value: Any, other: Any) -> bool:
    return all(item.agrees for item in _compare("", value, other, 0.0))


def _kind(value: Any) -> str:
    if isinstance(value, LoDTensor) and not value.is_initialized():
        return "without a value"
    return "without a value" if value is None else f"a {type(value).__name__}"


def is_floating(array: np.ndarray[Any, Any]) -> bool:
    """Whether numbers are rounded: real or complex ones."""
    return array.dtype.kind in "fc" or array.dtype.name == "bfloat16"


def _largest(array: np.ndarray[Any, Any]) -> float:
    """The largest finite magnitude; 0 for what is not floating."""
    if not is_floating(array):
        return 0.0
    wide = np.abs(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))
    finite = wide[np.isfinite(wide)]
    return float(finite.max()) if finite.size else 0.0


# ---------------------------------------------------------------- suppression, quantisers
def comes_from_suppression(program: Program, name: str) -> bool:
    """Whether a variable has the rows of an operator that suppresses boxes, as they are or with other numbers."""
    for op in reversed(program.global_block().ops):
        if name in op.output_arg_names:
            if op.type not in SAME_ROWS:
                return op.type in SUPPRESSING
            (name,) = op.input("X")
    return False


def in_any_order(name: str, found: Any, expected: Any, rtol: float) -> list[Comparison]:
    """One comparison that agrees if within each sequence every row expected is found, each once; [] if not."""
    if not (isinstance(found, LoDTensor) and isinstance(expected, LoDTensor) and found.lod() == expected.lod()):
        return []
    got, want = found.numpy(), expected.numpy()
    if got.shape != want.shape or got.dtype != want.dtype or want.ndim != 2:
        return []
    atol, error = absolute_tolerance(want, rtol), 0.0
    for start, end in pairwise(expected.lod()[-1] if expected.lod() else [0, len(want)]):
        left = np.asarray(got[start:end], np.float64)
        for row in np.asarray(want[start:end], np.float64):
            off = np.abs(left - row).max(axis=1, initial=0.0)
            near = (np.abs(left - row) <= atol + rtol * np.abs(row)).all(axis=1)
            if not near.any():
                return []
            nearest = int(np.where(near, off, np.inf).argmin())
            error = max(error, float(off[nearest]))
            left = np.delete(left, nearest, axis=0)
    return [Comparison(name, None, want.size, 0, error)]


def scales_of_removed_quantisers(before: Program, after: Program) -> frozenset[str]:
    """Variables that only quantisers wrote and that the other program names no more."""
    writers: dict[str, list[bool]] = {}
    for op in (op for block in before.blocks for op in block.ops):
        for name in op.output_arg_names:
            writers.setdefault(name, []).append(is_quantiser(op.type) or op.type == OBSERVER)
    named = {name for block in after.blocks for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)}
    return frozenset(name for name, quantises in writers.items() if all(quantises) and name not in named)


# ---------------------------------------------------------------- time
def compare_times(
    before: Runnable,
    after: Runnable,
    feed: Mapping[str, Any],
    names: Sequence[str],
    repeat: int = 9,
    policy: Policy | None = None,
) -> tuple[float, float]:
    """The median seconds of a run of each, in turns, so that what else the machine does meets both alike.

    Each runs `repeat` times, less often where that would take much more than PATIENCE seconds.
    The runs of a program that changes its parameters begin with those given; others go on in one scope, as runs do.
    """
    executor = Executor(seed=SEED, policy=policy)
    sides = before, after
    first = [side.run(executor, feed, names)[1] for side in sides]  # compiles the plan
    scopes = [None if _written(side.program) else scope for side, scope in zip(sides, first, strict=True)]
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeat):
        for side, scope, times in zip(sides, scopes, seconds, strict=True):
            begin = perf_counter()
            side.run(executor, feed, names, scope)
            times.append(perf_counter() - begin)
        if sum(map(sum, seconds)) > PATIENCE:
            break
    return float(np.median(seconds[0])), float(np.median(seconds[1]))
