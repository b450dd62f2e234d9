"""Random numbers in training steps: those of the CPU (PCG64), from the place in the stream that the host has written."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.calls import Place
from fluidtool.runtime.engines.cuda.lowering import Lowering, lowers
from fluidtool.runtime.engines.cuda.sources import THREADS, Source
from fluidtool.runtime.engines.cuda.training.forward import literal
from fluidtool.runtime.engines.cupy.kernels import MASK, MULTIPLIER, PCG64, parts
from fluidtool.runtime.graph.ir import Node

DRAWN = 16  # words for each thread: jumping to the first one takes as long as ten of them
BLOCK = THREADS * DRAWN  # words of a block


def wide(number: int) -> str:
    """A number of 128 bits, as a kernel has it."""
    return f"wide{{{', '.join(f'{part}ull' for part in parts(number))}}}"


@dataclass(frozen=True, slots=True)
class Jump:
    """Many steps of the stream at once: state * factor + step * sum, modulo 2^128."""

    factor: int
    sum: int

    @property
    def twice(self) -> Jump:
        """This jump, made twice."""
        return Jump(self.factor * self.factor & MASK, self.sum * (self.factor + 1) & MASK)

    @property
    def text(self) -> str:
        """The statement that makes it."""
        return f"state = plus(times(state, {wide(self.factor)}), times(step, {wide(self.sum)}));"


def jumps(count: int) -> list[Jump]:
    """Jumps over 1, 2, 4 … words, `count` of them."""
    found = [Jump(MULTIPLIER, 1)]
    while len(found) < count:
        found.append(found[-1].twice)
    return found


def each_word(
    src: Source, state: Place, most: int, count: str, each: Sequence[str], before: Sequence[str] = ()
) -> None:
    """Statements for each `bits`, a word of the stream, and its number `i`. most: how many there are at most; `count`: how many.

    Threads side by side draw words side by side, so that they store side by side, and jump over those of the whole block. The
    first jump is one for each bit of a thread's first word: what they multiply by is known here.
    before: statements that `count` needs, for the first thread.
    """
    src.functions["PCG64"] = f"typedef unsigned long long word;\n{PCG64}"
    by_bit = jumps(max(most.bit_length(), BLOCK.bit_length()))
    src.lines += [
        f"const word* s = (const word*){src.pointer(state.buffer)};",
        "const wide step = {s[2], s[3]};",
        "wide state = {s[0], s[1]};",
        f"const int begin = blockIdx.x * {BLOCK} + threadIdx.x;",
        *before,
        f"const int words = {count};",
        "if (begin >= words) return;",
        by_bit[0].text,
        *(f"if (begin >> {bit} & 1) {jump.text}" for bit, jump in enumerate(by_bit)),
        f"for (int i = begin; i < words && i < begin + {BLOCK}; i += {THREADS}) {{",
        "    const word bits = drawn(state);",
        f"    {by_bit[THREADS.bit_length() - 1].text}",
        *(f"    {line}" for line in each),
        "}",
    ]


@lowers("draw")
def _draw(low: Lowering, node: Node) -> None:
    """Which floats, two of a word, are not below a rate: numpy's. Halves can say so, too."""
    count, rate, out = prod(node.output.shape), literal(node.attrs["rate"]), low.new(node.output)
    src, half = Source(low), out.buffer.half

    def kept(bits: str) -> str:
        return f"(float)({bits} >> 8) * (1.0f / 16777216.0f) >= {rate} ? 1.0f : 0.0f"

    def stored(place: str, value: str) -> str:
        return f"out[{place}] = {f'ft_to_{half}({value})' if half else value};"

    before = ["const int first = (int)s[4];", f"if (begin == 0 && first) {stored('0', kept('(unsigned)s[5]'))}"]
    each = [
        "const int place = first + 2 * i;",
        f"const float both[2] = {{{kept('(unsigned)bits')}, {kept('(unsigned)(bits >> 32)')}}};",
        f"if (first == 0 && place + 1 < {count}) {{ ft_put_{half or 'float'}<2>(out + place, both); continue; }}",
        stored("place", "both[0]"),
        f"if (place + 1 < {count}) {stored('place + 1', 'both[1]')}",
    ]
    words = -(-count // 2)
    each_word(src, low.place(node.inputs[0]), words, f"({count} - first + 1) / 2", each, before)
    low.calls.append(src.launch(out, -(-words // BLOCK), THREADS, "draw"))


@lowers("draw_kept")
def _draw_kept(low: Lowering, node: Node) -> None:
    """Which doubles are not below a rate."""
    count, rate, src, out = prod(node.output.shape), float(node.attrs["rate"]), Source(low), low.new(node.output)
    each = [
        "const double value = (double)(bits >> 11) * (1.0 / 9007199254740992.0);",
        f"out[i] = value >= {rate!r} ? 1.0f : 0.0f;",
    ]
    each_word(src, low.place(node.inputs[0]), count, str(count), each)
    low.calls.append(src.launch(out, -(-count // BLOCK), THREADS, "draw"))
