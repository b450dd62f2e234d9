"""Steps before they have addresses, and where values live."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.graph.ir import NONE, Activation, Node, Shape

ALIGNMENT = 16  # floats: a line of the cache
LARGE_PAGE = 1 << 19  # floats: 2 MiB
NARROW = 16  # the size of a product that says whether its weights are bfloat16
TASKS = 31  # the size that says into how many parts a step is cut


class Kind(IntEnum):
    """`enum ft_kind` of src/engine.h."""

    CONVOLUTION = 0
    DEPTHWISE = 1
    POOL = 2
    BLOCK = 3
    UNBLOCK = 4
    HALO = 5
    ELEMENTWISE = 6
    SOFTMAX = 7
    LAYER_NORM = 8
    COPY = 9
    PACK = 10
    PACK_FILTER = 11
    GATHER_ROWS = 12
    LSTM = 13
    LSTM_GRADIENT = 14
    ADAM = 15
    MOMENTUM = 16
    MULTIPLY_ADDS = 17
    PRODUCT = 18
    LSTM_SEQUENCES = 19
    POOL_SEQUENCES = 20
    WINOGRAD_WINDOWS = 21
    WINOGRAD = 22
    PACK_WINOGRAD = 23
    SUBSAMPLE = 24
    FILTER_GRADIENT = 25
    MAXIMUM_GRADIENT = 26
    INTERPOLATE = 27
    REDUCE = 28
    SOFTMAX_AXIS = 29
    SUPPRESS = 30
    PAIRS = 31
    NARROW = 32
    PACK_PAIRS = 33
    MULTIPLY_PAIRS = 34
    EXTREME_PLACE = 35
    TOP_K = 36
    PICK = 37
    PAD = 38
    GROUP_NORM = 39
    GROUP_NORM_BLOCKED = 40
    GRU_SEQUENCES = 41
    GRU = 42
    GRU_GRADIENT = 43
    YOLO_BOXES = 44
    YOLO_SCORES = 45
    DECODE_BOXES = 46
    LAYER_NORM_GRADIENT = 47
    BEST_BOXES = 48
    DETECTIONS = 49
    BATCH_NORM = 50
    BATCH_NORM_GRADIENT = 51
    SCATTER_ROWS = 52
    ADAGRAD_ROWS = 53
    ATTENTION = 54
    GATHER_POOL = 55
    ALIGN_REGIONS = 56
    POOL_REGIONS = 57
    VITERBI = 58
    SOFTMAX_SEQUENCES = 59
    COSINE = 60
    ADAM_ROWS = 61
    DESCEND = 62
    DEPTHWISE_PLANES = 63
    DEPTHWISE_PLANES_GRADIENT = 64
    CROSS_ENTROPY = 65
    CROSS_ENTROPY_GRADIENT = 66
    ACTIVATION_GRADIENT = 67
    REGROUP = 68
    LOCAL_RESPONSE = 69
    PROJECTED_SEQUENCES = 70
    SUPPRESS_POLYGONS = 71
    SAMPLE_PLANES = 72
    FEW_ROWS = 73


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory of `size` floats: of the arena, a constant (`array`), or an array that comes and goes with each run."""

    size: int
    role: str = "arena"  # or "constant", "input", "output"
    array: Any = None


@dataclass(frozen=True, slots=True)
class Plain:
    """Row-major or strided: strides in floats."""

    buffer: Buffer
    offset: int
    strides: Shape


@dataclass(frozen=True, slots=True)
class Blocked:
    """Channels in blocks of `lanes`, innermost; rows and columns with a halo (top, left, bottom, right) of zeros.

    Strides and sizes are counted in numbers: floats, or `halves` of 16 bits. Some channels of a larger image start at
    `start`, and `apart` is then the stride of its images.
    """

    buffer: Buffer
    shape: Shape  # N, C, H, W
    lanes: int
    halo: tuple[int, int, int, int]
    halves: bool = False
    start: int = 0
    apart: int = 0

    @property
    def blocks(self) -> int:
        """Blocks of channels."""
        return -(-self.shape[1] // self.lanes)

    @property
    def row(self) -> int:
        """Stride of a row."""
        return (self.shape[3] + self.halo[1] + self.halo[3]) * self.lanes

    @property
    def rows(self) -> int:
        """Rows of a plane, halo included."""
        return self.shape[2] + self.halo[0] + self.halo[2]

    @property
    def block(self) -> int:
        """Stride of a block of channels."""
        return self.rows * self.row

    @property
    def image(self) -> int:
        """Stride of an image."""
        return self.apart or self.blocks * self.block

    @property
    def origin(self) -> int:
        """Where the first pixel inside the halo is."""
        return self.start + self.halo[0] * self.row + self.halo[1] * self.lanes

    @property
    def size(self) -> int:
        """Numbers in all."""
        return self.shape[0] * self.image

    def channels(self, first: int, shape: Shape) -> Blocked:
        """An image of this shape whose channels are those from `first` on, the first of a block."""
        return replace(self, shape=shape, start=self.start + first // self.lanes * self.block, apart=self.image)


@dataclass(slots=True)
class KernelCall:
    """A step whose pointers are (buffer, offset in floats); `node` asked for it, and lies `blocked`, or with strides."""

    kind: Kind
    pointers: dict[int, tuple[Buffer, int]]
    sizes: dict[int, int]
    activation: Activation = NONE
    numbers: tuple[float, ...] = ()
    tasks: int = 1
    node: Node | None = None
    blocked: bool = False

    def buffers(self) -> list[Buffer]:
        """The memory that the step touches."""
        return [buffer for buffer, _ in self.pointers.values()]


@dataclass(slots=True)
class KernelCalls:
    """The steps of a region, in order."""

    steps: list[KernelCall] = field(default_factory=list)

    def add(self, kind: Kind, pointers: dict[int, Any], sizes: dict[int, int], **more: Any) -> KernelCall:
        """One more step; pointers that are None are left out."""
        kernel_call = KernelCall(
            kind, {slot: target for slot, target in pointers.items() if target is not None}, sizes, **more
        )
        self.steps.append(kernel_call)
        return kernel_call


def is_narrow(kernel_call: KernelCall) -> bool:
    """Whether a step reads weights of 16 bits."""
    return kernel_call.kind is Kind.PAIRS or (kernel_call.kind is Kind.PRODUCT and bool(kernel_call.sizes.get(NARROW)))


def row_major(shape: Shape) -> Shape:
    """Strides of a contiguous array."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def constant(array: Any) -> Buffer:
    """A constant of float32, aligned."""
    numbers = aligned_floats(int(np.size(array)))
    numbers[:] = np.asarray(array, np.float32).reshape(-1)
    return Buffer(numbers.size, "constant", numbers)


def aligned_floats(size: int, alignment: int = ALIGNMENT) -> NDArray[np.float32]:
    """Floats that start at a line of the cache, or at another multiple of floats, which is theirs up to its end."""
    memory = np.empty(-(-size // alignment) * alignment + alignment, np.float32)
    start = (-memory.ctypes.data // 4) % alignment
    return memory[start : start + size]
