"""No kernel gets an array that is shorter than it reaches, whoever called it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.extents import EXTENTS, ExtentError
from fluidtool.runtime.engines.native.kernels.extents import TABLES, check_call

WIDTH, TASKS = 8, 2
Kernel = type[abi.Arguments[Any]]
STEPS, SIZE, ROW, RUNS = 2, 3, 5, 3  # of packed sequences: 3 rows in the first step, 2 in the second
PACKED = {"steps": STEPS, "size": SIZE, "task_sequences": 2, "rows": ROW, "sequences": RUNS}
PACKING = {"starts": 2 * (STEPS + 1), "row_of": 2 * ROW}
PLANES = {
    "images": 2, "channels": 3, "source_height": 5, "source_width": 6, "rows": 3, "columns": 4, "stride_h": 1,
    "stride_w": 1, "padded_rows": 5, "padded_columns": 6, "taps": 9,
}  # fmt: skip
REACH, PLANE = 2 * 6 + 2, 5 * 6 + 4 * WIDTH
BINS = {"region_count": 4, "channels": 3, "source_height": 5, "source_width": 6, "bins_h": 2, "bins_w": 2, "images": 2}
MAPS = 2 * 5 * 6 * WIDTH
ALIGN = 2 * 6 + 6 * 4 + 2 * 5 + 2 * 6 + (6 + 4) * WIDTH
ROWS = {"count": 2, "columns": 3, "rows": 5}
BATCH = {"images": 2, "channels": 3, "plane": 4}
BOXES = {"images": 2, "classes": 3, "box_count": 7, "most": 4}

CALLS: dict[
    Kernel, tuple[dict[str, int], dict[str, int]]
] = {  # sizes, and so many float32s as each reaches, not one more
    abi.FewRows: ({"rows": 2, "depth": 3, "columns": 5}, {"source": 6, "weights": 15, "out": 10}),
    abi.Multiply: (
        {"rows": 2, "depth": 3, "columns": 5, "source_row": 1, "source_column": 4, "other_row": 7, "other_column": 1}
        | {
            "out_row": 6,
            "outer": 1,
            "inner": 1,
            "column_parts": 1,
            "row_parts": 1,
            "turned": 6,
            "task_scratch": 6 + 3 * WIDTH,
        },
        {"source": 10, "other": 19, "out": 11, "scratch": TASKS * (6 + 3 * WIDTH)},
    ),
    abi.ActivationGradient: ({"count": 7}, {"out": 7, "out_grad": 7, "source_grad": 7}),
    abi.InputGradient: ({"count": 7}, {"source": 7, "out_grad": 7, "source_grad": 7}),
    abi.SoftmaxGradient: ({"rows": 2, "columns": 3}, {"out": 6, "out_grad": 6, "source_grad": 6}),
    abi.Draw: ({"count": 8}, {"generator": 8, "out": 8}),
    abi.Drop: ({"count": 8}, {"source": 8, "drawn": 8, "out": 8, "mask": 2}),
    abi.DropGradient: ({"count": 8}, {"out_grad": 8, "mask": 2, "source_grad": 8}),
    abi.Activate: ({"count": 7}, {"source": 7, "out": 7}),
    abi.Add: ({"rows": 2, "columns": 3, "each_row": 1}, {"source": 6, "other": 6, "out": 6}),
    abi.Descend: (ROWS, {"param": 15, "grad": 6, "places": 4}),
    abi.Momentum: (ROWS, {"param": 15, "velocity": 15, "grad": 6, "places": 4}),
    abi.Adam: (ROWS, {"param": 15, "moment1": 15, "moment2": 15, "grad": 6, "places": 4}),
    abi.Adagrad: (ROWS, {"param": 15, "moment": 15, "grad": 6, "places": 4}),
    abi.Rmsprop: (ROWS, {"param": 15, "squares": 15, "moment": 15, "grad": 6, "places": 4}),
    abi.Ftrl: (ROWS, {"param": 15, "squares": 15, "linear": 15, "grad": 6, "places": 4}),
    abi.ScatterRows: (ROWS, {"source": 6, "places": 4, "out": 15}),
    abi.CrossEntropy: ({"rows": 2, "columns": 3}, {"logits": 6, "labels": 4, "softmax": 6, "loss": 2}),
    abi.CrossEntropyGradient: (
        {"rows": 2, "columns": 3},
        {"softmax": 6, "probabilities": 6, "logits_grad": 6, "loss_grad": 2},
    ),
    abi.LayerNormGradient: (
        {"rows": 2, "columns": 3},
        {"source": 6, "scale": 3, "mean": 2, "variance": 2, "out_grad": 6, "source_grad": 6, "sums": TASKS * 6},
    ),
    abi.BatchNorm: (BATCH, {"source": 24, "scale": 3, "bias": 3, "out": 24, "mean": 3, "variance": 3}),
    abi.BatchNormGradient: (
        BATCH,
        {"source": 24, "scale": 3, "mean": 3, "inverse": 3, "out_grad": 24, "source_grad": 24}
        | {"scale_grad": 3, "bias_grad": 3},
    ),
    abi.MaximumGradient: (
        {"planes": 2, "source_height": 4, "source_width": 5, "rows": 2, "columns": 3},
        {"source": 40, "maxima": 12, "grad": 12, "out": 40},
    ),
    abi.SamplePlanes: (
        {"planes": 2, "channels": 3, "source_height": 4, "source_width": 5, "places": 6},
        {"source": 120, "down": 12, "across": 12, "out": 36, "weights": 12},
    ),
    abi.DepthwisePlanes: (
        PLANES | {"task_scratch": 2 * PLANE + REACH, "reach": REACH},
        {"source": 180, "filters": 27, "out": 72, "scratch": TASKS * (2 * PLANE + REACH), "offsets": 18},
    ),
    abi.DepthwisePlanesGradient: (
        PLANES | {"task_scratch": 3 * PLANE + 2 * REACH, "reach": REACH},
        {"source": 180, "filters": 27, "grad": 72, "source_grad": 180, "offsets": 18, "filters_grad": 27}
        | {"scratch": TASKS * (3 * PLANE + 2 * REACH)},
    ),
    abi.AlignRegions: (
        BINS | {"task_scratch": ALIGN},
        {"source": MAPS, "regions": 16, "scratch": TASKS * ALIGN, "out": 48, "region_images": 8},
    ),
    abi.PoolRegions: (BINS, {"source": MAPS, "scratch": TASKS * 2 * 4 * WIDTH, "out": 48, "places": 96, "edges": 72}),
    abi.BestBoxes: (BOXES, {"boxes": 56, "scores": 42, "scratch": 6 * 5 * (4 + WIDTH), "places": 60}),
    abi.Detections: (
        BOXES | {"rows": 5},
        {"boxes": 56, "scores": 42, "starts": 6, "out": 30, "heap": 10, "places": 60, "index": 5},
    ),
    abi.Suppress: ({"count": 3}, {"boxes": 12, "scratch": 5 * (3 + WIDTH), "kept": 8}),
    abi.SuppressPolygons: ({"count": 3, "numbers": 8}, {"polygons": 24, "scratch": 15, "kept": 8}),
    abi.Viterbi: (
        {"sequences": 2, "tags": 3, "task_scratch": 6 * (3 + WIDTH), "rows": 7, "longest": 4},
        {"source": 21, "transitions": 15, "scratch": TASKS * 6 * (3 + WIDTH), "path": 14, "runs": 8},
    ),
    abi.Lstm: (
        PACKED | {"peepholes": 1},
        {"source": 60, "weights": 3 * 16, "bias": 21, "initial_hidden": 9, "initial_cell": 9, "hidden": 15, "cell": 15}
        | {"gates": 60, "activated": 15, "scratch": 6 * SIZE * 2 * TASKS}
        | PACKING,
    ),
    abi.LstmGradient: (
        PACKED,
        {"hidden_grad": 15, "weights": 12 * 8, "bias": 12, "initial_hidden": 9, "initial_cell": 9, "hidden": 15}
        | {"cell": 15, "gates": 60, "activated": 15, "scratch": 6 * SIZE * 2 * TASKS, "source_grad": 60}
        | {"hidden_before": 15, "cell_before": 15, "initial_hidden_grad": 9, "initial_cell_grad": 9}
        | PACKING,
    ),
    abi.ProjectedLstm: (
        PACKED | {"peepholes": 1, "fed_back": 2},
        {
            "source": 60,
            "weights": 2 * 16,
            "projection": 3 * 8,
            "bias": 21,
            "initial_out": 6,
            "initial_cell": 9,
            "out": 10,
        }
        | {"hidden": 15, "cell": 15, "gates": 60, "activated": 15, "scratch": (SIZE + 2) * 2 * TASKS}
        | PACKING,
    ),
    abi.ProjectedLstmGradient: (
        PACKED | {"fed_back": 2},
        {
            "out_grad": 10,
            "weights": 12 * 8,
            "projection": 2 * 8,
            "bias": 12,
            "initial_out": 6,
            "initial_cell": 9,
            "out": 10,
        }
        | {"cell": 15, "gates": 60, "activated": 15, "scratch": (6 * SIZE + 2) * 2 * TASKS, "source_grad": 60}
        | {"projected_grad": 10, "out_before": 10, "cell_before": 15, "initial_out_grad": 6, "initial_cell_grad": 9}
        | PACKING,
    ),
    abi.PoolSequences: (
        {"sequences": 3, "columns": 5, "source_rows": 7},
        {"source": 35, "out": 15, "offsets": 8, "places": 15},
    ),
    abi.SoftmaxSequences: ({"sequences": 3, "source_rows": 7}, {"source": 7, "out": 7, "offsets": 8}),
    abi.Loop: (
        {"count": 2, "slot_count": 3, "kept_steps": 4, "array_count": 1, "keeps": 0, "given": 0},
        {"instructions": 2 * 48, "state": 28, "values": 3 * 22, "outer": 6, "kept": 12 * 22, "arrays": 6},
    ),
    abi.Gru: (
        PACKED,
        {"source": 45, "gate_weights": 3 * 8, "candidate_weights": 3 * 8, "bias": 9, "initial": 9, "hidden": 15}
        | {"gates": 45, "packed_hidden": 15, "reset": 15}
        | PACKING,
    ),
    abi.GruGradient: (
        PACKED,
        {"hidden_grad": 15, "gate_weights": 6 * 8, "candidate_weights": 3 * 8, "gates": 45, "packed_hidden": 15}
        | {"initial": 9, "gates_grad": 45, "initial_grad": 9, "scratch": 2 * SIZE * 2 * TASKS}
        | PACKING,
    ),
}
ENTROPIES = (abi.CrossEntropy, abi.CrossEntropyGradient)  # of labels or of probabilities
UPDATES = (abi.Descend, abi.Momentum, abi.Adam, abi.Adagrad, abi.Rmsprop, abi.Ftrl)
RECURRENT = (abi.Lstm, abi.LstmGradient, abi.ProjectedLstm, abi.ProjectedLstmGradient, abi.Gru, abi.GruGradient)
SEQUENCES = (abi.PoolSequences, abi.SoftmaxSequences)
GOOD_TABLES: dict[Kernel, tuple[str, list[Any]]] = {
    abi.DepthwisePlanes: ("offsets", [0, 1, 2, 6, 7, 8, 12, 13, 14]),
    abi.DepthwisePlanesGradient: ("offsets", [0, 1, 2, 6, 7, 8, 12, 13, 14]),
    abi.AlignRegions: ("region_images", [0, 1, 1, 0]),
    abi.PoolRegions: ("edges", [[1, 0, 2, 2, 5, 0, 3, 3, 6]] * 4),
    abi.Detections: ("starts", [0, 3, 5]),
    abi.Viterbi: ("runs", [[0, 4], [4, 3]]),
    **{kernel: ("starts", [0, 3, 5]) for kernel in RECURRENT},
    **{kernel: ("offsets", [0, 3, 3, 7]) for kernel in SEQUENCES},
}
BAD_TABLES: dict[Kernel, list[Any]] = {
    abi.DepthwisePlanes: [[0, 1, 2, 6, 7, 8, 12, 13, 15], [0, 1, 2, 6, 7, 8, 12, 14, 13], [-1, *range(1, 8), 14]],
    abi.AlignRegions: [[0, 2, 0, 0], [0, -1, 0, 0]],
    abi.PoolRegions: [
        [[2, 0, 2, 2, 5, 0, 3, 3, 6]] * 4,
        [[0, 0, 2, 2, 6, 0, 3, 3, 6]] * 4,
        [[0, 0, 2, 2, 5, 0, 3, 3, 7]] * 4,
        [[0, -1, 2, 2, 5, 0, 3, 3, 6]] * 4,
    ],
    abi.Detections: [[0, 3, 6], [1, 3, 5], [0, 5, 3]],
    abi.Viterbi: [[[0, 4], [4, 4]], [[-1, 4], [3, 3]], [[0, 5], [5, 2]]],
    **{kernel: [[0, 3, 2, 7], [1, 3, 3, 7], [0, 3, 3, 8]] for kernel in SEQUENCES},
    **{kernel: [[0, 2, 5], [1, 3, 5], [0, 3, 6], [0, 4, 5]] for kernel in RECURRENT},
}


def name_of(case: Any) -> str:
    return case.__name__ if isinstance(case, type) else str(case)


def call(kernel: Kernel, sizes: dict[str, int] | None = None, **arrays: Any) -> abi.Arguments[Any]:
    """A call that fits to the last number, but for what is given; all sizes that are not said are 0."""
    given, counts = CALLS[kernel]
    found: dict[str, Any] = {name: np.zeros(count, np.float32) for name, count in counts.items()}
    if kernel in GOOD_TABLES:
        name, table = GOOD_TABLES[kernel]
        found[name] = np.array(table, np.int64)
    if "row_of" in counts:
        found["row_of"] = np.arange(ROW, dtype=np.int64)
    numbers = dict.fromkeys(kernel.size_counts, 0) | given | (sizes or {})
    return kernel(**(found | arrays), **numbers, **dict.fromkeys(kernel.float_names, 0.0))


@pytest.mark.parametrize("kernel", CALLS, ids=name_of)
def test_a_call_that_fits_to_the_last_number_is_made(kernel: Kernel) -> None:
    check_call(call(kernel), WIDTH, TASKS)


@pytest.mark.parametrize(
    ("kernel", "name"), [(kernel, name) for kernel, (_, counts) in CALLS.items() for name in counts], ids=name_of
)
def test_an_array_that_is_one_number_short_is_refused(kernel: Kernel, name: str) -> None:
    array = getattr(call(kernel), name)
    short = call(kernel, **{name: np.zeros(array.nbytes // 4 - 1, np.float32)})
    with pytest.raises(ExtentError, match=rf"{kernel.kind.name} must not run: pointer {name} accesses bytes"):
        check_call(short, WIDTH, TASKS)


@pytest.mark.parametrize("kernel", CALLS, ids=name_of)
def test_an_array_that_is_not_contiguous_is_refused(kernel: Kernel) -> None:
    name, count = next(iter(CALLS[kernel][1].items()))
    strided = call(kernel, **{name: np.zeros(2 * count, np.float32)[::2]})
    with pytest.raises(ExtentError, match=f"pointer {name} accesses bytes"):
        check_call(strided, WIDTH, TASKS)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [(kernel, name) for kernel, (_, counts) in CALLS.items() for name in counts if name not in kernel.optional],
    ids=name_of,
)
def test_an_array_that_is_missing_is_refused(kernel: Kernel, name: str) -> None:
    with pytest.raises(ExtentError, match=f"{kernel.kind.name} must not run: it needs pointer {name}"):
        check_call(call(kernel, **{name: None}), WIDTH, TASKS)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [(kernel, name) for kernel in CALLS if kernel not in (*ENTROPIES, *UPDATES) for name in kernel.optional],
    ids=name_of,
)
def test_an_array_that_may_be_missing_is_not_asked_for(kernel: Kernel, name: str) -> None:
    check_call(call(kernel, **{name: None}), WIDTH, TASKS)


@pytest.mark.parametrize("kernel", UPDATES, ids=name_of)
def test_a_gradient_without_places_has_all_rows(kernel: Kernel) -> None:
    check_call(call(kernel, {"count": 0}, places=None, grad=np.zeros(15, np.float32)), WIDTH, TASKS)
    with pytest.raises(ExtentError, match="pointer grad accesses bytes"):
        check_call(call(kernel, {"count": 0}, places=None, grad=np.zeros(14, np.float32)), WIDTH, TASKS)


@pytest.mark.parametrize("kernel", ENTROPIES, ids=name_of)
def test_a_cross_entropy_with_nothing_is_refused(kernel: Kernel) -> None:
    with pytest.raises(ExtentError, match="it needs pointer probabilities"):
        check_call(call(kernel, labels=None, probabilities=None), WIDTH, TASKS)


@pytest.mark.parametrize(
    ("kernel", "table"), [(kernel, table) for kernel, bad in BAD_TABLES.items() for table in bad], ids=name_of
)
def test_a_table_that_leads_elsewhere_is_refused(kernel: Kernel, table: list[int]) -> None:
    name, _ = GOOD_TABLES[kernel]
    with pytest.raises(ExtentError, match=f"{kernel.kind.name} must not run: it needs a table that fits its sizes"):
        check_call(call(kernel, **{name: np.array(table, np.int64)}), WIDTH, TASKS)


@pytest.mark.parametrize("kernel", RECURRENT, ids=name_of)
def test_a_row_that_no_sequence_has_is_refused(kernel: Kernel) -> None:
    with pytest.raises(ExtentError, match="a table that fits its sizes"):
        check_call(call(kernel, row_of=np.array([0, 1, 2, 3, ROW], np.int64)), WIDTH, TASKS)


def test_polygons_with_more_corners_than_a_stack_holds_are_refused() -> None:
    with pytest.raises(ExtentError, match="corners that a stack holds"):
        check_call(call(abi.SuppressPolygons, {"count": 1, "numbers": 34}), WIDTH, 1)


def test_windows_that_leave_their_plane_are_refused() -> None:
    with pytest.raises(ExtentError, match="windows within the plane"):
        check_call(call(abi.DepthwisePlanes, {"columns": 5}), WIDTH, TASKS)


def test_every_kernel_has_its_extents() -> None:
    assert set(EXTENTS) == set(abi.Kind)
    assert set(TABLES) == {kernel.kind for kernel in GOOD_TABLES}
