"""What `diff` shows: the fields, operators, variables and parameters that two programs do not have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fluidtool.cli.render import Table, counted, number, table
from fluidtool.io.difference import ParameterDifference
from fluidtool.ir.difference import BlockDifference, Change, OperatorDifference, ProgramDifference
from fluidtool.workflows.diff import ModelDifference

if TYPE_CHECKING:
    from fluidtool.report import common
    from fluidtool.report import diff as report
    from fluidtool.report.params import DifferenceReport

LONGEST = 100  # characters of one value in a table
GONE, NEW, OTHER = "-", "+", "~"
COLORS = {GONE: "red", NEW: "green", OTHER: "yellow"}


# ---------------------------------------------------------------- JSON
def document(found: ModelDifference) -> report.DiffReport:
    """The data of `--json`."""
    data: report.DiffReport = {
        "schema": "fluidtool.diff/1",
        "equal": found.equal,
        "changes": [_change(each) for each in found.program.changes],
        "blocks": [_block(each) for each in found.program.blocks],
    }
    if found.parameters is not None:
        data["parameters"] = [parameter_data(each) for each in found.parameters]
    return data


def _block(found: BlockDifference) -> report.BlockDifference:
    return {
        "left": found.left,
        "right": found.right,
        "changes": [_change(each) for each in found.changes],
        "operators": [
            {
                "type": each.type,
                "left": each.left,
                "right": each.right,
                "left_outputs": each.left_names,
                "right_outputs": each.right_names,
                "changes": [_change(change) for change in each.changes],
            }
            for each in found.operators
        ],
        "variables": [
            {
                "name": each.name,
                "left": each.left or None,
                "right": each.right or None,
                "changes": [_change(change) for change in each.changes],
            }
            for each in found.variables
        ],
    }


def _change(found: Change) -> report.Change:
    return {"field": found.field, "left": found.left, "right": found.right}


def parameter_data(found: ParameterDifference) -> common.ParameterDifference:
    """A parameter that one side lacks or whose values differ."""
    return {
        "name": found.name,
        "left": found.left or None,
        "right": found.right or None,
        "elements": found.elements,
        "differing": found.differing,
        "largest_difference": found.largest,
    }


def difference_document(found: Sequence[ParameterDifference]) -> DifferenceReport:
    """The data of `params diff --json`."""
    return {
        "schema": "fluidtool.params/1",
        "action": "diff",
        "parameters": [parameter_data(each) for each in found],
    }


# ---------------------------------------------------------------- tables
def tables(found: ProgramDifference, single_block: bool) -> Iterator[Table]:
    """The program's fields, then operators and variables of each block that differs."""
    if found.changes:
        out = table("Program", "", "A", "B")
        for change in found.changes:
            out.add(change.field, *sides(change.left, change.right))
        yield out
    for block in found.blocks:
        before = "" if single_block else f"{block_name(block)}: "
        if block.left is None or block.right is None or block.changes:
            out = table(block_name(block), "", "A", "B")
            if block.left is None or block.right is None:
                out.add("block", *sides(block.left, block.right))
                out.styles[len(out.rows) - 1] = COLORS[NEW if block.left is None else GONE]
            for change in block.changes:
                out.add(change.field, *sides(change.left, change.right))
            yield out
        yield operators_table(f"{before}Operators", block.operators)
        yield variables_table(f"{before}Variables", block)


def block_name(block: BlockDifference) -> str:
    """'Block 1', or 'Block 1 of A, 2 of B'."""
    if block.left == block.right:
        return f"Block {block.left}"
    sides = [f"{index} of {side}" for index, side in ((block.left, "A"), (block.right, "B")) if index is not None]
    return f"Block {', '.join(sides)}"


def operators_table(title: str, operators: Sequence[OperatorDifference]) -> Table:
    """A row for each operator with its positions and what it writes, and one below for each field that differs."""
    out = table(title, "!", ">in A", ">in B", "operator", "A", "B")
    for op in operators:
        mark = NEW if op.left is None else GONE if op.right is None else OTHER
        places = ["" if position is None else position for position in (op.left, op.right)]
        _add(out, mark, *places, op.type, ", ".join(op.left_names), ", ".join(op.right_names))
        for change in op.changes:
            if not change.field.startswith("output ") or len(op.left_names) != 1 or len(op.right_names) != 1:
                _add(out, mark, "", "", f"  {change.field}", *sides(change.left, change.right), sign=False)
    return out


def variables_table(title: str, block: BlockDifference) -> Table:
    """A row for each variable with its declarations, and one below for each field that these do not tell."""
    out = table(title, "!", "variable", "A", "B")
    for var in block.variables:
        mark = NEW if not var.left else GONE if not var.right else OTHER
        _add(out, mark, var.name, var.left, var.right)
        if var.left == var.right:
            for change in var.changes:
                _add(out, mark, f"  {change.field}", *sides(change.left, change.right), sign=False)
    return out


def parameters_table(found: Sequence[ParameterDifference]) -> Table:
    """A row for each parameter that one side lacks or whose values differ."""
    out = table("Parameters", "!", "parameter", "A", "B", ">differing", ">largest")
    for item in found:
        mark = NEW if not item.left else GONE if not item.right else OTHER
        counted = item.largest is not None
        differing = f"{item.differing} of {item.elements}" if counted else ""
        _add(out, mark, item.name, item.left, item.right, differing, number(item.largest, 3) if counted else "")
    return out


def _add(out: Table, mark: str, *cells: Any, sign: bool = True) -> None:
    out.add(mark if sign else "", *cells)
    out.styles[len(out.rows) - 1] = COLORS[mark]


def sides(left: Any, right: Any) -> tuple[str, str]:
    """Two values as cells; of long lists the part that differs."""
    if isinstance(left, list) and isinstance(right, list):
        same = next(
            (i for i, (x, y) in enumerate(zip(left, right, strict=False)) if x != y), min(len(left), len(right))
        )
        if max(len(str(left)), len(str(right))) > LONGEST and same:
            return _from(left, same), _from(right, same)
    return _cell(left), _cell(right)


def _from(items: list[Any], start: int) -> str:
    shown = ", ".join(str(item) for item in items[start : start + 3])
    return f"{len(items)} items, from {start}: {shown}{', …' if start + 3 < len(items) else ''}"


def _cell(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        value = ", ".join(value)
    text = "" if value is None else repr(value) if isinstance(value, str) and not value.strip() else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"


# ---------------------------------------------------------------- counts
def count_text(found: ProgramDifference, weights: Sequence[ParameterDifference], compared: int | None) -> str:
    """'2 operators, 1 variable and 3 parameters differ', or that nothing does."""
    counts = {
        "field": len(found.changes) + sum(len(block.changes) for block in found.blocks),
        "block": sum(block.left is None or block.right is None for block in found.blocks),
        "operator": sum(len(block.operators) for block in found.blocks),
        "variable": sum(len(block.variables) for block in found.blocks),
        "parameter": len(weights),
    }
    some = [counted(count, name) for name, count in counts.items() if count]
    if not some:
        return "no difference" + ("" if compared is None else f", {compared} parameters are equal")
    listed = " and ".join(filter(None, [", ".join(some[:-1]), some[-1]]))
    return f"{listed} differ{'s' if listed.startswith('1 ') and len(some) == 1 else ''}"
