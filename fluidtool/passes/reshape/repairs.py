"""How an operator that contains a size can follow its inputs instead: edits to try, the best first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import Any

from fluidtool.ir import Operator
from fluidtool.ops.schema import TensorMeta
from fluidtool.passes.reshape.axes import Axis, Shape
from fluidtool.proto.enums import AttrType
from fluidtool.records import dataclass

# Where operators keep sizes, and the inputs that replace the attribute.
SIZES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "reshape": ("shape", ("Shape", "ShapeTensor")),
    "reshape2": ("shape", ("Shape", "ShapeTensor")),
    "expand": ("expand_times", ("ExpandTimes", "expand_times_tensor")),
    "expand_v2": ("shape", ("Shape", "expand_shapes_tensor")),
    "tile": ("repeat_times", ("RepeatTimes", "repeat_times_tensor")),
    "fill_constant": ("shape", ("ShapeTensor", "ShapeTensorList")),
    "uniform_random": ("shape", ("ShapeTensor", "ShapeTensorList")),
    "gaussian_random": ("shape", ("ShapeTensor", "ShapeTensorList")),
    "truncated_gaussian_random": ("shape", ()),
    "randint": ("shape", ("ShapeTensor", "ShapeTensorList")),
    "empty": ("shape", ("ShapeTensor", "ShapeTensorList")),
    "assign_value": ("shape", ()),
    "crop": ("shape", ("Y",)),
    "crop_tensor": ("shape", ("Shape", "ShapeTensor")),
    "slice": ("ends", ("EndsTensor", "EndsTensorList")),
    "strided_slice": ("ends", ("EndsTensor", "EndsTensorList")),
}
# The same numbers, in as many rows as an input has.
LIKE_BATCH = {name: f"{name}_batch_size_like" for name in ("fill_constant", "uniform_random", "gaussian_random")}
TO_THE_END = 2**31 - 1
VALUES = frozenset({"assign_value"})  # whose attributes have a number for each element


@dataclass(frozen=True, slots=True)
class Case:
    """An operator, its first input before and after, its first output before, and the sizes that change."""

    op: Operator
    old: TensorMeta | None
    new: TensorMeta | None
    out: TensorMeta | None
    axes: Sequence[Axis]
    sources: Sequence[Axis]  # those of inputs that other operators can take their size from

    @property
    def sizes(self) -> list[int]:
        """The attribute; [] where inputs replace it."""
        attr, instead = SIZES.get(self.op.type, ("", ()))
        given = any(self.op.input(slot) for slot in instead)
        value = [] if given else self.op.get_attr(attr, [])
        return [int(size) for size in value] if isinstance(value, list) else []

    @property
    def moved(self) -> list[int]:
        """The axes of the first input that change."""
        if self.old is None or self.new is None or self.old.rank != self.new.rank:
            return []
        return [i for i, (a, b) in enumerate(zip(self.old.shape, self.new.shape, strict=True)) if a != b]


@dataclass(frozen=True, slots=True)
class Edit:
    """Another type, other inputs and attributes of an operator; `target`: the shape of a tensor that it also reads,
    one of whose sizes is that of an input; `fixed`: the operator then fits the new sizes only.
    """

    text: str
    type: str = ""
    inputs: Mapping[str, list[str]] = field(default_factory=dict)
    attrs: Mapping[str, tuple[Any, AttrType]] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    target: tuple[Shape, int, Axis] | None = None
    fixed: bool = False


def silently_baked(case: Case) -> bool:
    """Whether an operator that accepts the new shapes moves a changed size elsewhere, or cuts it to the old one."""
    check = _SILENT.get(case.op.type)
    return check is not None and bool(case.moved) and bool(case.sizes) and check(case)


def edits(case: Case) -> Iterator[Edit]:
    """What may repair an operator, the best first."""
    if case.sizes:
        yield from _EDITS.get(case.op.type, _none)(case)
        if case.op.type not in VALUES:
            yield from _substituted(case)


def has_old_size(case: Case) -> bool:
    """Whether a size in the attributes is one that changes."""
    return any(axis.old in case.sizes for axis in case.axes)


# ---------------------------------------------------------------- reshape
def _reshape_moves(case: Case) -> bool:
    assert case.old is not None
    shape, old = case.sizes, case.old.shape
    if any(shape[i] == old[i] > 0 and _holds(case, i, i) for i in case.moved if i < len(shape)):
        return True
    batches = {axis.old for axis in case.axes if axis.index == 0 and axis.old > 0}
    return 0 in case.moved and shape[0] in batches and -1 in shape[1:]


def _reshaped(case: Case) -> Iterator[Edit]:
    """0 copies a size of X; -1 is the rest, for which the -1 of another place becomes the number that it stood for."""
    shape, old = case.sizes, case.old.shape if case.old is not None else ()
    kept = [i for i in case.moved if i < len(shape) and shape[i] == old[i] and _holds(case, i, i)]
    copied = [0 if i in kept else size for i, size in enumerate(shape)]
    if copied != shape:
        yield _new_sizes(case, copied)
    for start in (copied, shape):
        for at in _by_likelihood(case, start):
            open_one = _with_open(start, at, case.out)
            if open_one is not None:
                yield _new_sizes(case, open_one)


def _by_likelihood(case: Case, shape: Sequence[int]) -> list[int]:
    """The places of a shape, sizes of changed inputs first, then their multiples."""

    def rank(at: int) -> tuple[bool, bool, int]:
        olds = [axis.old for axis in case.axes if axis.old > 0]
        return shape[at] not in olds, not any(shape[at] % old == 0 for old in olds), at

    able = (at for at, size in enumerate(shape) if size > 0 and any(_holds(case, at, axis) for axis in case.moved))
    return sorted(able, key=rank)


def _holds(case: Case, at: int, axis: int) -> bool:
    """Whether a place of the output has the elements in it that an axis of X counts, or some of them.

    Elements keep their order: both count what lies between two strides, and one of these spans must contain the other.
    """
    if case.old is None or case.out is None or min((*case.old.shape, *case.out.shape), default=1) < 0:
        return True
    (low, high), (least, most) = _span(case.out.shape, at), _span(case.old.shape, axis)
    return (low <= least and most <= high) or (least <= low and high <= most)


def _span(shape: Shape, at: int) -> tuple[int, int]:
    return prod(shape[at + 1 :]), prod(shape[at:])


def _with_open(shape: Sequence[int], at: int, out: TensorMeta | None) -> list[int] | None:
    """The shape with -1 at a place only; None if the number that another -1 stood for is not known."""
    numbers = [out.shape[i] if size == -1 and out is not None else size for i, size in enumerate(shape)]
    return None if -1 in numbers else [-1 if i == at else size for i, size in enumerate(numbers)]


# ---------------------------------------------------------------- the others
def _like_batch(case: Case) -> Iterator[Edit]:
    """fill_constant and the random ones, with one size taken from an input."""
    op, shape = case.op, case.sizes
    for at, size in enumerate(shape):
        for axis in (axis for axis in case.sources if axis.old == size and not op.input("ValueTensor")):
            kind = LIKE_BATCH[op.type]
            attrs = {
                "shape": (shape, AttrType.INTS),
                "input_dim_idx": (axis.index, AttrType.INT),
                "output_dim_idx": (at, AttrType.INT),
            }
            yield Edit(f"{kind}, size {at} from {axis.name}", kind, {"Input": [axis.name]}, attrs)


def _expanded(case: Case) -> Iterator[Edit]:
    """expand to the shape of a tensor that is as large as an input."""
    out = case.out
    for at, times in enumerate(case.sizes):
        for axis in (axis for axis in case.sources if axis.old == times):
            if out is not None and min(out.shape) > 0 and out.shape[at] == times:
                text = f"expand_as, size {at} from {axis.name}"
                yield Edit(text, "expand_as", dropped=("expand_times",), target=(out.shape, at, axis))


def _expanded_to(case: Case) -> Iterator[Edit]:
    """expand_v2 with -1 (the size of X) where X follows the inputs."""
    if case.old is None:
        return
    added = len(case.sizes) - case.old.rank
    kept = {i + added for i in case.moved if i + added >= 0 and case.sizes[i + added] == case.old.shape[i]}
    if kept:
        yield _new_sizes(case, [-1 if i in kept else size for i, size in enumerate(case.sizes)])


def _cut_short(case: Case) -> bool:
    return bool(_ends_at_old_size(case))


def _ends_at_old_size(case: Case) -> list[int]:
    assert case.old is not None
    axes = [int(axis) for axis in case.op.get_attr("axes", [])]
    pairs = enumerate(zip(axes, case.sizes, strict=False))
    return [at for at, (axis, end) in pairs if axis in case.moved and end == case.old.shape[axis]]


def _to_the_end(case: Case) -> Iterator[Edit]:
    if case.moved:
        ends = _ends_at_old_size(case)
        yield _new_sizes(case, [TO_THE_END if at in ends else end for at, end in enumerate(case.sizes)])


def _substituted(case: Case) -> Iterator[Edit]:
    """The new size in place of the old one, where it is a number: all of them, or one."""
    new = {axis.old: axis.new for axis in case.axes if axis.old > 0 and axis.new >= 0}
    sizes = case.sizes
    yield from (
        replace(_new_sizes(case, [new[size] if i == at else size for i, size in enumerate(sizes)]), fixed=True)
        for at, size in enumerate(sizes)
        if size in new
    )


def _new_sizes(case: Case, sizes: list[int]) -> Edit:
    attr = SIZES[case.op.type][0]
    kind = AttrType(case.op.attr_type(attr))
    return Edit(f"{attr} {sizes}", attrs={attr: (sizes, kind)})


def _none(case: Case) -> Iterator[Edit]:
    return iter(())


_SILENT: Mapping[str, Callable[[Case], bool]] = {
    "reshape": _reshape_moves,
    "reshape2": _reshape_moves,
    "slice": _cut_short,
    "strided_slice": _cut_short,
}
_EDITS: Mapping[str, Callable[[Case], Iterator[Edit]]] = {
    "reshape": _reshaped,
    "reshape2": _reshaped,
    "slice": _to_the_end,
    "strided_slice": _to_the_end,
    "expand": _expanded,
    "expand_v2": _expanded_to,
    **dict.fromkeys(LIKE_BATCH, _like_batch),
}
