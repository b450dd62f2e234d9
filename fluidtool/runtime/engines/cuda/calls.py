"""What a region does on a GPU, as data: calls of generated kernels and of libraries, on places in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

from fluidtool.records import dataclass
from fluidtool.runtime.graph.ir import Shape

BYTES = 4  # of a float; integers take two


@dataclass(frozen=True, eq=False, slots=True)
class Buffer:
    """Memory for some floats.

    role: 'arena', 'input', 'output', 'state' for what a training step changes in place, 'mark' for whether an id is out of range,
    or 'constant', whose numbers are in `array`. half: 'fp16' or 'bf16' for numbers of 16 bits, two of which lie in a float.
    """

    floats: int
    role: str = "arena"
    array: Any = None
    integer: bool = False
    half: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the elements of a value are: a buffer, the first element, and the distance of elements along each axis."""

    buffer: Buffer
    strides: Shape
    offset: int = 0

    @property
    def pointer(self) -> Pointer:
        """Its first element."""
        return Pointer(self.buffer, self.offset)


@dataclass(frozen=True, slots=True)
class Pointer:
    """An element of a buffer."""

    buffer: Buffer
    offset: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Launch:
    """A generated kernel: its name, its source, the pointers that it takes, its grid, and the functions that it calls."""

    name: str
    source: str
    pointers: tuple[Pointer, ...]
    blocks: int
    threads: int
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Matrix:
    """A matrix in memory, row by row or (`turned`) column by column; `step` from one line to the next, `batch` to the next."""

    pointer: Pointer
    step: int
    turned: bool = False
    batch: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Product:
    """out[rows, columns] = epilogue(alpha x[rows, depth] y[depth, columns] + added + bias), for each matrix of a batch.

    epilogue: '', 'relu' or 'gelu', of the tangent. bias: a number for each column. added: a matrix like out, or None.
    x and y are of one type, float32 or halves; so are out, added and bias.
    """

    x: Matrix
    y: Matrix
    out: Matrix
    rows: int
    depth: int
    columns: int
    matrices: int = 1
    alpha: float = 1.0
    bias: Pointer | None = None
    added: Matrix | None = None
    epilogue: str = ""

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        """Everything that it reads or writes."""
        others = (self.bias, None if self.added is None else self.added.pointer)
        return (self.x.pointer, self.y.pointer, self.out.pointer, *(each for each in others if each is not None))


@dataclass(frozen=True, eq=False, slots=True)
class Convolution:
    """out = x convolved with weights; images [n, h, w, c], weights [count, h, w, c of a group], volumes likewise, of one type.

    channels_first: images [n, c, h, w] and weights [count, c of a group, h, w] instead.
    computes: what is written, 'out'; for gradients 'x' or 'weights', from the two others. Only for 'out': out = activation(x
    convolved with weights + bias + added). bias: floats by channel. added: an image like out. activation: its name, as
    cuDNN has it, and numbers by name.
    """

    x: Pointer
    weights: Pointer
    out: Pointer
    images: Shape  # n, c, h, w of x, or n, c, d, h, w
    filters: Shape  # count, c of a group, h, w
    results: Shape  # n, count, h, w of out
    pads: Shape  # before and after each axis: top, left, bottom, right
    strides: Shape
    dilations: Shape
    computes: str = "out"
    bias: Pointer | None = None
    added: Pointer | None = None
    activation: tuple[str, tuple[tuple[str, float], ...]] | None = None
    channels_first: bool = False

    def strides_of(self, shape: Shape) -> Shape:
        """The strides of its images and of its weights."""
        return row_major(shape) if self.channels_first else channels_last(shape)

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        """Everything that it reads or writes."""
        return self.x, self.weights, self.out, *(each for each in (self.bias, self.added) if each is not None)


@dataclass(frozen=True, eq=False, slots=True)
class Heads:
    """Matrices in memory, [batch, heads, rows, columns]; columns lie side by side."""

    place: Place
    shape: Shape


