"""What `compare` shows: the outputs, where the two part, what differs most, and what has no partner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fluidtool.cli.failures import say, say_error
from fluidtool.cli.render import Table, counted, differ, fields, number, show, show_json, table
from fluidtool.debugging.comparing import Compared
from fluidtool.debugging.places import Place
from fluidtool.tensor.compare import Comparison
from fluidtool.workflows.compare import CompareResult, Difference, SavedPart

if TYPE_CHECKING:
    from fluidtool.report import compare as report

LONGEST = 200


def show_compared(result: CompareResult, top: int, json: bool) -> None:
    """Tables with at most `top` rows each, or the document; the verdict on stderr."""
    if json:
        show_json(document(result))
    else:
        show(*_tables(result, top))
    for note in result.notes:
        say(f"note: {_short(note)}")
    _say_verdict(result)
    if result.part is not None:
        say(
            f"the difference of {_short(result.part.name)} shows in {result.part.operators} of "
            f"{counted(result.part.of, 'operator')}; saved, and shown again by: {result.part.command}"
        )


def _say_verdict(result: CompareResult) -> None:
    values, allowed = result.pairs.values, result.allowed
    margin = f"rtol {allowed.rtol:g}, atol " + ("rtol x the largest" if allowed.atol is None else f"{allowed.atol:g}")
    sides = f"A ({result.left}) and B ({result.right}), {margin}"
    if result.first is None:
        worst = max((each.relative for each in values if each.comparison.agrees), default=0.0)
        agree = "agrees" if len(values) == 1 else "agree"
        say(f"{counted(len(values), 'value')} {agree} between {sides}; largest relative difference {number(worst, 3)}")
        return
    outputs = sum(each.differs for each in result.pairs.outputs)
    say_error(
        f"{differ(len(result.differing), len(values), 'value')} between {sides}, "
        f"{outputs} of {counted(len(result.pairs.outputs), 'output')}; the first difference is "
        f"{_short(result.first.value.name)}{_by(result.first.value.place)}"
    )


def _by(place: Place | None) -> str:
    return "" if place is None else f", computed by operator {place.operator} ({place.op.type}) of block {place.block}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"


# ---------------------------------------------------------------- tables
def _tables(result: CompareResult, top: int) -> Iterator[Table]:
    yield _values("Outputs", result.pairs.outputs)
    if result.first is not None:
        yield from _first(result.first)
        worst = sorted(result.differing, key=lambda each: -each.relative)
        yield _values(
            f"Worst of {counted(len(worst), 'value')} that differ{'s' if len(worst) == 1 else ''}", worst[:top]
        )
    if result.not_finite is not None:
        yield _values("First NaN or infinity", [result.not_finite])
    missing = result.pairs.unpaired
    out = table(
        f"Not in B: {len(missing)} of {counted(len(missing) + len(result.pairs.values), 'value')}",
        ">#",
        "operator",
        "value",
        "reason",
    )
    for each in missing[:top]:
        out.add(each.place.operator, each.place.op.type, _short(each.name), _short(each.reason))
    if len(missing) > top:
        out.add("", "…", f"{len(missing) - top} more", "")
    yield out


def _values(title: str, values: Sequence[Compared]) -> Table:
    out = table(
        title,
        ">#",
        "operator",
        "value",
        ">differing",
        ">largest",
        ">relative",
        ">0NaN A",
        ">0NaN B",
        ">0Inf A",
        ">0Inf B",
        "",
    )
    for each in values:
        found = each.comparison
        name = each.name if each.partner == each.name else f"{each.name} ({each.partner} in B)"
        place = ("", "input") if each.place is None else (_position(each.place), each.place.op.type)
        counts = (each.left.nan, each.right.nan, each.left.inf, each.right.inf)
        numbers = (
            ("", "", "")
            if found.fault
            else (f"{found.differing} of {found.elements}", number(found.largest_error, 3), number(each.relative, 3))
        )
        out.add(*place, _short(name), *numbers, *counts, found.fault or ("equal" if found.agrees else ""))
    return out


def _position(place: Place) -> str:
    return f"{place.block}:{place.operator}" if place.block else str(place.operator)


def _first(found: Difference) -> Iterator[Table]:
    value = found.value
    operators = ", ".join(f"{_position(each)} {each.op.type}" for each in found.operators)
    made = value.place.written_in if value.place is not None else ""
    inputs = [f"{_short(name)} ({kind})" for name, kind in found.inputs.items() if kind != "parameter"]
    parameters = [f"{_short(each.name)}: {_parameter(each)}" for each in found.parameters]
    rows = [
        ("value", _short(value.name)),
        ("operators", operators),
        *([("made at", made)] if made else []),
        ("reads", "\n".join(inputs) or "nothing"),
        *((each.field, _short(f"{each.left} in A, {each.right} in B")) for each in found.attributes),
        *([("parameters that differ", "\n".join(parameters))] if parameters else []),
        *(
            ("element", f"{list(each.index)}: {number(each.expected, 6)} in A, {number(each.found, 6)} in B")
            for each in value.comparison.worst
        ),
    ]
    yield fields("First difference", rows)


def _parameter(found: Comparison) -> str:
    return found.fault or f"{found.differing} of {found.elements} elements, by at most {number(found.largest_error, 3)}"


# ---------------------------------------------------------------- the document
def document(result: CompareResult) -> report.CompareReport:
    """The data of `--json`."""
    pairs = result.pairs
    return {
        "schema": "fluidtool.compare/1",
        "equal": result.equal,
        "left": result.left,
        "right": result.right,
        "rtol": result.allowed.rtol,
        "atol": result.allowed.atol,
        "outputs": [each.name for each in pairs.outputs],
        "values": [_value(each) for each in pairs.values],
        "not_in_right": [{"name": each.name, **_place(each.place), "reason": each.reason} for each in pairs.unpaired],
        "not_in_left": list(pairs.extra),
        "first_difference": None if result.first is None else _difference(result.first),
        "first_not_finite": None if result.not_finite is None else result.not_finite.name,
        "notes": list(result.notes),
        "part": None if result.part is None else _part(result.part),
    }


def _place(place: Place) -> report.Place:
    return {"block": place.block, "operator": place.operator, "type": place.op.type}


def _value(each: Compared) -> report.ComparedValue:
    found, place = each.comparison, each.place
    return {
        "name": each.name,
        "partner": each.partner,
        "block": None if place is None else place.block,
        "operator": None if place is None else place.operator,
        "type": None if place is None else place.op.type,
        "written_in": (place.written_in or None) if place is not None else None,
        "agrees": found.agrees,
        "rewritten": each.rewritten,
        "fault": found.fault,
        "elements": found.elements,
        "differing": found.differing,
        "largest_difference": found.largest_error,
        "relative_difference": each.relative,
        "left": {"nan": each.left.nan, "inf": each.left.inf},
        "right": {"nan": each.right.nan, "inf": each.right.inf},
        "worst": [
            {"index": worst.index, "left": worst.expected, "right": worst.found, "difference": worst.error}
            for worst in found.worst
        ],
    }


def _difference(found: Difference) -> report.FirstDifference:
    return {
        "name": found.value.name,
        "operators": [_place(each) for each in found.operators],
        "inputs": dict(found.inputs),
        "parameters": [
            {
                "name": each.name,
                "fault": each.fault,
                "elements": each.elements,
                "differing": each.differing,
                "largest_difference": each.largest_error,
            }
            for each in found.parameters
        ],
        "attributes": [{"field": each.field, "left": each.left, "right": each.right} for each in found.attributes],
    }


def _part(part: SavedPart) -> report.Part:
    return {
        "name": part.name,
        "operators": part.operators,
        "of": part.of,
        "feeds": list(part.feeds),
        "largest_difference": part.comparison.largest_error,
        "files": [str(path) for path in part.files],
        "command": part.command,
    }
