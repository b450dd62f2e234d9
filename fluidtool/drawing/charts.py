"""Charts in SVG: bars of time by operator, and memory over the operators of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fluidtool.drawing.assets import asset
from fluidtool.drawing.coloring import duration
from fluidtool.drawing.text import shortened, width_of, xml
from fluidtool.records import dataclass

MOST_BARS = 40
MOST_POINTS = 1000  # of a curve: more are not seen
ROW, BAR, MARGIN, HEADER = 24.0, 15.0, 24.0, 66.0
BARS_WIDTH, PLOT_WIDTH, PLOT_HEIGHT = 420.0, 760.0, 320.0
TICKS = 4


@dataclass(frozen=True, slots=True)
class Bar:
    """What took some time: a name, and what it works on."""

    name: str
    detail: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Bytes by operator. css: 'before', 'after' or 'least'."""

    name: str
    css: str
    values: Sequence[int]


# ---------------------------------------------------------------- bars
def time_chart(bars: Sequence[Bar], title: str, said: str) -> str:
    """The longest bars, the longest first, and one for all others."""
    order = sorted(bars, key=lambda bar: -bar.seconds)
    shown, others = order[:MOST_BARS], order[MOST_BARS:]
    if others:
        shown.append(Bar(f"{len(others)} others", "", sum(bar.seconds for bar in others)))
    whole = sum(bar.seconds for bar in shown)
    most = max((bar.seconds for bar in shown), default=0.0) or 1.0
    names = [shortened(bar.name, 36) for bar in shown]
    details = [shortened(bar.detail, 40) for bar in shown]
    left = MARGIN + max((width_of(name, 12) for name in names), default=0.0)
    left = max(left, *(MARGIN + width_of(detail, 10) for detail in details)) if details else left
    rows: list[str] = []
    for number, (bar, name, detail) in enumerate(zip(shown, names, details, strict=True)):
        y = HEADER + number * (ROW + 8)
        rows += _bar(bar, name, detail, (left + 12, y), BARS_WIDTH * bar.seconds / most, whole)
    return _document(
        (left + 12 + BARS_WIDTH + 130 + MARGIN, HEADER + len(shown) * (ROW + 8) + MARGIN / 2), title, said, rows
    )


def _bar(bar: Bar, name: str, detail: str, at: tuple[float, float], length: float, whole: float) -> Iterator[str]:
    x, y = at
    yield f'<text class="name" x="{_n(x - 12)}" y="{_n(y + (11 if detail else 16))}" text-anchor="end">{xml(name)}</text>'
    if detail:
        yield f'<text class="axis" x="{_n(x - 12)}" y="{_n(y + 23)}" text-anchor="end">{xml(detail)}</text>'
    yield f'<rect class="bar" x="{_n(x)}" y="{_n(y + 3)}" width="{_n(max(length, 1.5))}" height="{_n(BAR)}" rx="2.5"/>'
    share = 100 * bar.seconds / whole if whole else 0.0
    figure = f"{duration(bar.seconds)} · {share:.1f} %"
    yield f'<text class="figure" x="{_n(x + max(length, 1.5) + 8)}" y="{_n(y + 15)}">{xml(figure)}</text>'


# ---------------------------------------------------------------- curves
def memory_chart(curves: Sequence[Curve], title: str, said: str) -> str:
    """Curves over the same kind of steps, each as long as its program; the area below each is filled."""
    steps = max((len(curve.values) for curve in curves), default=0)
    most = max((max(curve.values, default=0) for curve in curves), default=0)
    top = _above(most)
    left = MARGIN + 64
    rows = list(_grid(left, top, steps))
    for curve in curves:
        points = _points(curve.values, left, top, steps)
        if points:
            bottom = HEADER + PLOT_HEIGHT
            rows.append(
                f'<path class="area {curve.css}" d="M{_n(points[0][0])} {_n(bottom)}{_joined(points)}V{_n(bottom)}Z"/>'
            )
            rows.append(
                f'<path class="curve {curve.css}" d="M{_n(points[0][0])} {_n(points[0][1])}{_joined(points[1:])}"/>'
            )
    rows += _key(curves, left)
    return _document((left + PLOT_WIDTH + MARGIN, HEADER + PLOT_HEIGHT + 78), title, said, rows)


