"""A model as an ONNX file, and the run of that file beside our own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.errors import DependencyError, Hint, NotConvertibleError
from fluidtool.io.atomic import write_files
from fluidtool.onnx_export.exporter import Exported, export
from fluidtool.onnx_export.messages import MESSAGE_LIMIT, Written, require_onnx, size_of, write_model
from fluidtool.shapes import shape_text
from fluidtool.tensor import LoDTensor
from fluidtool.workflows.conversion import ConvertRequest, ConvertResult, VerifiedOutput, given
from fluidtool.workflows.inputs import gather
from fluidtool.workflows.onnx_session import RuntimeFault, run_apart
from fluidtool.workflows.outputs import require_free

SINGLE = "inputs with sequences take one sequence at a time; run several one after the other"
INNER = "the lengths of the sequences inside {feed} are the input {names}"
SEVERAL = "{feed} has the rows of all its sequences, whose lengths are the input {names}"


def write_onnx(request: ConvertRequest) -> ConvertResult:
    """Export, verify if that is asked, write. Raises what `convert` names."""
    require_onnx()
    model, output, watcher = request.model, request.output, request.watcher
    if request.verify is not None:
        _require_runtime()
    data_file = output.with_name(f"{output.name}.data")
    require_free(output, overwrite=request.overwrite)
    with watcher.progress("exporting"):
        exported = export(
            model.program, model.feeds, model.fetches, model.files.parameters, opset=request.onnx.opset,
            several=request.onnx.several,
        )  # fmt: skip
    if exported.blockers:
        hint = Hint("fluidtool.prune reduces a model", "'fluidtool prune' reduces a model")
        raise NotConvertibleError(_summary(exported), exported.blockers, hint=hint)
    external = request.onnx.external or size_of(exported.graph) > MESSAGE_LIMIT
    notes = (*((SINGLE,) if exported.single_sequence else ()), *_lengths_noted(exported), *exported.notes)
    properties = {"fluidtool.notes": "; ".join(notes)} if notes else {}
    with watcher.progress("writing"):
        written = write_model(
            exported.graph, name="main", external=data_file.name if external else "", properties=properties
        )
    verified = None if request.verify is None else _verify(request, exported, written)
    files: dict[Path, Iterable[Any]] = {output: [written.message]}
    if written.external:
        files[data_file] = written.external_parts()
    write_files(files, overwrite=request.overwrite)
    return ConvertResult(
        "onnx",
        tuple(files),
        given(model),
        exported.operators,
        len(model.files.parameters),
        len(exported.graph.nodes),
        request.onnx.opset,
        exported.single_sequence,
        notes,
        request.tolerance,
        verified,
    )


def _summary(exported: Exported) -> str:
    first = exported.blockers[0]
    others = f" and {len(exported.blockers) - 1} more" if len(exported.blockers) > 1 else ""
    place = f"operator {first.operator} ({first.type})" if first.operator >= 0 else f"input {first.output}"
    return f"{place}{others} cannot be written as ONNX: {first.reason}; nothing was written"


def _lengths_noted(exported: Exported) -> list[str]:
    text = INNER if exported.single_sequence else SEVERAL
    return [text.format(feed=name, names=", ".join(names)) for name, names in exported.lengths.items()]


def _require_runtime() -> None:
    try:
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise DependencyError(
            "verifying needs the package onnxruntime; install it with: pip install 'fluidtool[onnxruntime]'"
        ) from error


# ---------------------------------------------------------------- verification
def _verify(request: ConvertRequest, exported: Exported, written: Written) -> list[VerifiedOutput]:
    assert request.verify is not None
    model, watcher = request.model, request.watcher
    feed = gather(model, request.verify, watcher)
    with watcher.progress("verifying"):
        own = model.run(feed)
        found = run_written(written, feed, model.fetches, exported)
    return [compared(name, value, own[name]) for name, value in found.items()]


def run_written(
    written: Written, feed: Mapping[str, LoDTensor], fetches: Sequence[str], exported: Exported
) -> dict[str, Any]:
    """The outputs of ONNX Runtime; of a model that takes one sequence at a time, those of each put together."""
    wanted = {each.name: each.shape or () for each in exported.graph.inputs}
    values = {name: value for name, value in feed.items() if name in wanted}
    given = sequences_of(values, wanted, exported) if exported.single_sequence else [_all_rows(values, exported)]
    given = [{name: array for name, array in arrays.items() if name in wanted} for arrays in given]
    names = list(dict.fromkeys(fetches))
    external = {name: np.ascontiguousarray(array) for name, (_, array) in written.external.items()}
    runs = run_apart(written.message, external, given, names)
    if isinstance(runs, RuntimeFault):
        return {name: runs for name in fetches}
    if len(runs) == 1:
        return dict(zip(names, runs[0], strict=True))
    parts = {name: [run[index] for run in runs] for index, name in enumerate(names)}
    return {name: sum(found) if name in exported.counts else _joined(found) for name, found in parts.items()}


def _joined(parts: Sequence[Any]) -> Any:
    if any(part.ndim == 0 or part.shape[1:] != parts[0].shape[1:] for part in parts):
        return parts[0] if len(parts) == 1 else RuntimeFault("its shape differs from sequence to sequence")
    return np.concatenate(parts)


def _all_rows(feed: Mapping[str, LoDTensor], exported: Exported) -> dict[str, Any]:
    """The feeds of a model that takes several sequences, with the lengths of these."""
    given = {name: value.numpy() for name, value in feed.items()}
    for name, inputs in exported.lengths.items():
        if name in feed:
            levels = feed[name].offsets or [[0, feed[name].shape()[0]]]
            given |= {wanted: _lengths(level) for wanted, level in zip(inputs, levels, strict=False)}
    return given


def _lengths(offsets: Sequence[int]) -> Any:
    return np.diff(np.asarray(offsets, np.int64))


def sequences_of(
    feed: Mapping[str, LoDTensor], shapes: Mapping[str, Sequence[Any]], exported: Exported
) -> list[dict[str, Any]]:
    """The feeds of each sequence; what has no LoD goes row by row, or as a whole where the model takes all of its rows."""
    counts = [len(value.offsets[0]) - 1 for value in feed.values() if value.offsets]
    count = max(counts or [max((value.shape()[0] for value in feed.values() if value.shape()), default=1)])
    whole = {
        name for name, value in feed.items() if value.shape() and list(shapes.get(name, ()))[:1] == [value.shape()[0]]
    }
    found = []
    for number in range(count):
        given: dict[str, Any] = {}
        for name, value in feed.items():
            given[name], lengths = _of_sequence(value, number, name in whole)
            given |= dict(zip(exported.lengths.get(name, ()), lengths, strict=False))
        found.append(given)
    return found


def _of_sequence(value: LoDTensor, number: int, whole: bool) -> tuple[Any, list[Any]]:
    """The rows of an outermost sequence, and the lengths of those inside of it, level by level."""
    array = value.numpy()
    if not array.ndim or (whole and not value.offsets):
        return array, []
    if not value.offsets:
        return array[number : number + 1], []
    first, last = value.offsets[0][number : number + 2]
    lengths = []
    for level in value.offsets[1:]:
        lengths.append(_lengths(level[first : last + 1]))
        first, last = level[first], level[last]
    return array[first:last], lengths


def compared(name: str, found: Any, own: Any) -> VerifiedOutput:
    """An output of ONNX Runtime beside our own."""
    expected = np.asarray(own)
    dtype, shape = str(expected.dtype), tuple(expected.shape)
    if isinstance(found, RuntimeFault):
        return VerifiedOutput(name, dtype, shape, fault=f"ONNX Runtime: {found}")
    if found.dtype != expected.dtype or found.shape != expected.shape:
        fault = f"{found.dtype} {shape_text(found.shape)}, expected {dtype} {shape_text(shape)}"
        return VerifiedOutput(name, dtype, shape, fault=fault)
    if not expected.size:
        return VerifiedOutput(name, dtype, shape)
    one, two = found.astype(np.float64), expected.astype(np.float64)
    same = (one == two) | (np.isnan(one) & np.isnan(two))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(one - two))
    worst = float("inf") if np.isnan(apart).any() else float(apart.max())
    finite = np.abs(two[np.isfinite(two)])
    largest = float(finite.max()) if finite.size else 0.0
    return VerifiedOutput(name, dtype, shape, worst, worst / largest if largest else worst)
