"""`fluidtool.check(model)`: the faults of a model, or what its program could do, found without running it."""

from __future__ import annotations

from dataclasses import dataclass

from fluidtool.model import Model
from fluidtool.passes.findings import Finding
from fluidtool.passes.security import DeclaredMemory, Reach, declared_memory, not_allowed
from fluidtool.passes.verify import verify_model
from fluidtool.workflows.watcher import SILENT, Watcher


@dataclass(frozen=True, slots=True)
class SecurityResult:
    """What a program asks for that its policy refuses, and the memory that it declares."""

    findings: list[Finding]
    reached: frozenset[Reach]
    memory: DeclaredMemory


def check(model: Model, *, watcher: Watcher = SILENT) -> list[Finding]:
    """Every fault of data flow, shapes, data types, parameters, operators and attributes, and what the policy refuses.

    Load the model with `validate=False, need_parameters=False`: errors of loading are reported as findings here.
    """
    with watcher.progress("checking"):
        return verify_model(model.files, model.policy)


def check_security(model: Model, batch: int = 1) -> SecurityResult:
    """What the program could do with files, the network, Python functions and endless loops, and its memory for `batch`."""
    refused = not_allowed(model.program, model.policy)
    reached = frozenset(each.reach for each in refused)
    return SecurityResult([each.finding() for each in refused], reached, declared_memory(model.program, batch))
