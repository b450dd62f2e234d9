"""What `ops` shows: operators in a table, the declaration of one, and what a model needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fluidtool.cli.render import Table, fields, table
from fluidtool.ops.registry import OpInfo
from fluidtool.ops.schema import AttrSpec, Slot
from fluidtool.workflows.operators import Support, counts

if TYPE_CHECKING:
    from fluidtool.report import ops as report


# ---------------------------------------------------------------- several operators
def implemented_table(infos: Iterable[OpInfo]) -> Table:
    """A row for each operator: slots, gradient, LoD."""
    out = table("", "!operator", "inputs", "outputs", "!gradient", "LoD")
    for info in infos:
        out.add(
            info.type,
            slots_text(info.inputs),
            slots_text(info.outputs),
            "yes" if gradient_text(info) else "",
            lod_text(info),
        )
    return out


def not_supported_table(excluded: Mapping[str, str]) -> Table:
    """The operators that fluidtool does not run, each with its reason."""
    out = table("Not supported", "!operator", "reason")
    for op_type, reason in excluded.items():
        out.add(op_type, reason)
    return out


def coverage_table(found: Sequence[Support]) -> Table:
    """The operators of a model: how many of each type, and whether they are supported."""
    reasons = any(each.reason for each in found)
    out = table("", "operator", ">count", "!supported", *(["reason"] if reasons else []))
    for each in found:
        out.add(each.type, each.count, "no" if each.reason else "yes", *([each.reason] if reasons else []))
    return out


# ---------------------------------------------------------------- one operator
def declaration_tables(info: OpInfo) -> tuple[Table, ...]:
    """What an operator is, its slots and its attributes."""
    doc = (info.kernel.__doc__ or "").strip()
    about = fields(
        "",
        [
            ("operator", info.type),
            ("meaning", " ".join(doc.split())),
            ("kernel", info.module.removeprefix("fluidtool.")),
        ],
    )
    about.add("gradient", gradient_text(info) or "none")
    about.add("LoD", lod_text(info) or "not passed on by rule")
    about.add("inference", "shapes and data types" if info.infer_by_kernel else "none")
    for mark, given in (("random", info.random), ("side effects", info.side_effects)):
        if given:
            about.add(mark, "yes")
    return about, _slots("Inputs", info.inputs), _slots("Outputs", info.outputs), _attributes(info.attrs)


def _slots(title: str, slots: Iterable[Slot]) -> Table:
    out = table(title, "!slot", "takes")
    for slot in slots:
        marks = [
            *(["several variables"] if slot.duplicable else ["one variable"]),
            *(["may be absent"] if slot.dispensable else []),
            *(["read by the gradient only"] if slot.intermediate else []),
        ]
        out.add(slot.name, ", ".join(marks))
    return out


def _attributes(attrs: dict[str, AttrSpec]) -> Table:
    out = table("Attributes", "attribute", "!type", "default")
    for name, spec in attrs.items():
        out.add(name, spec.type.name, "(required)" if spec.required else repr(_short(spec.default)))
    return out


def _short(value: Any) -> Any:
    """A default as people write it: 0.2, not 0.20000000298023224."""
    if isinstance(value, list):
        return [_short(item) for item in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


# ---------------------------------------------------------------- JSON
def operators_document(infos: Sequence[OpInfo], excluded: Mapping[str, str]) -> report.OperatorsReport:
    """The data of `ops PATTERN --json`."""
    return {
        "schema": "fluidtool.ops/1",
        "view": "operators",
        "counts": counts(infos, excluded),
        "operators": [describe(info) for info in infos],
        "not_supported": excluded,
    }


def operator_document(info: OpInfo) -> report.OperatorReport:
    """The data of `ops NAME --json`."""
    return {"schema": "fluidtool.ops/1", "view": "operator", "operator": describe(info)}


def coverage_document(program: str, found: Sequence[Support]) -> report.CoverageReport:
    """The data of `ops --coverage MODEL --json`."""
    return {
        "schema": "fluidtool.ops/1",
        "view": "coverage",
        "program": program,
        "supported": not any(each.reason for each in found),
        "types": [{"type": each.type, "count": each.count, "reason": each.reason or None} for each in found],
    }


# ---------------------------------------------------------------- parts
def describe(info: OpInfo) -> report.Declaration:
    """An operator's declaration, for JSON."""
    return {
        "type": info.type,
        "module": info.module,
        "inputs": [_slot(slot) for slot in info.inputs],
        "outputs": [_slot(slot) for slot in info.outputs],
        "attributes": {
            name: {"type": spec.type.name, "default": spec.default, "required": spec.required}
            for name, spec in info.attrs.items()
        },
        "gradient": gradient_text(info) or None,
        "lod": [{"input": source, "output": target} for source, target in info.share_lod],
        "random": info.random,
        "side_effects": info.side_effects,
    }


def _slot(slot: Slot) -> report.Slot:
    return {
        "name": slot.name,
        "several": slot.duplicable,
        "may_be_absent": slot.dispensable,
        "intermediate": slot.intermediate,
    }


def slots_text(slots: Iterable[Slot]) -> str:
    """'X Y? Ids*'."""
    return " ".join(
        slot.name + "*" * slot.duplicable + "?" * slot.dispensable + "~" * slot.intermediate for slot in slots
    )


def gradient_text(info: OpInfo) -> str:
    """The gradient operator, 'built' where a function builds several, or ''."""
    return info.gradient.type if info.gradient else "built" if info.maker else ""


def lod_text(info: OpInfo) -> str:
    """'X->Out'."""
    return " ".join(f"{source}->{target}" for source, target in info.share_lod)
