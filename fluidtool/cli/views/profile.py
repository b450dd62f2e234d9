"""What `profile` shows: fields, what each kind took, what takes longest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fluidtool.cli.render import Table, fields, number, show, show_json, size, table
from fluidtool.cli.views.engines import used_text
from fluidtool.cli.views.times import milliseconds, statistics
from fluidtool.profiling import Item, Profile
from fluidtool.shapes import shape_text
from fluidtool.workflows.profile import ProfileResult

if TYPE_CHECKING:
    from fluidtool.report.common import EngineUse
    from fluidtool.report.profile import ProfileReport

BARS = "▁▂▃▄▅▆▇█"
OUTSIDE = "outside operators"
CURVE = 48  # places that the curve of the memory is drawn in


def show_profile(result: ProfileResult, top: int, json: bool) -> None:
    """Everything as JSON, or tables with the `top` items that take longest."""
    if json:
        show_json(data(result.profile, result.engine))
    else:
        show(*tables(result.profile, result.engine, top))


def data(found: Profile, engine: EngineUse) -> ProfileReport:
    """Everything, for programs."""
    return {
        "schema": "fluidtool.profile/1",
        "engine": engine,
        "seconds": statistics(found.plain),
        "seconds_watched": statistics(found.watched),
        "seconds_added": found.seconds,
        "seconds_outside": found.outside,
        "peak": {
            "by": found.peak.by,
            "flops_per_second": found.peak.flops,
            "bandwidth": [{"bytes": touched, "bytes_per_second": speed} for touched, speed in found.peak.bandwidth],
        },
        "items": [
            {
                "item": position,
                "name": item.name,
                "kernel": item.kernel,
                "engine": item.engine,
                "region": item.region,
                "block": item.block,
                "operator": item.operator,
                "output": item.result,
                "shape": item.shape,
                "times": item.times,
                "seconds": item.seconds,
                "share": item.share,
                "multiply_adds": item.work.multiply_adds,
                "bytes": item.work.bytes,
                "flops_per_second": item.flops,
                "bytes_per_second": item.bandwidth,
                "limit": item.limit or None,
                "of_peak": item.reached,
            }
            for position, item in enumerate(found.items)
        ],
        "memory": {
            "peak_bytes": found.most.bytes if found.most else 0,
            "peak_item": found.most.item if found.most else None,
            "curve": [
                {"item": point.item, "seconds": point.seconds, "alive_bytes": point.bytes} for point in found.memory
            ],
        },
    }


def tables(found: Profile, engine: EngineUse, top: int) -> Iterable[Table]:
    """Fields, then what each kind took, then the items."""
    plain, watched = statistics(found.plain), statistics(found.watched)
    spread = ", ".join(
        f"{name} {number(value * 1000)}"
        for name, value in (("min", plain["min"]), ("p90", plain["p90"]), ("std", plain["std"]))
    )
    yield fields(
        "",
        [
            ("engine", used_text(engine)),
            ("a run", f"{milliseconds(plain['median'])} ({spread}; {plain['runs']} runs)"),
            ("watched", f"{milliseconds(watched['median'])} ({watched['runs']} runs)"),
            ("peak", f"{number(found.peak.flops / 1e9)} GFLOP/s, {_memory_speeds(found)} ({found.peak.by})"),
            *_memory(found),
        ],
    )
    yield kinds(found)
    yield slowest(found, top)


def _memory_speeds(found: Profile) -> str:
    fastest = max(speed for _, speed in found.peak.bandwidth)
    return f"{number(found.peak.memory / 1e9, 3)} GB/s (in cache {number(fastest / 1e9, 3)})"


def _memory(found: Profile) -> list[tuple[str, str]]:
    most = found.most
    if most is None:
        return []
    item = found.items[most.item]
    place = " ".join(filter(None, [_place(item, bool(item.block)), item.name]))
    return [("memory", f"at most {size(most.bytes)} alive, at {place}"), ("", curve(found))]


def curve(found: Profile) -> str:
    """The memory over the items, as bars as high as what is alive."""
    values = [point.bytes for point in found.memory]
    width = min(CURVE, len(values))
    peaks = [max(values[len(values) * i // width : len(values) * (i + 1) // width]) for i in range(width)]
    most = max(peaks) or 1
    return "".join(BARS[min(value * len(BARS) // most, len(BARS) - 1)] for value in peaks)


def kinds(found: Profile) -> Table:
    """Operators by type, kernel calls by kernel; with what is outside them they add up to the last line."""
    out = table("By kind", "kind", "engine", ">times", ">ms", ">share", ">GFLOP/s", ">GB/s")
    groups: dict[tuple[str, str], list[Item]] = {}
    for item in found.items:
        groups.setdefault((item.kernel or item.name, item.engine), []).append(item)
    for (kind, engine), group in sorted(groups.items(), key=lambda pair: -sum(item.seconds for item in pair[1])):
        seconds = sum(item.seconds for item in group)
        multiply_adds, moved = (
            sum(item.work.multiply_adds for item in group),
            sum(item.work.bytes for item in group if not item.work.multiply_adds),
        )
        out.add(
            kind,
            engine,
            sum(item.times for item in group),
            _ms(seconds),
            _percent(sum(item.share for item in group)),
            _speed(2 * multiply_adds, seconds),
            _speed(moved, seconds),
        )
    out.add(OUTSIDE, "", "", _ms(found.outside), _percent(found.outside / found.seconds), "", "")
    out.add("sum", "", "", _ms(found.seconds), "100 %", "", "")
    return out


def slowest(found: Profile, top: int) -> Table:
    """The items that take longest, then how much the others take; all of them in order if top is 0."""
    items = found.items
    order: Sequence[int] = range(len(items))
    if top:
        order = sorted(order, key=lambda position: -items[position].seconds)[:top]
    title = "Every operator and kernel call" if not top else "Slowest"
    out = table(title, ">#", "what", "!shape", ">ms", ">share", ">GFLOP/s", ">GB/s", ">of peak", "~output")
    blocks = any(item.block for item in items)
    for position in order:
        item = items[position]
        by_products = item.limit == "multiply-adds"
        out.add(
            _place(item, blocks),
            item.name,
            shape_text(item.shape) if item.result else "",
            _ms(item.seconds),
            _percent(item.share),
            _speed(2 * item.work.multiply_adds, item.seconds),
            "" if by_products else _speed(item.work.bytes, item.seconds),
            "" if item.reached is None else _percent(item.reached),
            item.result,
        )
    shown = sum(items[position].seconds for position in order)
    if left := len(items) - len(order):
        others = found.seconds - found.outside - shown
        out.add("", f"{left} others", "", _ms(others), _percent(others / found.seconds), "", "", "", "")
    out.add("", OUTSIDE, "", _ms(found.outside), _percent(found.outside / found.seconds), "", "", "", "")
    return out


def _place(item: Item, blocks: bool) -> str:
    """'12', or 'block 1, 3' where a program has several blocks."""
    if item.operator is None:
        return ""
    return f"block {item.block}, {item.operator}" if blocks else str(item.operator)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}" if seconds < 0.1 else f"{seconds * 1e3:.1f}"


def _percent(part: float) -> str:
    return f"{part * 100:.1f} %" if part < 0.0995 else f"{part * 100:.0f} %"


def _speed(amount: int, seconds: float) -> str:
    return f"{amount / seconds / 1e9:.1f}" if amount and seconds else ""
