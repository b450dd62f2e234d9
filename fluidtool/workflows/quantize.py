"""`fluidtool.quantize(model, data, output)`: 8 bits after training, and how much the outputs change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from fluidtool.errors import LIST_VARIABLES, Hint, Location, ProgramError, UsageError
from fluidtool.io.parameters import persistables
from fluidtool.io.saving import layout_like, save_model
from fluidtool.ir import Program
from fluidtool.ir.reuse import unshared
from fluidtool.model import Model
from fluidtool.passes.quantize import Candidate, candidates
from fluidtool.passes.quantize import quantize as quantize_program
from fluidtool.passes.result import Decision
from fluidtool.records import dataclass
from fluidtool.runtime import Executor, Policy, Scope
from fluidtool.tensor import LoDTensor
from fluidtool.workflows.calibration import METHODS, Batch, Method, ends
from fluidtool.workflows.feeds import DATA, as_declared, read_feed
from fluidtool.workflows.names import did_you_mean
from fluidtool.workflows.sources import Source, opened
from fluidtool.workflows.watcher import SILENT, Watcher


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """How an output of the quantized model differs from that of the model, on the data."""

    name: str
    largest_difference: float
    root_mean_square: float
    largest_value: float


@dataclass(frozen=True, slots=True)
class QuantizedOperator:
    """An operator that has weights: what it computes, whether it is quantized, or why not; the largest sizes that are kept of its
    input and, by output, of its weights (the least and the greatest of them).
    """

    type: str
    output: str
    done: bool
    reason: str
    input: str = ""
    input_scale: float = 0.0
    weight_scales: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class QuantizeResult:
    """The quantized program, the files that were written, its operators with weights, and how the outputs differ."""

    program: Program
    files: tuple[Path, ...]
    operators: tuple[QuantizedOperator, ...]
    outputs: tuple[OutputDifference, ...]
    batches: int


def quantize(
    model: Source,
    data: Sequence[str] | Sequence[Mapping[str, Any]],
    output: str | Path | None = None,
    *,
    method: Method = "abs_max",
    percentile: float = 99.99,
    skip: Sequence[str] = (),
    overwrite: bool = False,
    params: Any = None,
    model_filename: str | None = None,
    policy: Policy | None = None,
    watcher: Watcher = SILENT,
) -> QuantizeResult:
    """Let convolutions and products by parameters compute in 8 bits: weights by output channel, activations by what the data
    shows; save the model in its own layout if `output` is given.

    data: batches, {"x": array}, or files ('x.npy', 'NAME=x.npy', 'all.npz'), one for each batch. method: where activations are
    cut off: 'abs_max' nowhere, 'kl' where the divergence is least, 'percentile' beyond that share of values. skip: results, or
    patterns of them, of operators that stay in float32. Raises UsageError, ProgramError for one that the program does not
    compute, FeedError, OutputExistsError, OutputError, and what `load` raises.
    """
    if method not in METHODS:
        raise UsageError(f"there is no method {method!r}; expected one of {', '.join(METHODS)}")
    if not 0 < percentile <= 100:
        raise UsageError(f"the percentile must be above 0 and at most 100, found {percentile:g}")
    model = opened(model, params=params, model_filename=model_filename, policy=policy)
    batches = [_batch(model, each) for each in data]
    if not batches:
        hint = Hint("give data=['x.npy']", "give --data x.npy")
        raise UsageError("quantization needs data to measure how large activations become", hint=hint)
    store = model.files.parameters
    program = unshared(model.program, [*model.feeds, *model.fetches]).clone()
    _require_computed(program, skip)
    names = {var.name for var in persistables(program)}
    values = {name: value.numpy() for name in store if name in names and isinstance(value := store[name], LoDTensor)}
    wanted = [each.activation for each in candidates(program, values.keys(), skip) if isinstance(each, Candidate)]
    with watcher.progress("calibrating", len(batches) * (1 if method == "abs_max" else 2)) as advance:
        scales = ends(model, batches, wanted, method, percentile, advance)
    before = [each for each in candidates(program, values.keys(), skip) if isinstance(each, Candidate)]
    known = {each.out: each for each in before}
    decisions, made = quantize_program(program, values, scales, skip)
    operators = tuple(_operator(each, known, scales, values) for each in decisions.decisions)
    kept = {var.name: made.get(var.name, values.get(var.name)) for var in persistables(program)}
    with watcher.progress("comparing", len(batches)) as advance:
        outputs = tuple(_differences(model, program, kept, batches, advance))
    files: Sequence[Path] = ()
    if output is not None:
        tensors = {name: LoDTensor(np.ascontiguousarray(value)) for name, value in kept.items()}
        files = save_model(program, tensors, layout_like(model.files, Path(output), True), overwrite=overwrite)
    return QuantizeResult(program, tuple(files), operators, outputs, len(batches))


def _require_computed(program: Program, skip: Sequence[str]) -> None:
    results = {name for block in program.blocks for op in block.ops for name in op.output_arg_names}
    for pattern in skip:
        if not any(fnmatchcase(name, pattern) for name in results):
            hint = did_you_mean(pattern, results) or LIST_VARIABLES
            text = f"no operator computes {pattern!r}, so there is nothing to skip"
            raise ProgramError(text, hint=hint, location=Location(variable=pattern))


def _batch(model: Model, given: str | Mapping[str, Any]) -> Batch:
    if not isinstance(given, str):
        return model.tensors(given)
    found = {name: as_declared(model, name, value) for name, value in read_feed(model, given, DATA).items()}
    model.check_feed(found, model.fetches)
    return found


def _operator(
    decision: Decision, known: Mapping[str, Candidate], scales: Mapping[str, float], values: Mapping[str, Any]
) -> QuantizedOperator:
    candidate = known.get(decision.variable.removesuffix(".sums"))
    if not decision.done or candidate is None:
        return QuantizedOperator(decision.operator, decision.variable, False, decision.reason)
    weights = np.abs(values[candidate.weights])
    by_output = weights.max(axis=tuple(axis for axis in range(weights.ndim) if axis != candidate.axis))
    found = float(by_output.min()), float(by_output.max())
    scale = float(np.float32(scales[candidate.activation]))
    return QuantizedOperator(
        decision.operator, candidate.out, True, decision.reason, candidate.activation, scale, found
    )


def _differences(
    model: Model, program: Program, values: Mapping[str, Any], batches: Sequence[Batch], advance: Any
) -> Iterable[OutputDifference]:
    """How each output differs, over all batches."""
    executor = Executor(model.place, policy=model.policy, seed=model.seed, engine=model.engine)
    scope = Scope()
    for name, value in values.items():
        scope.var(name).value = LoDTensor(np.ascontiguousarray(value))
    names = list(model.fetches)
    sums, counts = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0)
    worst, largest = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for batch in batches:
        want = model.run(batch)
        got = executor.run(program, batch, names, scope, needed_only=True)
        for name, value in zip(names, got, strict=True):
            floats = np.asarray(want[name]).astype(np.float64)
            apart = np.abs(np.asarray(value).astype(np.float64) - floats)
            worst[name] = float(np.maximum(worst[name], apart.max(initial=0)))  # NaN if there is any
            largest[name] = float(np.maximum(largest[name], np.abs(floats).max(initial=0)))
            sums[name] += float((apart**2).sum())
            counts[name] += apart.size
        advance()
    for name in names:
        yield OutputDifference(name, worst[name], sqrt(sums[name] / max(counts[name], 1)), largest[name])
