"""How far the C kernels for single operators read and write: checked before every call.

The arrays of a call are contiguous and start at the pointers, so that a length in bytes is enough; sizes that once
fit such lengths are not checked again. Values in a call's tables - starts of sequences, indices,
numbers of images - are checked against the sizes each time, unless the kernel does so itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.calls import KernelCall
from fluidtool.runtime.engines.native.extents import (
    FLOAT,
    ExtentError,
    Setting,
    Touched,
    check,
    counts,
    need,
    reach,
    touches,
)
from fluidtool.runtime.engines.native.layouts import Buffer, Pointer

Array = NDArray[Any]
Recurrent = (
    abi.Lstm[Pointer]
    | abi.LstmGradient[Pointer]
    | abi.ProjectedLstm[Pointer]
    | abi.ProjectedLstmGradient[Pointer]
    | abi.Gru[Pointer]
    | abi.GruGradient[Pointer]
)
CHUNK = 64  # of src/normalization.c
LONGEST_SHARE = 1152  # of a depth, half as long again as SHARE of src/products.c; and from there:
TILED_ROWS, PANELS_TOGETHER = 1056, 8
MOST_CORNERS = 16  # half of MOST_EDGES of src/polygons.c
LOOP_INSTRUCTION, LOOP_STATE, LOOP_VALUE, LOOP_ARRAY = 24, 14, 11, 3  # words of src/loop_values.c
BIN_CELLS = 6  # floats of `bin_cells` of src/regions.c


def check_call(arguments: abi.Arguments[Array], width: int, tasks: int) -> None:
    """Raise ExtentError, a bug of fluidtool, for a call whose kernel would access memory outside an array."""
    try:
        kernel: Any = type(arguments)
        lengths = tuple([length(array) for array in arguments.pointers()])
        check_lengths(kernel, width, tasks, arguments.sizes(), lengths)
        table = TABLES.get(arguments.kind)
        if table is not None:
            need(table(arguments), "a table that fits its sizes")
    except ExtentError as error:
        raise ExtentError(f"the kernel call {arguments.kind.name} must not run: {error}") from None


def length(array: Any) -> int:
    """Bytes of a contiguous array; -1 if there is none."""
    if array is None:
        return -1
    return int(array.nbytes) if array.flags.c_contiguous else 0


@lru_cache(maxsize=4096)
def check_lengths(kernel: Any, width: int, tasks: int, sizes: tuple[int, ...], lengths: tuple[int, ...]) -> None:
    """Raise ExtentError for arrays that are too short, by their bytes."""
    pointers = [(Buffer(bytes_ // FLOAT), 0) if bytes_ >= 0 else None for bytes_ in lengths]
    numbers: dict[str, Any] = dict(zip(kernel.size_counts, sizes, strict=True)) | dict.fromkeys(kernel.float_names, 0.0)
    arguments = kernel(**dict(zip(kernel.pointer_bytes, pointers, strict=True)), **numbers)
    check(KernelCall(arguments, tasks=tasks), width)


# ---------------------------------------------------------------- rows
@touches(abi.FewRows)
def _few_rows(s: abi.FewRows[Pointer], on: Setting) -> Touched:
    return counts(source=s.rows * s.depth, weights=s.depth * s.columns, out=s.rows * s.columns)


def group_columns(width: int) -> int:
    """Columns of a group of src/products.c."""
    return (3 if width == 16 else 2) * width


@touches(abi.Multiply)
def _multiply(s: abi.Multiply[Pointer], on: Setting) -> Touched:
    need(min(s.rows, s.depth, s.columns, s.outer, s.inner, s.column_parts, s.row_parts) > 0, "parts")
    need(
        1 in (s.source_row, s.source_column) and 1 in (s.other_row, s.other_column),
        "matrices without gaps in one direction",
    )
    matrices = (s.outer, s.source_outer), (s.inner, s.source_inner)
    yield reach("source", 1, *matrices, (s.rows, s.source_row), (s.depth, s.source_column))
    matrices = (s.outer, s.other_outer), (s.inner, s.other_inner)
    yield reach("other", 1, *matrices, (s.depth, s.other_row), (s.columns, s.other_column))
    yield reach("out", s.columns, (s.outer, s.out_outer), (s.inner, s.out_inner), (s.rows, s.out_row))
    share, columns = min(s.depth, LONGEST_SHARE), min(on.whole(s.columns), PANELS_TOGETHER * group_columns(on.width))
    need(s.source_column == 1 or s.turned >= share * min(s.rows, TILED_ROWS), "memory for rows in tiles")
    need(s.turned >= 0 and s.task_scratch >= s.turned + share * columns, "memory for panels")
    yield reach("scratch", s.task_scratch, (on.tasks, s.task_scratch))


@touches(abi.ActivationGradient)
def _activation_gradient(s: abi.ActivationGradient[Pointer], on: Setting) -> Touched:
    return counts(out=s.count, out_grad=s.count, source_grad=s.count)


@touches(abi.InputGradient)
def _input_gradient(s: abi.InputGradient[Pointer], on: Setting) -> Touched:
    return counts(source=s.count, out_grad=s.count, source_grad=s.count)


@touches(abi.SoftmaxGradient)
def _softmax_gradient(s: abi.SoftmaxGradient[Pointer], on: Setting) -> Touched:
    size = s.rows * s.columns
    return counts(out=size, out_grad=size, source_grad=size)


@touches(abi.Drop)
def _drop(s: abi.Drop[Pointer], on: Setting) -> Touched:
    return counts(source=s.count, drawn=s.count, out=s.count, mask=s.count)


@touches(abi.Draw)
def _draw(s: abi.Draw[Pointer], on: Setting) -> Touched:
    need(s.count % 2 == 0, "whole words")
    return counts(generator=4, out=s.count)


@touches(abi.DropGradient)
def _drop_gradient(s: abi.DropGradient[Pointer], on: Setting) -> Touched:
    return counts(out_grad=s.count, mask=s.count, source_grad=s.count)


@touches(abi.Activate)
def _activate(s: abi.Activate[Pointer], on: Setting) -> Touched:
    return counts(source=s.count, out=s.count)


@touches(abi.Add)
def _add(s: abi.Add[Pointer], on: Setting) -> Touched:
    size = s.rows * s.columns
    return counts(source=size, other=size if s.each_row else s.columns, out=size)


@touches(abi.CrossEntropy)
def _cross_entropy(s: abi.CrossEntropy[Pointer], on: Setting) -> Touched:
    """The kernel checks every label against the columns."""
    need(s.labels is not None or s.probabilities is not None, "pointer probabilities")
    size = s.rows * s.columns
    return counts(logits=size, labels=s.rows, probabilities=size, softmax=size, loss=s.rows)


@touches(abi.CrossEntropyGradient)
def _cross_entropy_gradient(s: abi.CrossEntropyGradient[Pointer], on: Setting) -> Touched:
    """The kernel checks every label against the columns."""
    need(s.labels is not None or s.probabilities is not None, "pointer probabilities")
    size = s.rows * s.columns
    return counts(softmax=size, labels=s.rows, probabilities=size, logits_grad=size, loss_grad=s.rows)


@touches(abi.LayerNormGradient)
def _layer_norm_gradient(s: abi.LayerNormGradient[Pointer], on: Setting) -> Touched:
    size, sums = s.rows * s.columns, on.tasks * 2 * s.columns
    yield from counts(source=size, scale=s.columns, mean=s.rows, variance=s.rows)
    yield from counts(out_grad=size, source_grad=size, sums=sums)


@touches(abi.BatchNorm)
def _batch_norm(s: abi.BatchNorm[Pointer], on: Setting) -> Touched:
    size, each = s.images * s.channels * s.plane, s.channels
    return counts(source=size, scale=each, bias=each, out=size, mean=each, variance=each)


@touches(abi.BatchNormGradient)
def _batch_norm_gradient(s: abi.BatchNormGradient[Pointer], on: Setting) -> Touched:
    size, each = s.images * s.channels * s.plane, s.channels
    yield from counts(source=size, scale=each, mean=each, inverse=each)
    yield from counts(out_grad=size, source_grad=size, scale_grad=each, bias_grad=each)


@touches(abi.ChannelMoments)
def _channel_moments(s: abi.ChannelMoments[Pointer], on: Setting) -> Touched:
    return counts(source=s.pixels * s.channels, out=-(-s.pixels // CHUNK) * 2 * s.channels)


@touches(abi.NormalizeLast)
def _normalize_last(s: abi.NormalizeLast[Pointer], on: Setting) -> Touched:
    size, each = s.pixels * s.channels, s.channels
    return counts(source=size, mean=each, factor=each, bias=each, out=size)


@touches(abi.ChannelSlopes)
def _channel_slopes(s: abi.ChannelSlopes[Pointer], on: Setting) -> Touched:
    size, each = s.pixels * s.channels, s.channels
    return counts(source=size, mean=each, inverse=each, out_grad=size, out=-(-s.pixels // CHUNK) * 2 * each)


@touches(abi.NormalizeLastGradient)
def _normalize_last_gradient(s: abi.NormalizeLastGradient[Pointer], on: Setting) -> Touched:
    size, each = s.pixels * s.channels, s.channels
    yield from counts(source=size, out_grad=size, source_grad=size)
    yield from counts(mean=each, inverse=each, factor=each, level=each, slope=each)


@touches(abi.PoolLast)
def _pool_last(s: abi.PoolLast[Pointer], on: Setting) -> Touched:
    return counts(source=source_size(s), out=s.images * s.rows * s.columns * s.channels)


@touches(abi.PoolLastGradient)
def _pool_last_gradient(s: abi.PoolLastGradient[Pointer], on: Setting) -> Touched:
    need(s.mode or (s.source is not None and s.maxima is not None), "maxima")
    size = s.images * s.rows * s.columns * s.channels
    yield from counts(source=source_size(s), maxima=size, grad=size, out=source_size(s))


def source_size(s: Any) -> int:
    """Floats of the images that a pooling reads, each window of which has a cell."""
    for size, count, window, stride, before in (
        (s.source_height, s.rows, s.window_h, s.stride_h, s.pad_top),
        (s.source_width, s.columns, s.window_w, s.stride_w, s.pad_left),
    ):
        need(0 <= before < window and (count - 1) * stride - before < size, "a cell in each window")
    return int(s.images * s.source_height * s.source_width * s.channels)


# ---------------------------------------------------------------- updates; the kernels compare every row with the table's
def updated(s: Any, *changed: str) -> Touched:
    """What an optimizer's step reaches: a table, and a gradient for all of it or for some rows."""
    table, some = s.rows * s.columns, s.count * s.columns
    yield from counts(**dict.fromkeys(("param", *changed), table), grad=table if s.places is None else some)
    yield from counts(places=s.count)


