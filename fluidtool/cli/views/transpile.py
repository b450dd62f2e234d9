"""What `transpile` shows: decisions of passes, fields of two programs, comparisons of their outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fluidtool.cli.render import Table, number, show, size, table
from fluidtool.passes.catalogue import INFERENCE_PASSES, InferencePass
from fluidtool.passes.pipeline import Stage
from fluidtool.tensor.compare import Comparison

NAMES_SHOWN = 3
FIELDS = {
    "parameter_bytes": "size of parameters",
    "activation_bytes_kept": "activations, if kept to the end",
    "activation_bytes_live": "activations, if freed after use",
    "seconds": "time of a run",
}


def decisions_table(stage: Stage) -> Table:
    """What was done with each candidate of a pass, or why not; one row for those of which the same was said."""
    several = len({decision.rule for decision in stage.result.decisions}) > 1
    out = table(stage.name, "!", *(["!pass"] if several else []), "!operator", "variable", "reason")
    groups: dict[tuple[str, bool, str, str], list[str]] = {}
    for decision in stage.result.decisions:
        place = f" (block {decision.block})" if decision.block else ""
        key = decision.rule, decision.done, decision.operator, decision.reason
        groups.setdefault(key, []).append(decision.variable + place)
    for (rule, done, operator, reason), names in groups.items():
        shown = ", ".join(names[:NAMES_SHOWN])
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        out.add("done" if done else "left", *([rule] if several else []), operator, shown + more, reason)
        out.styles[len(out.rows) - 1] = "green" if done else "yellow"
    return out


def left_out_table(stage: Stage) -> Table:
    """The rewrites that a name for several does not mean, why, and how to ask for them."""
    out = table(f"{stage.name}: left out", "!ask for it by", "reason")
    for known in stage.left_out:
        out.add(how_to_ask(known), known.not_saved)
    return out


def how_to_ask(known: InferencePass) -> str:
    """The option that asks for a rewrite by name."""
    return f"--fuse {known.name}"


def passes_table(stages: Sequence[Stage]) -> Table:
    """How many candidates each pass rewrote and left, in order."""
    out = table("", "pass", ">done", ">left")
    for stage in stages:
        out.add(stage.name, len(stage.result.done), len(stage.result.left))
        rules = dict.fromkeys(decision.rule for decision in stage.result.decisions)
        for rule in rules if len(rules) > 1 else ():
            counts = Counter(decision.done for decision in stage.result.decisions if decision.rule == rule)
            out.add(f"  {rule}", counts[True], counts[False])
    return out


def fields_table(before: Mapping[str, Any], after: Mapping[str, Any]) -> Table:
    """The fields of both programs."""
    out = table("", "", ">before", ">after")
    for field in before:
        out.add(FIELDS.get(field, field), *(_field(field, side[field]) for side in (before, after)))
    return out


def _field(name: str, value: Any) -> str:
    if "bytes" in name:
        return size(value)
    return f"{number(value * 1000, 3)} ms" if name == "seconds" else str(value)


def comparisons_table(comparisons: Sequence[Comparison], outputs: Collection[str]) -> Table:
    """The largest difference of every output; persistable variables are one row, but for those that differ."""
    out = table("", "value", ">elements", ">differing", ">largest difference")
    for item in comparisons:
        if item.name.partition("[")[0] in outputs or not item.agrees:
            counts = (
                ["", "", item.fault] if item.fault else [item.elements, item.differing, number(item.largest_error, 3)]
            )
            out.add(item.name, *counts)
            out.styles[len(out.rows) - 1] = "" if item.agrees else "red"
    rest = [item for item in comparisons if item.name.partition("[")[0] not in outputs and item.agrees]
    if rest:
        largest = max(item.largest_error for item in rest)
        elements = sum(item.elements for item in rest)
        out.add(f"{len(rest)} persistable variables that it changes", elements, 0, number(largest, 3))
    return out


def show_passes() -> None:
    """Every inference rewrite: its name, whether it keeps every bit and whether every Paddle runs its result, what it does."""
    out = table("", "!pass", "!exact", "!for Paddle", "what it does")
    for known in INFERENCE_PASSES:
        out.add(known.name, "yes" if known.exact else "", "" if known.saved else "not on CPU", known.summary)
    show(out)
