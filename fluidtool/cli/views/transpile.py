"""What `transpile` shows: decisions of passes, figures of two programs, comparisons of their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fluidtool.cli.failures import say, say_error
from fluidtool.cli.render import Table, counted, differ, number, show, show_json, table
from fluidtool.cli.views.comparison import compared
from fluidtool.cli.views.figures import figures_data, figures_table
from fluidtool.passes.catalogue import INFERENCE_PASSES, InferencePass
from fluidtool.passes.pipeline import Stage
from fluidtool.tensor.compare import Comparison
from fluidtool.workflows.transpile import TranspileResult

if TYPE_CHECKING:
    from fluidtool.report import transpile as report

NAMES_SHOWN = 3


def show_result(result: TranspileResult, output: Path | None, *, verified: bool, explain: bool, json: bool) -> None:
    """Tables or JSON, then what came of it."""
    if json:
        show_json(document(result, verified=verified))
    else:
        show(*result_tables(result, verified=verified, explain=explain))
    if result.differing:
        names = ", ".join(item.name for item in result.differing[:5])
        allow = f"; if only rounding differs by more than {result.tolerance:g}, allow it with --rtol"
        say_error(
            f"{differ(len(result.differing), len(result.comparisons), 'value')} ({names}); nothing was written"
            f"{'' if result.exact else allow}"
        )
        return
    if verified:
        largest = max((item.largest_error for item in result.comparisons), default=0.0)
        within = f"within {result.tolerance:g}; largest difference {number(largest, 3)}"
        say(f"both programs compute the same ({within if result.tolerance else 'bit by bit'})")
    if not any(stage.result.changed for stage in result.stages):
        say("no pass changed anything")
    if result.picture is not None:
        say(f"drawing saved to {result.picture}")
    if result.files:
        say(f"{counted(len(result.files), 'file')} saved to {output}")
    else:
        say(f"{'no program' if result.picture else 'nothing'} was written; -o OUT saves the result")


def document(result: TranspileResult, *, verified: bool) -> report.PassesReport:
    """The data of `--json`."""
    data: report.PassesReport = {
        "schema": "fluidtool.transpile/1",
        "view": "passes",
        "files": [str(path) for path in result.files],
        "passes": [_pass(stage) for stage in result.stages],
        "before": figures_data(result.before),
        "after": figures_data(result.after),
    }
    if verified:
        data["comparison"] = {
            "agrees": not result.differing,
            "rtol": result.tolerance,
            "outputs": [compared(item) for item in result.comparisons],
        }
    return data


def result_tables(result: TranspileResult, *, verified: bool, explain: bool) -> Iterator[Table]:
    """What the passes did, the figures of both programs, and how their values compare."""
    for stage in result.stages if explain else ():
        yield decisions_table(stage)
        if stage.left_out:
            yield left_out_table(stage)
    yield passes_table(result.stages)
    yield figures_table(result.before, result.after)
    if verified:
        yield comparisons_table(result.comparisons, result.kept)


def _pass(stage: Stage) -> report.Pass:
    return {
        "name": stage.name,
        "operators_before": stage.before,
        "operators_after": stage.after,
        "decisions": [
            {
                "rule": each.rule,
                "block": each.block,
                "type": each.operator,
                "variable": each.variable,
                "done": each.done,
                "reason": each.reason,
            }
            for each in stage.result.decisions
        ],
        "left_out": [
            {"name": known.name, "reason": known.not_saved, "option": how_to_ask(known)} for known in stage.left_out
        ],
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
    out = table(f"{stage.name}: left out", "!request with", "reason")
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


def comparisons_table(comparisons: Sequence[Comparison], outputs: Collection[str]) -> Table:
    """The largest difference of every output; persistable variables are one row, except those that differ."""
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
        out.add(f"{len(rest)} persistable variables that a run changes", elements, 0, number(largest, 3))
    return out


def show_passes() -> None:
    """Every inference rewrite: its name, whether it keeps every bit and whether every Paddle runs its result, what it does."""
    out = table("", "!pass", "!exact", "!for Paddle", "what it does")
    for known in INFERENCE_PASSES:
        out.add(known.name, "yes" if known.exact else "", "" if known.saved else "not on CPU", known.summary)
    show(out)
