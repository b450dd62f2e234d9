"""Figures of operators from the documents that other commands write: times of `profile`, differences of `diff` and `compare`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf, nan
from pathlib import Path
from typing import Any

from fluidtool.drawing.coloring import Coloring, by_change, by_error, by_time
from fluidtool.drawing.graph import Place
from fluidtool.errors import UsageError
from fluidtool.io.json_files import read_json_object
from fluidtool.ir import Operator, Program
from fluidtool.ir.dataflow import BlockFlow, block_flow
from fluidtool.records import dataclass

Document = Mapping[str, Any]
Places = Mapping[str, Sequence[Place]]
NOT_FINITE = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}
SIDES = ("left", "right")
ERRORS = ("relative_difference", "largest_difference")  # of a value in a comparison: the first that is there


@dataclass(frozen=True, slots=True)
class Figures:
    """A coloring, and how many entries of the document belong to no operator of the model."""

    coloring: Coloring
    unmatched: int


def read_document(source: str | Path | Document) -> Document:
    """A document as it is, or from its file. Raises UnreadableError."""
    return source if isinstance(source, Mapping) else read_json_object(Path(source))


# ---------------------------------------------------------------- time
def time_figures(program: Program, document: Document, name: str) -> Figures:
    """Seconds by operator, from a document of `profile`. Operators of one kernel call are colored as the one that it ends with.

    Raises UsageError for other documents, and for a profile of another model.
    """
    items = [item for item in _records(document, "items", name, "profile") if _is_operator(item)]
    written = _places(program, lambda op: op.output_arg_names)
    seconds: dict[Place, float] = {}
    matched = 0
    for item in items:
        place = _place_of(program, written, item)
        if place is not None:
            seconds[place] = seconds.get(place, 0.0) + _number(item.get("seconds"))
            matched += 1
    if not seconds:
        raise UsageError(
            f"{name} has no operator of this model; profile the same model with 'fluidtool profile MODEL --json'"
        )
    return Figures(by_time(seconds, _joined(program, seconds)), len(items) - matched)


def _is_operator(item: Document) -> bool:
    """Whether an item computes something: what takes the time between regions and Python does not."""
    return bool(_output(item)) or item.get("operator") is not None


def _output(item: Document) -> str:
    return str(item.get("output") or item.get("result") or "")


def _place_of(program: Program, written: Places, item: Document) -> Place | None:
    """The operator of an item: by its position if it has the output there, else by the output, and its type if that helps."""
    block, operator, output = item.get("block"), item.get("operator"), _output(item)
    if isinstance(block, int) and isinstance(operator, int):
        op = _operator(program, block, operator)
        if op is not None and (not output or output in op.output_arg_names):
            return Place(block, operator)
    return _writer(program, written, output, str(item.get("name")))


def _writer(program: Program, written: Places, name: str, op_type: str = "") -> Place | None:
    """The last operator that writes a name, one of this type if there is one."""
    found = written.get(name, [])
    alike = [place for place in found if program.block(place.block).ops[place.operator].type == op_type]
    return (alike or found)[-1] if found else None


def _places(program: Program, names: Callable[[Operator], Iterable[str]]) -> Places:
    """For each name the operators that have it."""
    found: dict[str, list[Place]] = {}
    for block in program.blocks:
        for position, op in enumerate(block.ops):
            for name in dict.fromkeys(names(op)):
                found.setdefault(name, []).append(Place(block.idx, position))
    return found


def _joined(program: Program, seconds: Mapping[Place, float]) -> dict[Place, Place]:
    """Operators without a time of their own, with the operator that they were computed with: the next one that reads them."""
    joined: dict[Place, Place] = {}
    for index in sorted({place.block for place in seconds}):
        block = program.block(index)
        flow = block_flow(block)
        for position in reversed(range(len(block.ops))):
            place = Place(index, position)
            if place not in seconds and block.ops[position].type not in ("feed", "fetch"):
                readers = [Place(index, reader) for reader in _readers(flow, position)]
                near = [joined.get(each, each) for each in readers if each in seconds or each in joined]
                if near:
                    joined[place] = near[0]
    return joined


def _readers(flow: BlockFlow, position: int) -> list[int]:
    return sorted({reader for name in flow.writes[position] for reader in flow.consumers(position, name)})


# ---------------------------------------------------------------- differences
def difference_figures(program: Program, document: Document, name: str) -> Figures:
    """How operators differ, from a document of `diff`, or by how much their outputs do, from one of `compare`.

    Raises UsageError for other documents, and where the differing programs are both others than this one.
    """
    if "values" in document:
        return _errors(program, _records(document, "values", name, "compare"), name)
    blocks = _records(document, "blocks", name, "diff or compare")
    side = next((side for side in SIDES if _is_side(program, blocks, side)), None)
    if side is None:
        raise UsageError(f"{name} compares other models; give the difference between this model and another")
    changes = dict(_changes(program, blocks, side))
    parameters = document.get("parameters") or ()
    read = _places(program, lambda op: op.input_arg_names) if parameters else {}
    for parameter in parameters:
        for place in read.get(str(parameter.get("name", "")), ()):
            changes.setdefault(place, ("changed", _parameter_text(parameter)))
    return Figures(by_change(changes), 0)


def _is_side(program: Program, blocks: Sequence[Document], side: str) -> bool:
    """Whether every operator that this side has is where it says."""
    return all(
        (op := _operator(program, block[side], each[side])) is not None and op.type == each.get("type")
        for block in blocks
        if block.get(side) is not None
        for each in block.get("operators", ())
        if each.get(side) is not None
    )


def _changes(program: Program, blocks: Sequence[Document], side: str) -> Iterator[tuple[Place, tuple[str, str]]]:
    other = SIDES[side == "left"]
    for block in blocks:
        if block.get(side) is None:
            continue
        if block.get(other) is None:
            yield from (
                (Place(block[side], at), ("only", "only here")) for at in range(len(program.block(block[side]).ops))
            )
        for each in block.get("operators", ()):
            if each.get(side) is not None:
                fields = ", ".join(str(change.get("field", "")) for change in each.get("changes", ()))
                found = ("only", "only here") if each.get(other) is None else ("changed", fields or "changed")
                yield Place(block[side], each[side]), found


def _parameter_text(parameter: Document) -> str:
    largest = parameter.get("largest_difference", parameter.get("largest"))
    return (
        f"{parameter.get('name')}: {_number(largest):.2g}"
        if largest is not None
        else f"{parameter.get('name')} differs"
    )


def _errors(program: Program, records: Sequence[Document], name: str) -> Figures:
    written = _places(program, lambda op: op.output_arg_names)
    errors: dict[Place, float] = {}
    unmatched = 0
    for record in records:
        if record.get("rewritten") or record.get("block", 0) is None:  # it means something else in B; it is an input
            continue
        place = _compared(program, written, record)
        if place is None:
            unmatched += 1
            continue
        error = next((_number(record[key]) for key in ERRORS if record.get(key) is not None), 0.0)
        error = inf if record.get("fault") else abs(error)
        errors[place] = max(errors.get(place, 0.0), error, key=lambda each: inf if each != each else each)
    if not errors:
        raise UsageError(
            f"{name} has no value that this model computes; compare this model with 'fluidtool compare MODEL OTHER --json'"
        )
    return Figures(by_error(errors), unmatched)


def _compared(program: Program, written: Places, record: Document) -> Place | None:
    """The operator that computes a value, by its name in either model."""
    names = [str(record[key]) for key in ("name", "partner") if record.get(key)]
    block, operator = record.get("block"), record.get("operator")
    if isinstance(block, int) and isinstance(operator, int):
        op = _operator(program, block, operator)
        if op is not None and set(names) & set(op.output_arg_names):
            return Place(block, operator)
    return next((place for name in names if (place := _writer(program, written, name))), None)


# ---------------------------------------------------------------- documents
def _records(document: Document, key: str, name: str, commands: str) -> list[Document]:
    found = document.get(key)
    if not isinstance(found, (list, tuple)) or not all(isinstance(each, Mapping) for each in found):
        raise UsageError(f"{name} is not a document of {commands}: it has no list '{key}'; write one with --json")
    return list(found)


def _operator(program: Program, block: Any, position: Any) -> Operator | None:
    """The operator at a place, None where there is none."""
    if not isinstance(block, int) or not isinstance(position, int) or not 0 <= block < program.num_blocks:
        return None
    ops = program.block(block).ops
    return ops[position] if 0 <= position < len(ops) else None


def _number(value: Any) -> float:
    if isinstance(value, str):
        return NOT_FINITE.get(value, nan)
    return float(value) if isinstance(value, (int, float)) else 0.0
