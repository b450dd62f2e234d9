"""What `check` shows: findings, and what a program could do."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fluidtool.cli.render import Table, counted, fields, size, table
from fluidtool.passes.findings import Finding
from fluidtool.passes.security import DeclaredMemory, Reach


def findings_table(found: Sequence[Finding], blocks: bool) -> Table:
    """A row for each finding; blocks: whether the program has several."""
    out = table("", "!code", "where", "finding")
    for finding in found:
        out.add(finding.code, place(finding, blocks), finding.message)
    return out


def place(finding: Finding, blocks: bool) -> str:
    """'12 conv2d', 'block 1, 3 mul', or the variable."""
    if finding.position is None:
        return finding.variable
    return (f"block {finding.block}, " if blocks else "") + f"{finding.position} {finding.operator}"


def count_text(found: Sequence[Finding]) -> str:
    """'2 findings'."""
    return counted(len(found), "finding") if found else "no findings"


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
