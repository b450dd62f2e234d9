"""Attention: by cuDNN where it takes it, else two products with a softmax between them."""

from __future__ import annotations

from fluidtool.runtime.engines.cuda.calls import Attention, Choice, Heads, Place, row_major, viewed_strides
from fluidtool.runtime.engines.cuda.lowering import (
    TENSOR_CORES,
    Lowering,
    activate,
    factor_of,
    heads_of,
    lowers,
    products,
)
from fluidtool.runtime.engines.cuda.rows import softmax
from fluidtool.runtime.engines.cuda.sources import Source
from fluidtool.runtime.graph.ir import NONE, Node, Shape, Value


@lowers("attention")
def _attention(low: Lowering, node: Node) -> None:
    """By cuDNN, whose attention is for halves; else scores, their softmax in place, and the weighted values."""
    before, low.calls, copied = low.calls, [], dict(low.factors)
    step_by_step(low, node)
    otherwise, low.calls, low.factors = low.calls, before, copied  # copies that are made here may not be made
    first = attention_of_halves(low, node)
    low.calls += otherwise if first is None else [Choice(first, tuple(otherwise))]  # type: ignore[arg-type]


def step_by_step(low: Lowering, node: Node) -> None:
    """Scores, their softmax in place, and the weighted values."""
    q, k, v, *mask = node.inputs
    keys = k.shape[-2 if node.attrs["swap_k"] else -1]
    scores = Value(f"scores of {node.output.name}", (*q.shape[:-1], keys))
    place = low.new(scores)
    wide = Place(place.buffer, (0,) * (4 - len(scores.shape)) + place.strides)
    products(low, (low.place(q), q.shape), (low.place(k), k.shape), node.attrs["swap_k"], wide, NONE)
    softmax(low, scores, mask[0] if mask else None, node.attrs, place)
    out = heads_of(low, node, low.new(node.output))
    factored = products(low, (place, scores.shape), (low.place(v), v.shape), node.attrs["swap_y"], out, node.activation)
    if not factored:
        activate(low, node.output, low.places[node.output], node.activation)


MOST_COLUMNS = 128  # of a head, for which cuDNN has kernels on every GPU from sm_80 on


def attention_of_halves(low: Lowering, node: Node) -> Attention | None:
    """An attention by cuDNN, which takes halves whose heads have whole pieces of 16 bytes; None where it is something else."""
    q, k, v, *mask = node.inputs
    out = heads_of(low, node, low.places[node.output])
    factor = factor_of(node.activation)
    wide = len(q.shape) == 4 and "cudnn" in low.libraries and bool(out.buffer.half)
    inner, outer = q.shape[-1], node.output.shape[-1]
    if not wide or factor != 1.0 or any(count % TENSOR_CORES or count > MOST_COLUMNS for count in (inner, outer)):
        return None
    of_q, of_k, of_v = low.place(q), low.place(k), low.place(v)
    if not node.attrs["swap_k"]:
        of_k = Place(of_k.buffer, (*of_k.strides[:2], of_k.strides[3], of_k.strides[2]), of_k.offset)
    places = (of_q, of_k, of_v, out)
    if node.attrs["swap_y"] or any(each.strides[3] != 1 or each.buffer.half != low.half for each in places):
        return None
    batch, heads, rows, _ = q.shape
    keys = k.shape[-2 if node.attrs["swap_k"] else -1]
    lines, sizes = (rows, keys, keys, rows), (inner, inner, outer, outer)
    of = [Heads(place, (batch, heads, *size)) for place, *size in zip(places, lines, sizes, strict=True)]
    added = whole_mask(low, mask[0], node.attrs["mask_shape"], (rows, keys)) if mask else None
    return Attention(of[0], of[1], of[2], of[3], float(node.attrs["factor"]), added)


def takes_mask(low: Lowering, place: Place, strides: Shape) -> bool:
    """Whether cuDNN takes a mask where it is: halves, rows of pieces of 16 bytes."""
    pieces = not any(step % TENSOR_CORES for step in (*strides[:3], place.offset))
    return place.buffer.half == low.half and strides[3] == 1 and pieces


def whole_mask(low: Lowering, mask: Value, wide: Shape, sizes: tuple[int, int]) -> Heads:
    """A mask in halves, with all rows and columns: where it is, or copied, once for all that read it."""
    shape = (*wide[:2], *sizes)
    given = None if mask in low.inlined else low.place(mask)
    strides = None if given is None else viewed_strides(mask.shape, given.strides, wide)
    if given is not None and strides is not None and wide == shape and takes_mask(low, given, strides):
        counts = [size if step else 1 for size, step in zip(shape[:2], strides, strict=False)]
        return Heads(Place(given.buffer, strides, given.offset), (*counts, *sizes))
    if (mask, shape) in low.masks:
        return Heads(low.masks[mask, shape], shape)
    place = Place(low.room(shape, low.half), row_major(shape))

    def element(src: Source, index: list[str]) -> str:
        own = ["0" if size == 1 else part for part, size in zip(index, wide, strict=True)]
        return src.load(mask, src.reshaped(own, wide, mask.shape))

    low.elementwise(place, shape, element)
    if given is not None:
        low.masks[mask, shape] = place
    return Heads(place, shape)