@touches(abi.Adam)
def _adam(s: abi.Adam[Pointer], on: Setting) -> Touched:
    return updated(s, "moment1", "moment2")


@touches(abi.Momentum)
def _momentum(s: abi.Momentum[Pointer], on: Setting) -> Touched:
    return updated(s, "velocity")


@touches(abi.Descend)
def _descend(s: abi.Descend[Pointer], on: Setting) -> Touched:
    return updated(s)


@touches(abi.Adagrad)
def _adagrad(s: abi.Adagrad[Pointer], on: Setting) -> Touched:
    return updated(s, "moment")


@touches(abi.Rmsprop)
def _rmsprop(s: abi.Rmsprop[Pointer], on: Setting) -> Touched:
    return updated(s, "squares", "moment")


@touches(abi.Ftrl)
def _ftrl(s: abi.Ftrl[Pointer], on: Setting) -> Touched:
    return updated(s, "squares", "linear")


@touches(abi.ScatterRows)
def _scatter_rows(s: abi.ScatterRows[Pointer], on: Setting) -> Touched:
    return counts(source=s.count * s.columns, places=s.count, out=s.rows * s.columns)


# ---------------------------------------------------------------- planes
@touches(abi.MaximumGradient)
def _maximum_gradient(s: abi.MaximumGradient[Pointer], on: Setting) -> Touched:
    source, maxima = s.planes * s.source_height * s.source_width, s.planes * s.rows * s.columns
    return counts(source=source, maxima=maxima, grad=maxima, out=source)


