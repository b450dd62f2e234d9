"""Sums, extremes and products over any axes: shares of them by many threads, then over the shares, always in one order."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda import sources
from fluidtool.runtime.engines.cuda.calls import Place
from fluidtool.runtime.engines.cuda.columns import Columns
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers
from fluidtool.runtime.engines.cuda.rows import HOW, WARP, Rows, in_rows, reduce_rows
from fluidtool.runtime.engines.cuda.sources import Source
from fluidtool.runtime.graph.ir import Node, Shape, Value

SUM = 0  # of HOW
TURNS = 32  # elements that each thread adds at least


@lowers("sums", "joins")
def _sums(low: Lowering, node: Node) -> None:
    """attrs: `kept`, the axes of the result; of joins also `how`, a key of HOW."""
    x, kept, out = node.inputs[0], node.attrs["kept"], low.new(node.output)
    steps = low.strides_of(x)
    rest = sorted((axis for axis in range(len(x.shape)) if axis not in kept), key=lambda axis: -steps[axis])
    inner = min((axis for axis in range(len(x.shape)) if x.shape[axis] > 1), key=steps.__getitem__, default=-1)
    sums = Sums(low, x, tuple(kept), tuple(rest), node.output.shape, out, HOW[node.attrs.get("how", SUM)])
    if inner in kept:
        sums.by_column(sorted(range(len(kept)), key=lambda at: -steps[kept[at]]))
    else:
        sums.by_row()


@dataclass(frozen=True, eq=False, slots=True)
class Sums:
    """Sums of a value over `rest`, its other axes in the order of memory; `shape` is what the result keeps.

    how: what a sum starts with, and how two numbers are joined, if they are not added.
    """

    low: Lowering
    x: Value
    kept: tuple[int, ...]
    rest: tuple[int, ...]
    shape: Shape
    out: Place
    how: tuple[str, str]

    @property
    def count(self) -> int:
        """The elements of a sum."""
        return prod(self.x.shape[axis] for axis in self.rest)

    @property
    def start(self) -> str:
        """What a sum starts with."""
        return self.how[0]

    @property
    def columns(self) -> int:
        """The sums."""
        return prod(self.shape)

    def joined(self, total: str, value: str) -> str:
        """The statement that adds a number."""
        return f"{total} = {self.how[1].format(a=total, b=value)};"

    def element(self, src: Source, own: Sequence[str], number: str) -> str:
        """The element of a sum, by the index of the sum and by its number."""
        index = ["0"] * len(self.x.shape)
        for axis, text in zip(self.kept, own, strict=True):
            index[axis] = text
        for axis, text in zip(
            self.rest, src.split(number, tuple(self.x.shape[axis] for axis in self.rest)), strict=True
        ):
            index[axis] = text
        return src.load(self.x, index)

    def by_column(self, order: Sequence[int]) -> None:
        """Sums that lie side by side. order: of the axes that are kept."""

        def element(src: Source, column: str, line: str) -> str:
            return self.element(src, src.split(column, self.shape, order), line)

        def stored(src: Source, column: str, total: str) -> str:
            return src.store(self.out, src.split(column, self.shape, order), total)

        Columns(self.low, self.columns, self.count, self.how, element, self.out, stored).in_shares()

    def by_row(self) -> None:
        """Sums whose elements lie side by side: a warp or a block adds a share of them."""
        most = max(1, min(self.count // (TURNS * WARP), sources.BUSY // (self.columns * WARP)))
        shares = next(share for share in range(most, 0, -1) if self.count % share == 0)
        each = self.count // shares
        place = self.out if shares == 1 else Place(self.low.room((self.columns, shares)), (shares, 1))

        def write(kernel: Rows) -> None:
            src = kernel.src
            column, share = (src.whole(text) for text in (f"row / {shares}", f"row % {shares}"))
            own = src.split(column, self.shape)

            def value(part: str) -> str:
                return self.element(src, own, src.flat([share, part], (shares, each)))

            src.lines.append(f"float total = {self.start};")
            kernel.first(value, lambda part: self.joined("total", "v"))
            kernel.joined("total", self.how[1])
            index = own if shares == 1 else [column, share]
            src.lines.append(f"if (me == 0) {{ {src.store(place, index, 'total')} }}")

        in_rows(self.low, place, self.columns * shares, each, "sums", write)
        if shares > 1:
            self._over_shares(place, shares)

    def _over_shares(self, place: Place, shares: int) -> None:
        """The sums of the shares, [sums, shares]."""
        partial = Value("shares", (self.columns, shares))
        self.low.places[partial] = place
        reduce_rows(self.low, partial, (self.columns, shares), self.how, (self.out, self.shape, "total"))
