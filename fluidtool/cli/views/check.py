"""What `check` shows on a terminal and in JSON: findings, and what a program could do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from fluidtool.cli.failures import failure, text_of
from fluidtool.cli.render import Table, counted, fields, size, table
from fluidtool.passes.findings import Finding
from fluidtool.passes.security import DeclaredMemory, Reach
from fluidtool.workflows.check import Checked

if TYPE_CHECKING:
    from fluidtool.report import check as report


def tables(checked: Sequence[Checked], batch: int) -> list[Table]:
    """The tables of one model, or one row for each finding of several."""
    if len(checked) > 1:
        return [models_table(checked)]
    (only,) = checked
    security = only.security
    first = [] if security is None else [reach_table(security.reached, security.memory, batch)]
    return [*first, findings_table(only.findings, has_blocks(only))]


def models_table(checked: Sequence[Checked]) -> Table:
    """A row for each finding of each model, and one for each program that cannot be read."""
    out = table("", "model", "!code", "where", "finding")
    for each in checked:
        if each.error is not None:
            out.add(each.program, each.error.code, "", text_of(each.error))
        for finding in each.findings:
            out.add(each.program, finding.code, place(finding, has_blocks(each)), finding.message)
    return out


def has_blocks(checked: Checked) -> bool:
    """Whether a program has several blocks, so that the block of a finding has to be named."""
    return checked.size is not None and checked.size.blocks > 1


def findings_table(found: Sequence[Finding], blocks: bool) -> Table:
    """A row for each finding; blocks: whether the program has several."""
    out = table("", "!code", "where", "finding")
    for finding in found:
        out.add(finding.code, place(finding, blocks), finding.message)
    return out


def place(finding: Finding, blocks: bool) -> str:
    """'12 conv2d', 'block 1, 3 mul', or the variable."""
    if finding.operator is None:
        return finding.variable
    return (f"block {finding.block}, " if blocks else "") + f"{finding.operator} {finding.type}"


def summary(checked: Checked) -> str:
    """'digits/__model__: 13 operators, 12 parameters, no findings'."""
    if checked.error is not None:
        return f"{checked.program}: not checked: {text_of(checked.error)} [{checked.error.code}]"
    size_text = ""
    if checked.size is not None and checked.security is None:
        size_text = f"{counted(checked.size.operators, 'operator')}, {counted(checked.size.parameters, 'parameter')}, "
    return f"{checked.program}: {size_text}{count_text(checked.findings)}"


def count_text(found: Sequence[Finding]) -> str:
    """'2 findings'."""
    return counted(len(found), "finding") if found else "no findings"


def document(checked: Sequence[Checked], alone: bool) -> report.CheckReport:
    """The JSON document; alone: of one model that was named itself, in place of a list of models."""
    if not alone:
        return {"schema": "fluidtool.check/1", "models": [_model_data(each) for each in checked]}
    (only,) = checked
    data: report.ModelReport = {
        "schema": "fluidtool.check/1",
        "program": only.program,
        "findings": [_finding(finding) for finding in only.findings],
    }
    if only.security is not None:
        data["memory"] = _memory(only.security.memory)
    return data


def _model_data(checked: Checked) -> report.CheckedModel:
    data: report.CheckedModel = {
        "program": checked.program,
        "findings": [_finding(finding) for finding in checked.findings],
        "error": None if checked.error is None else failure(checked.error),
    }
    if checked.security is not None:
        data["memory"] = _memory(checked.security.memory)
    return data


def _finding(found: Finding) -> report.Finding:
    return {
        "code": found.code,
        "message": found.message,
        "block": found.block,
        "operator": found.operator,
        "type": found.type or None,
        "variable": found.variable or None,
    }


def _memory(found: DeclaredMemory) -> report.DeclaredMemory:
    return {
        "parameter_bytes": found.parameters,
        "activation_bytes": found.activations,
        "largest_variable": found.largest_variable or None,
        "largest_bytes": found.largest,
        "unknown": found.unknown,
    }


def reach_table(reached: Collection[Reach], memory: DeclaredMemory, batch: int) -> Table:
    """For each thing that a program could do whether it does, and the memory that it declares."""
    largest = f"{memory.largest_variable}, {size(memory.largest)}" if memory.largest_variable else "none"
    unknown = [("not counted", f"{', '.join(memory.unknown)} (sizes known only at run time)")] if memory.unknown else []
    answers = [(reach.named, "see below" if reach in reached else "none") for reach in Reach]
    amounts = [
        ("parameters", size(memory.parameters)),
        ("activations", f"{size(memory.activations)} at once, for batch {batch}"),
        ("largest variable", largest),
        *unknown,
    ]
    return fields("", [*answers, *amounts])