def _points(values: Sequence[int], left: float, top: int, steps: int) -> list[tuple[float, float]]:
    """Steps of a curve; of very many, the largest of each few."""
    width = max(1, -(-len(values) // MOST_POINTS))
    points = []
    for start in range(0, len(values), width):
        y = HEADER + PLOT_HEIGHT * (1 - max(values[start : start + width]) / top)
        ends = (start, min(start + width, len(values)))
        points += [(left + PLOT_WIDTH * end / steps, y) for end in ends]
    return points


def _joined(points: Iterable[tuple[float, float]]) -> str:
    return "".join(f"L{_n(x)} {_n(y)}" for x, y in points)


def _grid(left: float, top: int, steps: int) -> Iterator[str]:
    for tick in range(TICKS + 1):
        y = HEADER + PLOT_HEIGHT * (1 - tick / TICKS)
        yield f'<path class="grid" d="M{_n(left)} {_n(y)}H{_n(left + PLOT_WIDTH)}"/>'
        yield f'<text class="axis" x="{_n(left - 8)}" y="{_n(y + 4)}" text-anchor="end">{size_text(top * tick // TICKS)}</text>'
    bottom = HEADER + PLOT_HEIGHT + 18
    for tick in range(TICKS + 1):
        x = left + PLOT_WIDTH * tick / TICKS
        yield f'<text class="axis" x="{_n(x)}" y="{_n(bottom)}" text-anchor="middle">{steps * tick // TICKS}</text>'
    yield f'<text class="axis" x="{_n(left + PLOT_WIDTH)}" y="{_n(bottom + 16)}" text-anchor="end">operators</text>'


def _key(curves: Sequence[Curve], left: float) -> Iterator[str]:
    x, y = left, HEADER + PLOT_HEIGHT + 50
    for curve in curves:
        text = f"{curve.name}: at most {size_text(max(curve.values, default=0))}"
        yield f'<path class="curve {curve.css}" d="M{_n(x)} {_n(y)}h18"/>'
        yield f'<text class="figure" x="{_n(x + 25)}" y="{_n(y + 4)}">{xml(text)}</text>'
        x += 25 + width_of(text, 11) + 24


def _above(most: int) -> int:
    """A round number of bytes that is at least this one, and can be divided by the ticks."""
    unit = 1 << 10 * ((max(most, 1).bit_length() - 1) // 10)
    for factor in (
        1,
        2,
        4,
        8,
        12,
        16,
        20,
        24,
        32,
        40,
        48,
        64,
        80,
        100,
        128,
        160,
        200,
        256,
        320,
        400,
        512,
        640,
        800,
        1024,
    ):
        if factor * unit >= max(most, TICKS):
            return factor * unit
    return 1024 * unit


def size_text(count: int) -> str:
    """1536 -> '1.5 KiB'."""
    value, units = float(count), iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while value >= 1024 and unit != "TiB":
        value, unit = value / 1024, next(units)
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"


# ---------------------------------------------------------------- both
def _document(size: tuple[float, float], title: str, said: str, rows: Iterable[str]) -> str:
    width, height = max(size[0], MARGIN * 2 + width_of(title, 16, bold=True), MARGIN * 2 + width_of(said, 12)), size[1]
    body = "\n".join(rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}" height="{_n(height)}" '
        f'role="img" class="ft">\n<title>{xml(title)}</title>\n<style>\n{asset("graph.css")}{asset("chart.css")}</style>\n'
        f'<rect class="ground" width="100%" height="100%"/>\n'
        f'<text class="heading" x="{_n(MARGIN)}" y="30">{xml(title)}</text>\n'
        f'<text class="figure" x="{_n(MARGIN)}" y="49">{xml(said)}</text>\n{body}\n</svg>\n'
    )


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