@touches(abi.SamplePlanes)
def _sample_planes(s: abi.SamplePlanes[Pointer], on: Setting) -> Touched:
    places, plane = s.planes * s.places, s.source_height * s.source_width
    need(plane > 0 or not places * s.channels, "a cell")
    yield "source", 0, s.planes * s.channels * plane
    yield from counts(down=places, across=places, out=places * s.channels, weights=places)


@touches(abi.DepthwisePlanes)
def _depthwise_planes(s: abi.DepthwisePlanes[Pointer], on: Setting) -> Touched:
    need(s.task_scratch >= 2 * padded_plane(s, on) + s.reach, "memory for a plane")
    planes = s.images * s.channels
    yield from counts(source=planes * s.source_height * s.source_width, filters=s.channels * s.taps)
    yield from counts(out=planes * s.rows * s.columns, scratch=on.tasks * s.task_scratch, offsets=s.taps)


@touches(abi.DepthwisePlanesGradient)
def _depthwise_planes_gradient(s: abi.DepthwisePlanesGradient[Pointer], on: Setting) -> Touched:
    need(s.task_scratch >= 3 * padded_plane(s, on) + 2 * s.reach, "memory for a plane")
    planes, filters = s.images * s.channels, s.channels * s.taps
    source = planes * s.source_height * s.source_width
    yield from counts(source=source, filters=filters, grad=planes * s.rows * s.columns, source_grad=source)
    yield from counts(filters_grad=filters, scratch=on.tasks * s.task_scratch, offsets=s.taps)


