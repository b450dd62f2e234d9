"""Columns, each joined over lines that lie behind one another: threads of a block take several lines, and join what they found."""

from __future__ import annotations

from collections.abc import Callable

from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda import sources
from fluidtool.runtime.engines.cuda.calls import Place
from fluidtool.runtime.engines.cuda.lowering import Lowering
from fluidtool.runtime.engines.cuda.sources import THREADS, Source
from fluidtool.runtime.graph.ir import Value

TURNS = 16  # lines that each thread joins at least, before blocks share the lines of a column
PIECES = 8  # of 16 bytes, side by side: a line of the cache
Element = Callable[[Source, str, str], str]
Stored = Callable[[Source, str, str], str]


@dataclass(frozen=True, eq=False, slots=True)
class Columns:
    """Columns of `count` lines. element: the number in a column and a line. how: what a column starts with, and how two are joined.

    stored: the statement that stores what a column, by its number, has become.
    """

    low: Lowering
    columns: int
    count: int
    how: tuple[str, str]
    element: Element
    out: Place
    stored: Stored
    prefix: str = "sums"

    def in_one_call(self) -> None:
        """A kernel in which a block joins all lines of its columns."""
        self._call(lambda block: 1)

    def in_shares(self) -> None:
        """A kernel in which several blocks share the lines if they are many, and then one over the shares."""
        self._call(lambda block: min(-(-self.count // (block.deep * TURNS)), sources.BUSY // (THREADS * block.chunks)))

    def _call(self, shares_of: Callable[[Block], int]) -> None:
        for lanes in self.low.lanes():
            if self.columns % lanes:
                continue
            block = Block(self.columns // lanes, self.count, lanes)
            shares = max(1, shares_of(block))
            partial = None if shares == 1 else Place(self.low.room((shares, self.columns)), (self.columns, 1))
            src = self._source(block, shares, partial)
            if lanes > 1 and src.is_scattered:
                continue
            self.low.calls.append(src.launch(partial or self.out, block.chunks * shares, THREADS, self.prefix))
            if partial is not None:
                self._over_shares(partial, shares)
            return

    def _source(self, block: Block, shares: int, partial: Place | None) -> Source:
        src, lanes, deep = Source(self.low), block.lanes, block.deep
        src.total = self.count * self.columns
        lane = "lane" if lanes > 1 else "0"
        own = f"shared[{lane} * {THREADS} + me]"
        each_lane = f"for (int lane = 0; lane < {lanes}; lane++)"
        src.lines += [
            f"__shared__ float shared[{lanes * THREADS}];",
            f"const int me = threadIdx.x, line = me / {block.wide};",
            f"const int piece = blockIdx.x % {block.chunks} * {block.wide} + me % {block.wide};",
            f"const int share = blockIdx.x / {block.chunks}, first = piece * {lanes};",
            f"float total[{lanes}];",
            f"{each_lane} total[lane] = {self.how[0]};",
        ]

        def joined(column: str) -> str:
            value = self.element(src, column, "i")
            return f"total[{lane}] = {self.how[1].format(a=f'total[{lane}]', b=value)};"

        def stored(column: str) -> str:
            return self.stored(src, column, own) if partial is None else src.store(partial, ["share", column], own)

        each = src.side_by_side(lanes, "first", joined)
        other = f"shared[lane * {THREADS} + me + half * {block.wide}]"
        mine = f"shared[lane * {THREADS} + me]"
        src.lines += [
            f"if (piece < {block.pieces}) {{",
            "#pragma unroll 4\n"
            f"    for (int i = share * {deep} + line; i < {self.count}; i += {shares * deep}) {{ {each} }}",
            "}",
            f"{each_lane} {mine} = total[lane];",
            f"for (int half = {deep // 2}; half > 0; half /= 2) {{",
            "    __syncthreads();",
            f"    if (line < half) {each_lane} {mine} = {self.how[1].format(a=mine, b=other)};",
            "}",
            f"if (line > 0 || piece >= {block.pieces}) return;",
        ]
        src.lines.append(src.side_by_side(lanes, "first", stored))
        return src

    def _over_shares(self, place: Place, shares: int) -> None:
        value = Value("shares", (shares, self.columns))
        self.low.places[value] = place

        def element(src: Source, column: str, line: str) -> str:
            return src.load(value, [line, column])

        parts = (self.low, self.columns, shares, self.how, element, self.out, self.stored, "reduce")
        Columns(*parts).in_one_call()


@dataclass(frozen=True, slots=True)
class Block:
    """How the threads of a block lie: `wide` of them side by side, each with a piece of `lanes` columns, in `deep` lines."""

    pieces: int
    count: int
    lanes: int

    @property
    def deep(self) -> int:
        """The lines at once: no more than there are."""
        pieces = PIECES if self.lanes > 1 else PIECES * 4
        side_by_side = min(pieces, 1 << (self.pieces - 1).bit_length())
        return min(THREADS // side_by_side, 1 << (max(self.count, 1).bit_length() - 1))

    @property
    def wide(self) -> int:
        """The threads side by side."""
        return THREADS // self.deep

    @property
    def chunks(self) -> int:
        """The blocks side by side."""
        return -(-self.pieces // self.wide)
