"""`fluidtool.check(model)`: the faults of a model, or what its program could do, found without running it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, BinaryIO

from fluidtool.errors import FluidError, UnreadableError
from fluidtool.io.parameters import persistables
from fluidtool.ir import Program
from fluidtool.model import Model, load
from fluidtool.passes.findings import Finding
from fluidtool.passes.security import DeclaredMemory, Reach, declared_memory, not_allowed
from fluidtool.passes.verify import verify_model
from fluidtool.records import dataclass
from fluidtool.runtime import Policy
from fluidtool.workflows.baseline import read_baseline, write_baseline
from fluidtool.workflows.names import counted
from fluidtool.workflows.sources import Source, opened
from fluidtool.workflows.watcher import SILENT, Watcher


@dataclass(frozen=True, slots=True)
class SecurityResult:
    """What a program asks for that its policy refuses, and the memory that it declares."""

    findings: list[Finding]
    reached: frozenset[Reach]
    memory: DeclaredMemory


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What is checked, and how models are opened.

    program_only: read no parameters. security: only what the program could do, with the memory that it declares for `batch`.
    """

    program_only: bool = False
    security: bool = False
    batch: int = 1
    params: str | None = None
    model_filename: str | None = None
    policy: Policy = field(default_factory=Policy)


@dataclass(frozen=True, slots=True)
class Size:
    """What was looked at."""

    blocks: int
    operators: int
    parameters: int


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found in one model. error: why its program could not be read; then nothing else is known."""

    program: str
    findings: list[Finding]
    size: Size | None = None
    security: SecurityResult | None = None
    error: FluidError | None = None


def check(model: Source, *, program_only: bool = False, params: Any = None, watcher: Watcher = SILENT) -> list[Finding]:
    """Every fault of data flow, shapes, data types, parameters, operators and attributes, and what the policy refuses.

    model: a path, or a model loaded with `validate=False, need_parameters=False`, so that errors of loading become findings.
    program_only: leave parameters out. params: for a path, where they are. Raises UnreadableError and ModelNotFoundError.
    """
    model = opened(model, params=params, need_parameters=False, validate=False)
    with watcher.progress("checking"):
        return verify_model(model.files, model.policy, parameters=not program_only)


def check_security(model: Model, batch: int = 1) -> SecurityResult:
    """What the program could do with files, the network, Python functions and endless loops, and its memory for `batch`."""
    refused = not_allowed(model.program, model.policy)
    reached = frozenset(each.reach for each in refused)
    return SecurityResult([each.finding() for each in refused], reached, declared_memory(model.program, batch))


def check_models(
    models: Sequence[str | BinaryIO], options: CheckOptions | None = None, watcher: Watcher = SILENT
) -> list[Checked]:
    """Check several models, found by `fluidtool.io.search.find_models`; a program that cannot be read is in the result."""
    chosen = options or CheckOptions()
    with watcher.progress("checking", len(models)) as advance:
        checked = []
        for model in models:
            checked.append(_check(model, chosen))
            advance()
    return checked


def _check(source: str | BinaryIO, options: CheckOptions) -> Checked:
    try:
        model = load(
            source,
            model_filename=options.model_filename,
            params=options.params,
            policy=options.policy,
            need_parameters=False,
            validate=False,
        )
    except UnreadableError as error:
        return Checked(source if isinstance(source, str) else source.name, [], error=error)
    security = check_security(model, options.batch) if options.security else None
    findings = check(model, program_only=options.program_only) if security is None else security.findings
    return Checked(model.files.program_source, findings, _size(model.program), security)


def _size(program: Program) -> Size:
    return Size(program.num_blocks, sum(len(block.ops) for block in program.blocks), len(persistables(program)))


# ---------------------------------------------------------------- accepted findings
def without_accepted(checked: Sequence[Checked], baseline: Path, watcher: Watcher = SILENT) -> list[Checked]:
    """What the baseline of this file does not accept; says how much it accepts. Raises UnreadableError."""
    accepted = read_baseline(baseline)
    expected = accepted.unmatched
    left = [replace(each, findings=accepted.new(each.program, each.findings)) for each in checked]
    gone = accepted.unmatched
    stale = f", {gone} no longer occur: write it again" if gone else ""
    watcher.say(f"{baseline}: {counted(expected - gone, 'finding')} accepted{stale}")
    return left


def accept(checked: Sequence[Checked], baseline: Path, *, overwrite: bool = False, watcher: Watcher = SILENT) -> None:
    """Write all findings to a baseline. Raises the error of a program that could not be read: nothing is written then."""
    for each in checked:
        if each.error is not None:
            raise each.error
    count = write_baseline(baseline, [(each.program, each.findings) for each in checked], overwrite=overwrite)
    watcher.say(f"{baseline}: {counted(count, 'finding')} accepted from now on")
