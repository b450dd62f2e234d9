"""`fluidtool ops`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fluidtool.cli.failures import say, say_error
from fluidtool.cli.opening import open_model
from fluidtool.cli.options import Json, ModelFile
from fluidtool.cli.render import Table, fields, show, show_json, table
from fluidtool.errors import EXIT_UNSUPPORTED, UnsupportedOperatorError, UsageError

if TYPE_CHECKING:
    from fluidtool.ops.registry import OpInfo
    from fluidtool.ops.schema import AttrSpec, Slot


def ops(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="An operator, or a pattern such as 'sequence_*'.")
    ] = None,
    coverage: Annotated[
        str | None,
        typer.Option("--coverage", metavar="MODEL", help="Which operators of this model are implemented."),
    ] = None,
    model_file: ModelFile = None,
    json: Json = False,
) -> None:
    """Show which operators are implemented, and how one is declared.

    A slot marked * takes several variables, ? may be absent, ~ is an intermediate result that only the gradient reads.
    With --coverage the exit code is 4 if the model has operators that are not implemented.
    """
    if name and coverage:
        raise UsageError("give either an operator or --coverage MODEL, not both")
    if coverage:
        _coverage(coverage, model_file, json)
    elif name and not set(name) & set("*?["):
        _one(name, json)
    else:
        _list(name or "*", json)


def _list(pattern: str, json: bool) -> None:
    from fluidtool.ops.index import EXCLUDED, MODULES
    from fluidtool.ops.registry import find_op

    types = [op_type for op_type in sorted(MODULES) if fnmatchcase(op_type, pattern)]
    excluded = {op_type: reason for op_type, reason in sorted(EXCLUDED.items()) if fnmatchcase(op_type, pattern)}
    if not types and not excluded:
        raise UnsupportedOperatorError(f"no operator matches {pattern!r}; 'fluidtool ops' lists what is implemented")
    infos = [info for info in map(find_op, types) if info is not None]
    if json:
        operators = [describe(info) for info in infos]
        show_json({"counts": counts(infos, excluded), "operators": operators, "not_supported": excluded})
        return
    out = table("", "!operator", "inputs", "outputs", "!gradient", "LoD")
    for info in infos:
        out.add(
            info.type,
            slots_text(info.inputs),
            slots_text(info.outputs),
            "yes" if gradient_text(info) else "",
            lod_text(info),
        )
    refused = table("Not supported", "!operator", "reason")
    for op_type, reason in excluded.items():
        refused.add(op_type, reason)
    show(out, refused)
    say(f"{len(infos)} operators" + (f", {len(excluded)} not supported" if excluded else ""))


def counts(infos: Iterable[OpInfo], excluded: Iterable[str]) -> dict[str, int]:
    """How many of Paddle 1.8.5's forward operators are implemented, have a gradient, are excluded; and what is beside."""
    from fluidtool.ops.paddle_185 import REGISTERED

    known = {info.type: info for info in infos}
    forward = [known[op_type] for op_type in REGISTERED & known.keys()]
    gradients = [op_type for op_type in known.keys() - REGISTERED if op_type.endswith(("_grad", "_grad_grad"))]
    return {
        "paddle_1_8_5_total": len(REGISTERED),
        "paddle_1_8_5_implemented": len(forward),
        "paddle_1_8_5_with_gradient": sum(bool(gradient_text(info)) for info in forward),
        "paddle_1_8_5_excluded": len(REGISTERED & set(excluded)),
        "gradient_operators": len(gradients),
        "later_operators": len(known) - len(forward) - len(gradients),
    }


def _one(name: str, json: bool) -> None:
    from fluidtool.ops.registry import get_op

    info = get_op(name)
    if json:
        show_json(describe(info))
        return
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
    for mark, text in (("random", info.random), ("side effects", info.side_effects)):
        if text:
            about.add(mark, "yes")
    show(about, _slots("Inputs", info.inputs), _slots("Outputs", info.outputs), _attributes(info.attrs))


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


def _coverage(path: str, model_file: str | None, json: bool) -> None:
    model = open_model(path, model_file, need_parameters=False, validate=False)
    counts = Counter(op.type for block in model.program.blocks for op in block.ops if op.type not in ("feed", "fetch"))
    rows = [(op_type, counts[op_type], why_not(op_type)) for op_type in sorted(counts)]
    missing = [row for row in rows if row[2]]
    if json:
        entries = [{"operator": op_type, "count": count, "reason": reason} for op_type, count, reason in rows]
        show_json({"program": model.files.program_source, "supported": not missing, "operators": entries})
    else:
        out = table("", "operator", ">count", "!supported", *(["reason"] if missing else []))
        for op_type, count, reason in rows:
            out.add(op_type, count, "no" if reason else "yes", *([reason] if missing else []))
        show(out)
    if missing:
        say_error(f"{len(missing)} of {len(rows)} operators are not supported: {', '.join(row[0] for row in missing)}")
        raise typer.Exit(EXIT_UNSUPPORTED)
    say(f"all {len(rows)} operators are supported")


def why_not(op_type: str) -> str:
    """Why an operator does not run; '' if it does."""
    from fluidtool.ops.index import EXCLUDED, MODULES

    return EXCLUDED.get(op_type, "" if op_type in MODULES else "unknown")


# ---------------------------------------------------------------- parts
def describe(info: OpInfo) -> dict[str, Any]:
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
        "lod": [{"from": source, "to": target} for source, target in info.share_lod],
        "random": info.random,
        "side_effects": info.side_effects,
    }


def _slot(slot: Slot) -> dict[str, Any]:
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