def padded_plane(s: abi.DepthwisePlanes[Pointer] | abi.DepthwisePlanesGradient[Pointer], on: Setting) -> int:
    """Floats of a plane with its padding, plus those that vectors read beyond it; every window must be inside."""
    plane = s.padded_rows * s.padded_columns
    inside = s.pad_top + s.source_height <= s.padded_rows and s.pad_left + s.source_width <= s.padded_columns
    need(min(s.pad_top, s.pad_left) >= 0 and inside, "planes within their padding")
    need(min(s.rows, s.columns, s.stride_h, s.stride_w, s.taps) > 0, "windows")
    last = (s.rows - 1) * s.stride_h * s.padded_columns + (s.columns - 1) * s.stride_w
    need(last + s.reach < plane, "windows within the plane")
    return plane + 4 * on.width


def taps(s: abi.DepthwisePlanes[Array] | abi.DepthwisePlanesGradient[Array]) -> bool:
    """The last offset is the farthest."""
    return bool(within(s.offsets, s.reach + 1) and s.offsets[-1] == s.reach)


# ---------------------------------------------------------------- regions
@touches(abi.AlignRegions)
def _align_regions(s: abi.AlignRegions[Pointer], on: Setting) -> Touched:
    bins = s.bins_h * s.bins_w
    memory = 2 * max(s.source_height, s.source_width) + BIN_CELLS * (s.bins_h + s.bins_w)
    memory += s.bins_h * s.source_height + s.bins_w * s.source_width + (s.source_width + bins) * on.width
    need(s.task_scratch >= memory and s.task_scratch % 2 == 0, "memory for a region")
    yield from counts(source=maps(s, on), regions=4 * s.region_count, scratch=on.tasks * s.task_scratch)
    yield from counts(out=s.region_count * s.channels * bins, region_images=s.region_count)


@touches(abi.PoolRegions)
def _pool_regions(s: abi.PoolRegions[Pointer], on: Setting) -> Touched:
    bins = s.bins_h * s.bins_w
    out = s.region_count * s.channels * bins
    yield from counts(source=maps(s, on), scratch=on.tasks * 2 * bins * on.width, out=out, places=out)
    yield "edges", 0, s.region_count * (1 + 2 * (s.bins_h + s.bins_w))


def maps(s: abi.AlignRegions[Pointer] | abi.PoolRegions[Pointer], on: Setting) -> int:
    """Floats of the maps, in blocks of channels."""
    return s.images * on.blocks(s.channels) * s.source_height * s.source_width * on.width


def images(s: abi.AlignRegions[Array]) -> bool:
    """Every region has an image."""
    return within(s.region_images, s.images)


def edges(s: abi.PoolRegions[Array]) -> bool:
    """Every region has an image, and its bins lie within the maps."""
    table, rows = s.edges, 1 + 2 * s.bins_h
    inside = within(table[:, 1:rows], s.source_height + 1) and within(table[:, rows:], s.source_width + 1)
    return inside and within(table[:, 0], s.images)


# ---------------------------------------------------------------- boxes
@touches(abi.BestBoxes)
def _best_boxes(s: abi.BestBoxes[Pointer], on: Setting) -> Touched:
    need(s.box_count < 1 << 31, "places of 32 bits")
    lines = s.images * s.classes
    yield from counts(boxes=s.images * s.box_count * 4, scores=lines * s.box_count)
    yield from counts(scratch=lines * 5 * (s.most + on.width), places=lines * (s.most + 1))