@dataclass(frozen=True, eq=False, slots=True)
class Attention:
    """out = softmax(factor * q · k' + mask) · v, for each head, all of them halves.

    stats: floats, the logarithm of the sum of a row of that softmax, for the gradient.
    """

    q: Heads
    k: Heads
    v: Heads
    out: Heads
    factor: float
    mask: Heads | None = None  # [batch or 1, heads or 1, rows of q, rows of k]
    stats: Heads | None = None  # [batch, heads, rows of q, 1]

    @property
    def heads(self) -> tuple[Heads, ...]:
        """Everything that it reads or writes."""
        more = (each for each in (self.mask, self.stats) if each is not None)
        return self.q, self.k, self.v, self.out, *more

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        """Where all of that begins."""
        return tuple(each.place.pointer for each in self.heads)


@dataclass(frozen=True, eq=False, slots=True)
class AttentionGradient:
    """The gradients of q, k and v of an attention, from that of its result, and what it has left."""

    q: Heads
    k: Heads
    v: Heads
    out: Heads
    grad: Heads
    stats: Heads
    by_q: Heads
    by_k: Heads
    by_v: Heads
    factor: float
    mask: Heads | None = None

    @property
    def heads(self) -> tuple[Heads, ...]:
        """Everything that it reads or writes."""
        given = (self.q, self.k, self.v, self.out, self.grad, self.stats)
        return *given, self.by_q, self.by_k, self.by_v, *(() if self.mask is None else (self.mask,))

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        """Where all of that begins."""
        return tuple(each.place.pointer for each in self.heads)


@dataclass(frozen=True, eq=False, slots=True)
class Choice:
    """A call that a library may refuse, and the calls that do the same where it does."""

    first: Convolution | Attention | AttentionGradient
    otherwise: tuple[Launch | Product | Convolution, ...]

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        """Everything that either reads or writes."""
        return (*self.first.pointers, *(pointer for call in self.otherwise for pointer in call.pointers))


@dataclass(frozen=True, eq=False, slots=True)
class Reduction:
    """out = the sum of `given` over the GPUs of a ring: begun on its side stream after everything before, beside what follows."""

    given: Pointer
    out: Pointer
    count: int
    ring: Any

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        """Everything that it reads or writes."""
        return self.given, self.out


@dataclass(frozen=True, eq=False, slots=True)
class Arrival:
    """What follows waits for a reduction, whose memory is free from here on."""

    reduction: Reduction

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        """The memory that must not be used for anything else before."""
        return self.reduction.pointers


Call = Launch | Product | Convolution | Attention | AttentionGradient | Choice | Reduction | Arrival


class RefusedError(Exception):
    """A library has no plan for a call on this device."""


def flat(calls: Iterable[Call]) -> Iterator[Call]:
    """Calls, and those that may be made in their place."""
    for call in calls:
        yield from (call.first, *call.otherwise) if isinstance(call, Choice) else (call,)


def row_major(shape: Shape) -> Shape:
    """The strides of an array, the last axis of which is contiguous."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def viewed_strides(shape: Shape, strides: Shape, into: Shape) -> Shape | None:
    """The strides of the same elements, in the same order, in another shape; None if no strides can say where they are."""
    if prod(into) == 0:
        return None
    steps: list[tuple[int, int]] = []  # axes that lie behind one another are one: (size, stride)
    for size, step in zip(shape, strides, strict=True):
        if size > 1 and steps and steps[-1][1] == size * step:
            steps[-1] = steps[-1][0] * size, step
        elif size > 1:
            steps.append((size, step))
    found: list[int] = []
    for size in reversed(into):
        if size == 1:
            found.append(steps[-1][1] if steps else 1)
            continue
        whole, step = steps.pop()
        if whole % size:
            return None
        found.append(step)
        if whole > size:
            steps.append((whole // size, step * size))
    return tuple(reversed(found))


def channels_last(shape: Shape) -> Shape:
    """The strides of an image [n, c, h, w], or a volume [n, c, d, h, w], whose channels are contiguous."""
    _, c, *sizes = shape
    return prod(sizes) * c, 1, *(prod(sizes[axis + 1 :]) * c for axis in range(len(sizes)))


def are_channels_last(strides: Shape, shape: Shape) -> bool:
    """Whether strides are those of an image whose channels are contiguous; its pixels may have further ones."""
    return strides[-1] >= shape[1] and strides == channels_last((shape[0], strides[-1], *shape[2:]))


def same_strides(one: Shape, other: Shape, shape: Shape) -> bool:
    """Whether strides place all elements alike; those of axes of size 1 do not count."""
    return all(a == b or size == 1 for a, b, size in zip(one, other, shape, strict=True))
