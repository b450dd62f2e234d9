"""The parts of docs/scaling.md that have figures, made of benchmarks/scaling.json: `python -m benchmarks.scaling --page`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.scaling_points import compared, counted, faults, message_seconds, table

FILE = Path(__file__).with_name("scaling.json")
PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"


def _mega(number: float) -> str:
    return f"{number / 1e6:,.0f}"


def measured_table(figures: dict[str, Any]) -> str:
    """What one machine measured."""
    found, message = figures["measured"], 1e6 * message_seconds(figures["simulated"])
    rows = [
        ("machine", f"{found['machine']}; load {found['load']} meanwhile, so each figure is the best of several runs"),
        (
            "a server receives, sends",
            f"{_mega(found['push_bytes_per_second'])}, {_mega(found['pull_bytes_per_second'])} MB/s",
        ),
        (
            "a message",
            f"{message:.1f} µs of a server's processor time; a round trip {1e3 * found['round_trip_seconds']:.2g} ms",
        ),
        (
            "all-reduce of 10 MiB between two ranks",
            f"{1e3 * found['grpc_large_seconds']:.0f} ms by gRPC, {1e3 * found['mpi_large_seconds']:.0f} ms by MPI "
            "(`benchmarks/collectives.py`)",
        ),
        (
            "Adam",
            f"{_mega(found['update_bytes_per_second'])} MB of parameters per second; numpy adds "
            f"{found['add_bytes_per_second'] / 1e9:.0f} GB/s",
        ),
        (
            "a click predictor, 512 examples",
            f"{1e3 * found['click_step_seconds']:.0f} ms per step: 26 ids in one table of rows of 16 numbers, three layers of "
            f"400; {found['click_row_bytes'] / 1e6:.1f} MB of rows and {found['click_dense_bytes'] / 1e6:.1f} MB of dense "
            "gradients",
        ),
    ]
    return "\n".join(
        [f"| measured on {found['date']} | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows)]
    )


def points_text(figures: dict[str, Any]) -> str:
    """Points as predicted and as measured, and how many of them are right."""
    found = figures["simulated"]
    count, rounds = counted(found), len(found["rounds"])
    clock = sum(each is not None for _, each in compared(found).values())
    said = (
        f"On {found['date']}, on {found['machine']}, {found['software']}; rounds measured: {rounds}, of which each figure is the "
        f"median.\nNothing else ran in at least one round of {clock} of {len(compared(found))} jobs; the times of the others by "
        f"the clock do not count.\n{count - len(faults(found))} of {count} figures that count are within 15 %."
    )
    return f"{said}\n\n{table(found)}"


def messages_text(figures: dict[str, Any]) -> str:
    """What a message costs a server, by the number of trainers."""
    loads = {
        (point.mode, point.trainers): servers.real / point.messages
        for point, (servers, _) in compared(figures["simulated"]).items()
        if point.variables == 6
    }
    lines = [
        "| trainers | synchronous, a message | of 8 trainers | asynchronous, a message | of 8 trainers |",
        "|---|---|---|---|---|",
    ]
    for trainers in sorted({trainers for _, trainers in loads}):
        cells = [f"{trainers:,}"]
        for mode in ("sync", "async"):
            mine, first = loads[mode, trainers], loads[mode, 8]
            cells += [f"{1e6 * mine:.1f} µs", f"{mine / first:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def filled(page: str, said: str) -> str:
    """The page with these tables."""
    figures = json.loads(FILE.read_text())
    for name, text in {"measured": measured_table, "points": points_text, "messages": messages_text}.items():
        page = between(page, f"<!-- {name} -->\n", f"\n<!-- end of {name} -->", f"\n{text(figures)}\n")
    return between(page, "\n$ python -m benchmarks.scaling\n", "```\n", said)


def between(page: str, begin: str, end: str, text: str) -> str:
    """The page with a text between two others, the second one the next after the first; raises ValueError without them."""
    start = page.index(begin) + len(begin)
    return page[:start] + text + page[page.index(end, start) :]


def write(said: str) -> None:
    """Write the tables into the page."""
    PAGE.write_text(filled(PAGE.read_text(), said))