@touches(abi.Detections)
def _detections(s: abi.Detections[Pointer], on: Setting) -> Touched:
    """The indices are those that BEST_BOXES has found."""
    lines = s.images * s.classes
    yield from counts(boxes=s.images * s.box_count * 4, scores=lines * s.box_count, starts=s.images + 1)
    yield from counts(out=6 * s.rows, heap=s.rows, places=lines * (s.most + 1), index=s.rows)


@touches(abi.Suppress)
def _suppress(s: abi.Suppress[Pointer], on: Setting) -> Touched:
    return counts(boxes=4 * s.count, scratch=5 * (s.count + on.width), kept=s.count + 1)


@touches(abi.SuppressPolygons)
def _suppress_polygons(s: abi.SuppressPolygons[Pointer], on: Setting) -> Touched:
    need(2 <= s.numbers <= 2 * MOST_CORNERS, "corners that a stack holds")
    return counts(polygons=s.count * s.numbers, scratch=5 * s.count, kept=s.count + 1)


def detection_starts(s: abi.Detections[Array]) -> bool:
    """Where the detections of the images start."""
    return ascending(s.starts, s.rows)


# ---------------------------------------------------------------- sequences
@touches(abi.Viterbi)
def _viterbi(s: abi.Viterbi[Pointer], on: Setting) -> Touched:
    yield from counts(source=s.rows * s.tags, transitions=(2 + s.tags) * s.tags, scratch=on.tasks * s.task_scratch)
    yield from counts(path=s.rows, runs=2 * s.sequences)
    need(s.task_scratch >= (s.longest + 2) * (s.tags + on.width), "memory for the longest")


def tagged(s: abi.Viterbi[Array]) -> bool:
    """Sequences of rows that exist, none longer than the longest."""
    starts, lengths = s.runs.T
    return bool(starts.min() >= 0 and (starts + lengths).max() <= s.rows and lengths.max() <= s.longest)


@touches(abi.Lstm)
def _lstm(s: abi.Lstm[Pointer], on: Setting) -> Touched:
    state, first = s.rows * s.size, s.sequences * s.size
    yield from counts(source=4 * state, weights=s.size * on.whole(4 * s.size), bias=(7 if s.peepholes else 4) * s.size)
    yield from counts(initial_hidden=first, initial_cell=first, hidden=state, cell=state, gates=4 * state)
    yield from counts(activated=state, scratch=6 * s.size * s.task_sequences * on.tasks)
    yield from packing(s)


@touches(abi.LstmGradient)
def _lstm_gradient(s: abi.LstmGradient[Pointer], on: Setting) -> Touched:
    state, first = s.rows * s.size, s.sequences * s.size
    yield from counts(hidden_grad=state, weights=4 * s.size * on.whole(s.size), bias=(7 if s.peepholes else 4) * s.size)
    yield from counts(initial_hidden=first, initial_cell=first, hidden=state, cell=state, gates=4 * state)
    yield from counts(activated=state, scratch=6 * s.size * s.task_sequences * on.tasks, source_grad=4 * state)
    yield from counts(hidden_before=state, cell_before=state, initial_hidden_grad=first, initial_cell_grad=first)
    yield from packing(s)


@touches(abi.ProjectedLstm)
def _projected_lstm(s: abi.ProjectedLstm[Pointer], on: Setting) -> Touched:
    state, first, out = s.rows * s.size, s.sequences * s.size, s.rows * s.fed_back
    yield from counts(
        source=4 * state, weights=s.fed_back * on.whole(4 * s.size), bias=(7 if s.peepholes else 4) * s.size
    )
    yield from counts(
        projection=s.size * on.whole(s.fed_back), initial_out=s.sequences * s.fed_back, initial_cell=first
    )
    yield from counts(out=out, hidden=state, cell=state, gates=4 * state, activated=state)
    yield "scratch", 0, (s.size + s.fed_back) * s.task_sequences * on.tasks
    yield from packing(s)


