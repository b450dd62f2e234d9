"""The tables of a measurement, from what is kept of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.goals import GOALS
from benchmarks.inference_networks import NETWORKS
from fluidtool.cli.render import Table, number, size, table

Found = Mapping[str, Any]


def tables(found: Found) -> Iterator[Table]:
    """Every table that a measurement has parts for."""
    for case in (*found.get("latency", ()), *found.get("throughput", ())):
        yield latency_table(case)
    if "cold" in found:
        yield cold_table(found["cold"])
    yield from map(starts_table, found.get("starts", ()))
    if "limits" in found:
        yield limits_table(found["limits"])
    if "full" in found:
        yield full_table(found["full"])
    if "training" in found:
        yield training_table(found["training"])
    if "growth" in found:
        yield from map(growth_table, found["growth"])
        yield cliff_table(found["growth"])


def latency_table(case: Found) -> Table:
    title = f"{NETWORKS[case['network']].title}, batch {case['batch']}"
    if (count := case.get("executors", 1)) > 1:
        title += f", {count} executors at once with a thread each: time of all runs by their number"
    out = table(title, ">ratio", "engine", ">ms", ">least", ">others", ">error", ">MB", ">most MB", ">arena")
    for name, row in sorted(case["engines"].items(), key=lambda pair: (pair[1]["precision"], pair[1]["milliseconds"])):
        out.add(
            "-" if row["ratio"] is None else f"{row['ratio']:.2f}",
            name,
            number(row["milliseconds"]),
            number(row["least"]),
            f"{row['foreign'] * 100:.0f} %",
            number(row["error"], 2),
            f"{row['resident_mb']:.0f}",
            f"{row['resident_most_mb']:.0f}",
            "-" if row["arena_bytes"] is None else size(row["arena_bytes"]),
        )
    for name, why in case["absent"].items():
        out.add("-", f"{name}: {why}", *["-"] * 7)
    return out


def cold_table(rows: list[Found]) -> Table:
    names = list(dict.fromkeys(name for each in rows for name in each["engines"]))
    out = table("Cold process, batch 1: seconds (most MB)", "network", *(f">{name}" for name in names))
    for each in rows:
        found = [each["engines"].get(name) for name in names]
        out.add(
            NETWORKS[each["network"]].title,
            *("-" if row is None else f"{row['seconds']:.2f} ({row['resident_most_mb']:.0f})" for row in found),
        )
    return out


def starts_table(found: Found) -> Table:
    out = table("Processor time of a command", ">ratio", "command", ">seconds")
    out.add(f"{found['ratio']:.2f}", "fluidtool run samples/digits", f"{found['run_seconds']:.3f}")
    out.add("1.00", 'python -c "import numpy"', f"{found['numpy_seconds']:.3f}")
    return out


def limits_table(rows: list[Found]) -> Table:
    """Kernel calls beside the measured peak and bandwidth: what they reach, and the part of the run that they take."""
    columns = ("precision", ">ms", ">at the limit", ">reached", ">products", ">of the time", ">moves", ">of the time")
    out = table("How much of the processor's limits is reached", "network", *columns)
    for each in rows:
        kinds, watched = each["kinds"].values(), each["watched"]
        at_limit = sum(kind["at_limit"] for kind in kinds)
        out.add(
            f"{NETWORKS[each['network']].title}, batch {each['batch']}",
            each["precision"],
            number(each["milliseconds"]),
            number(at_limit),
            _percent(at_limit, each["milliseconds"]),
            *(
                _percent(part, whole)
                for kind in kinds
                for part, whole in ((kind["at_limit"], kind["milliseconds"]), (kind["milliseconds"], watched))
            ),
        )
    return out


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def gpu_tables(rows: list[Found]) -> Iterator[Table]:
    """Inference and training on a GPU, each a table."""
    for part in ("inference", "training"):
        alike = [row for row in rows if row["part"] == part]
        if alike:
            yield gpu_table(part, alike)
    for row in rows:
        if row["part"] == "ceilings":
            limits = row["limits"]
            out = table(f"Limits of {row['device']}", ">TFLOP/s float32", ">TFLOP/s bf16", ">TB/s")
            kinds = ("float32_flops", "bf16_flops", "bytes_per_second")
            out.add(*(number(limits[kind] / 1e12) for kind in kinds))
            yield out


def gpu_table(part: str, rows: list[Found]) -> Table:
    """Milliseconds by way, with the share of what the GPU reaches, and microseconds of the host."""
    listed = [way for row in rows for way in row if way.startswith(("fluidtool,", "torch,", "jax"))]
    ways = list(dict.fromkeys(listed))
    out = table(
        f"On a GPU, {part}: ms (share of its limits)",
        "network",
        ">batch",
        *(f">{way}" for way in ways),
        ">host us",
        "not run",
    )
    for row in rows:
        share = row.get("share", {})
        cells = [
            "-" if way not in row else f"{row[way]:.3g}" + (f" ({share[way]:.0%})" if way in share else "")
            for way in ways
        ]
        missing = "; ".join(f"{way}: {why}" for way, why in row["not_run"].items())
        host = min(row["host_us"].values(), default=None)
        out.add(row["network"], str(row["batch"]), *cells, number(host), missing)
    return out


def goals_table(found: Found) -> Table:
    """Each goal that the measurement says something of."""
    out = table("Goals: ratios", ">found", ">goal", "", "of")
    for goal in GOALS:
        if (ratio := goal.of(found)) is not None:
            wanted = f"<= {goal.at_most:.2f}" if goal.at_most is not None else f">= {goal.at_least:.2f}"
            out.add(f"{ratio:.2f}", wanted, "met" if goal.is_met(ratio) else "missed", goal.what)
    return out


def full_table(rows: list[Found]) -> Table:
    names = list(dict.fromkeys(name for each in rows for name in each["engines"]))
    out = table(
        "Full-size networks beside Paddle: ms", ">ratio", "model", *(f">{name}" for name in names), ">error", ""
    )
    for each in rows:
        times = [each["engines"].get(name, {}).get("milliseconds") for name in names]
        error = each["engines"].get("fluidtool", {}).get("error")
        ratio = "-" if each["ratio"] is None else f"{each['ratio']:.2f}"
        absent = "; ".join(f"{name}: {why}" for name, why in each["absent"].items())
        out.add(ratio, each["model"], *map(number, times), number(error, 2), absent)
    return out


def training_table(rows: list[Found]) -> Table:
    names = list(dict.fromkeys(name for each in rows for name in each["examples_per_second"]))
    heads = (">to Paddle", ">to PyTorch", ">memory", "network", *(f">{name}" for name in names), "")
    out = table("Training: examples/s, our speed to others' (above 1: quicker), our memory to PyTorch's", *heads)
    for each in rows:
        ratios = ["-" if each[key] is None else f"{each[key]:.2f}" for key in ("ratio", "torch_ratio", "memory_ratio")]
        speeds = [each["examples_per_second"].get(name) for name in names]
        absent = "; ".join(f"{name}: {why}" for name, why in each["absent"].items())
        out.add(*ratios, each["network"], *("-" if speed is None else f"{speed:.0f}" for speed in speeds), absent)
    for text in dict.fromkeys(each["differences"] for each in rows if each["differences"]):
        of = ", ".join(each["network"] for each in rows if each["differences"] == text)
        out.add("", "", "", f"{of}: {text}", *[""] * (len(names) + 1))
    return out


def growth_table(curve: Found) -> Table:
    out = table(curve["title"], f">{curve['each']}", ">ms", ">ms for one", "")
    for count, ms in zip(curve["sizes"], curve["milliseconds"], strict=True):
        excess = cliffs_of(curve).get(count)
        out.add(count, number(ms), number(ms / count, 3), f"cliff: {excess:.2f} x what is expected" if excess else "")
    return out


def cliff_table(curves: list[Found]) -> Table:
    """One line a curve: its cliffs, or that there are none."""
    out = table("Cliffs", "curve", ">others", "at")
    for curve in curves:
        named = [f"{count} {curve['each']} ({excess:.2f} x)" for count, excess in cliffs_of(curve).items()]
        out.add(curve["title"], f"{curve['foreign'] * 100:.0f} %", ", ".join(named) or "none")
    return out


def cliffs_of(curve: Found) -> dict[int, float]:
    """By size; JSON makes text of the sizes."""
    return {int(count): excess for count, excess in curve["cliffs"].items()}
