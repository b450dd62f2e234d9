"""For the tests of projects that hold Fluid models.

    from fluidtool.testing import assert_model_outputs

    def test_digits() -> None:
        assert_model_outputs("models/digits", "x.npy", "expected.npz")

With pytest, the fixture `fluidtool_golden` keeps the expected outputs in files (fluidtool/testing/plugin.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fluidtool.model import Model
    from fluidtool.tensor.compare import Comparison

__all__ = ["assert_model_outputs", "model_outputs"]


def assert_model_outputs(
    model: Model | str | Path, inputs: Any, expected: Any, rtol: float = 1e-4, atol: float = 1e-5, *, lods: Any = ()
) -> None:
    """Run a model and raise AssertionError, naming every output that differs, unless |found - expected| <= atol + rtol *
    |expected| everywhere; integers and booleans must be equal, shapes and kinds of data types the same.

    inputs: as `model_outputs` takes them. expected: a .npy or .npz file, an array for the first output, or values by the
    name of an output or of another variable. Raises UsageError if nothing is expected.
    """
    from fluidtool.errors import UsageError
    from fluidtool.workflows.expectation import Tolerance, compare_all

    __tracebackhide__ = True  # pytest shows the line of the test
    opened = _opened(model)
    values = _expected(opened, expected)
    if not values:
        raise UsageError("no outputs are expected, so the test could not fail; name at least one")
    tolerance = Tolerance(rtol, atol)
    compared = compare_all(model_outputs(opened, inputs, list(values), lods=lods), values, tolerance)
    differing = [each for each in compared if not each.agrees]
    if differing:
        lines = "\n".join(f"  {_described(each)}" for each in differing)
        raise AssertionError(
            f"{len(differing)} of {len(compared)} outputs of {opened.files.program_source} differ from what is expected "
            f"(rtol {rtol:g}, atol {atol:g}):\n{lines}"
        )


def model_outputs(
    model: Model | str | Path, inputs: Any, fetch: Sequence[str] | None = None, *, lods: Sequence[str] | str = ()
) -> dict[str, Any]:
    """The outputs of a model by name, or the variables of `fetch`.

    inputs: a .npy or .npz file, an array for the only input, or arrays by the name of an input. lods: for files, the sequence
    lengths of inputs, 'NAME=[[2,3]]' or a JSON file. Raises FeedError, FetchError and UnreadableError.
    """
    from fluidtool.workflows.inputs import Inputs, gather

    opened = _opened(model)
    lengths = [lods] if isinstance(lods, str) else [str(each) for each in lods]
    if isinstance(inputs, (str, Path)):
        return opened.run(gather(opened, Inputs(feeds=[str(inputs)], lods=lengths)), fetch)
    return opened.run(_named(inputs, opened.feeds, "input"), fetch)


def _opened(model: Model | str | Path) -> Model:
    from fluidtool.model import load

    return load(model) if isinstance(model, (str, Path)) else model


def _expected(model: Model, expected: Any) -> Mapping[str, Any]:
    from fluidtool.workflows.expectation import read_expected

    if isinstance(expected, (str, Path)):
        known = [name for block in model.program.blocks for name in block.vars]
        return read_expected(Path(expected), model.fetches, known)
    return _named(expected, model.fetches[:1], "output")


def _named(values: Any, names: Sequence[str], what: str) -> Mapping[str, Any]:
    """Values by name; a single one belongs to the only name."""
    from fluidtool.errors import UsageError

    if isinstance(values, Mapping):
        return values
    if len(names) != 1:
        raise UsageError(f"one array was given, but the model has {len(names)} {what}s: {', '.join(names)}; name them")
    return {names[0]: values}


def _described(comparison: Comparison) -> str:
    """'y: 2 of 20 elements differ by at most 0.5; at [0, 1] found 0.25, expected 0.75'; control characters are written out."""
    name = comparison.name if comparison.name.isprintable() else ascii(comparison.name)
    if comparison.fault is not None:
        return f"{name} {comparison.fault}"
    worst = comparison.worst[0]
    return (
        f"{name}: {comparison.differing} of {comparison.elements} elements differ, by at most "
        f"{comparison.largest_error:.4g}; at {list(worst.index)} found {worst.found:g}, expected {worst.expected:g}"
    )