@touches(abi.ProjectedLstmGradient)
def _projected_lstm_gradient(s: abi.ProjectedLstmGradient[Pointer], on: Setting) -> Touched:
    state, first, out, initial = s.rows * s.size, s.sequences * s.size, s.rows * s.fed_back, s.sequences * s.fed_back
    yield from counts(out_grad=out, weights=4 * s.size * on.whole(s.fed_back), bias=(7 if s.peepholes else 4) * s.size)
    yield from counts(projection=s.fed_back * on.whole(s.size), initial_out=initial, initial_cell=first, out=out)
    yield from counts(cell=state, gates=4 * state, activated=state, source_grad=4 * state, projected_grad=out)
    yield from counts(out_before=out, cell_before=state, initial_out_grad=initial, initial_cell_grad=first)
    yield "scratch", 0, (6 * s.size + s.fed_back) * s.task_sequences * on.tasks
    yield from packing(s)


@touches(abi.Gru)
def _gru(s: abi.Gru[Pointer], on: Setting) -> Touched:
    state, size = s.rows * s.size, s.size
    yield from counts(source=3 * state, gate_weights=size * on.whole(2 * size), candidate_weights=size * on.whole(size))
    yield from counts(bias=3 * size, initial=s.sequences * size, hidden=state, gates=3 * state)
    yield from counts(packed_hidden=state, reset=state)
    yield from packing(s)


@touches(abi.GruGradient)
def _gru_gradient(s: abi.GruGradient[Pointer], on: Setting) -> Touched:
    state, first, square = s.rows * s.size, s.sequences * s.size, s.size * on.whole(s.size)
    yield from counts(hidden_grad=state, gate_weights=2 * square, candidate_weights=square, gates=3 * state)
    yield from counts(packed_hidden=state, initial=first, gates_grad=3 * state, initial_grad=first)
    yield "scratch", 0, 2 * s.size * s.task_sequences * on.tasks
    yield from packing(s)


def packing(s: Recurrent) -> Touched:
    """The starts of the steps, and the row that each packed row is."""
    return counts(starts=s.steps + 1, row_of=s.rows)


def packed(s: Any) -> bool:
    """Steps of existing rows, each with at most as many sequences as the previous one; tasks may leave some out."""
    alive = np.diff(s.starts)
    fewer = not alive.size or bool(alive[0] <= s.sequences and (alive[1:] <= alive[:-1]).all())
    return fewer and ascending(s.starts, s.rows) and within(s.row_of, s.rows)


def sequence_starts(s: abi.PoolSequences[Array] | abi.SoftmaxSequences[Array]) -> bool:
    """Sequences of rows that there are."""
    return ascending(s.offsets, s.source_rows)


@touches(abi.Loop)
def _loop(s: abi.Loop[Pointer], on: Setting) -> Touched:
    """Words of 64 bits; addresses within the tables are those of arrays that running.py keeps."""
    need(s.kept is not None or not (s.keeps or s.given), "room for what is kept")
    values = LOOP_VALUE * s.slot_count
    yield from counts(instructions=LOOP_INSTRUCTION * s.count, state=LOOP_STATE, values=values)
    yield from counts(outer=s.slot_count, kept=values * s.kept_steps, arrays=LOOP_ARRAY * s.array_count)


TABLES: dict[abi.Kind, Callable[[Any], bool]] = {
    abi.Kind.DEPTHWISE_PLANES: taps,
    abi.Kind.DEPTHWISE_PLANES_GRADIENT: taps,
    abi.Kind.ALIGN_REGIONS: images,
    abi.Kind.POOL_REGIONS: edges,
    abi.Kind.DETECTIONS: detection_starts,
    abi.Kind.VITERBI: tagged,
    abi.Kind.LSTM: packed,
    abi.Kind.LSTM_GRADIENT: packed,
    abi.Kind.PROJECTED_LSTM: packed,
    abi.Kind.PROJECTED_LSTM_GRADIENT: packed,
    abi.Kind.GRU: packed,
    abi.Kind.GRU_GRADIENT: packed,
    abi.Kind.POOL_SEQUENCES: sequence_starts,
    abi.Kind.SOFTMAX_SEQUENCES: sequence_starts,
}


def within(table: Any, end: int) -> bool:
    """Whether all numbers of a table are at least 0 and below `end`."""
    return not table.size or bool(table.min() >= 0 and table.max() < end)


def ascending(starts: Any, end: int) -> bool:
    """Whether starts begin at 0, do not decrease, and end at `end` or before."""
    return bool(starts[0] == 0 and starts[-1] <= end and (starts[1:] >= starts[:-1]).all())
