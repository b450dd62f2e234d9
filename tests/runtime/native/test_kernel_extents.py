"""No kernel hands its kernel an array that is shorter than the kernel reaches, whoever made it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fluidtool.runtime.engines.native import kernels
from fluidtool.runtime.engines.native.calls import Kind
from fluidtool.runtime.engines.native.extents import EXTENTS, ExtentError
from fluidtool.runtime.engines.native.kernels.extents import BEHIND, ROWS, SEQUENCES, TABLES, check_call

WIDTH, TASKS = 8, 2
STEPS, SIZE, ROW, RUNS = 2, 3, 5, 3  # of packed sequences: 3 rows in the first step, 2 in the second
PACKED = {0: STEPS, 1: SIZE, 2: 2, ROWS: ROW, SEQUENCES: RUNS}
PACKING = {BEHIND + 9: 2 * (STEPS + 1), BEHIND + 10: 2 * ROW}
PLANES = dict(enumerate((2, 3, 5, 6, 3, 4, 1, 1, 0, 0, 5, 6, 9)))  # windows of 3 x 3 on planes of 5 x 6
REACH, PLANE = 2 * 6 + 2, 5 * 6 + 4 * WIDTH
BINS = dict(enumerate((4, 3, 5, 6, 2, 2))) | {ROWS: 2}  # 4 regions of 2 maps [3, 5, 6], bins of 2 x 2
MAPS = 2 * 5 * 6 * WIDTH
ALIGN = 2 * 6 + 6 * 4 + 2 * 5 + 2 * 6 + (6 + 4) * WIDTH


def behind(*counts: int) -> dict[int, int]:
    return {BEHIND + at: count for at, count in enumerate(counts)}


CALLS: dict[Kind, tuple[dict[int, int], dict[int, int]]] = {  # sizes, and the float32s of each slot, not one more
    Kind.FEW_ROWS: ({0: 2, 1: 3, 2: 5}, {0: 6, 1: 15, 3: 10}),
    Kind.ACTIVATION_GRADIENT: ({0: 7}, {0: 7, 1: 7, 2: 7}),
    Kind.DESCEND: ({0: 7}, {0: 7, 1: 7, 2: 7}),
    Kind.MOMENTUM: ({0: 7}, dict.fromkeys(range(5), 7)),
    Kind.ADAM: ({0: 7}, {1: 6} | behind(*[7] * 7)),
    Kind.ADAM_ROWS: ({0: 2, 1: 3, 2: 5}, {1: 6} | behind(15, 15, 15, 6, 4)),
    Kind.ADAGRAD_ROWS: ({0: 2, 1: 3, 2: 5}, {0: 15, 1: 15, 2: 6, 3: 4}),
    Kind.SCATTER_ROWS: ({0: 2, 1: 3, 2: 5}, {0: 6, 1: 4, 2: 15}),
    Kind.CROSS_ENTROPY: ({0: 2, 1: 3}, {0: 6, 1: 4, 3: 6, 4: 2}),
    Kind.CROSS_ENTROPY_GRADIENT: ({0: 2, 1: 3}, {0: 6, 2: 6, 3: 6, 4: 2}),
    Kind.LAYER_NORM_GRADIENT: ({0: 2, 1: 3}, behind(6, 3, 2, 2, 6, 6, TASKS * 6)),
    Kind.BATCH_NORM: ({0: 2, 1: 3, 2: 4}, behind(24, 3, 3, 24, 3, 3)),
    Kind.BATCH_NORM_GRADIENT: ({0: 2, 1: 3, 2: 4}, behind(24, 3, 3, 3, 24, 24, 3, 3)),
    Kind.MAXIMUM_GRADIENT: ({0: 2, 1: 4, 2: 5, 3: 2, 4: 3}, {0: 40, 1: 12, 2: 12, 3: 40}),
    Kind.SAMPLE_PLANES: ({0: 2, 1: 3, 2: 4, 3: 5, 4: 6}, {0: 120, 1: 12, 2: 12, 3: 36, 4: 12}),
    Kind.DEPTHWISE_PLANES: (
        PLANES | {13: 2 * PLANE + REACH, 14: REACH},
        {0: 180, 1: 27, 3: 72, 4: TASKS * (2 * PLANE + REACH), 5: 18},
    ),
    Kind.DEPTHWISE_PLANES_GRADIENT: (
        PLANES | {13: 3 * PLANE + 2 * REACH, 14: REACH},
        {0: 180, 1: 27, 2: 72, 3: 180, 4: TASKS * (3 * PLANE + 2 * REACH), 5: 18, 6: 27},
    ),
    Kind.ALIGN_REGIONS: (BINS | {9: ALIGN}, {0: MAPS, 1: 16, 2: TASKS * ALIGN, 3: 48, 5: 8}),
    Kind.POOL_REGIONS: (BINS, {0: MAPS, 2: TASKS * 2 * 4 * WIDTH, 3: 48, 4: 96, 5: 72}),
    Kind.BEST_BOXES: ({0: 2, 1: 3, 2: 7, 3: 4}, {0: 56, 1: 42, 2: 6 * 5 * (4 + WIDTH), 5: 60}),
    Kind.DETECTIONS: ({0: 2, 1: 3, 2: 7, 3: 4, ROWS: 5}, {0: 56, 1: 42, 2: 6, 3: 30, 4: 10, 5: 60, 6: 5}),
    Kind.SUPPRESS: ({0: 3, 1: 4}, {0: 12, 1: 5 * (3 + WIDTH), 5: 8}),
    Kind.SUPPRESS_POLYGONS: ({0: 3, 1: 8}, {0: 24, 1: 15, 5: 8}),
    Kind.VITERBI: (
        {0: 2, 1: 3, 2: 6 * (3 + WIDTH), ROWS: 7, SEQUENCES: 4},
        {0: 21, 1: 15, 2: TASKS * 6 * (3 + WIDTH), 4: 14, 5: 8},
    ),
    Kind.LSTM: (
        PACKED | {3: 1},
        behind(60, 3 * 16, 21, 9, 9, 15, 15, 60, 15) | {BEHIND + 11: 2 * SIZE * 2 * TASKS} | PACKING,
    ),
    Kind.LSTM_GRADIENT: (
        PACKED,
        behind(15, 12 * 8, 12, 9, 9, 15, 15, 60, 15)
        | {BEHIND + 11: 6 * SIZE * 2 * TASKS, BEHIND + 12: 60, BEHIND + 13: 15, BEHIND + 14: 15}
        | {BEHIND + 15: 9, BEHIND + 16: 9}
        | PACKING,
    ),
    Kind.GRU: (PACKED, behind(45, 3 * 8, 3 * 8, 9, 9, 15, 45, 15, 15) | PACKING),
    Kind.GRU_GRADIENT: (
        PACKED,
        behind(15, 6 * 8, 3 * 8, 45, 15, 9, 45, 9, 2 * SIZE * 2 * TASKS) | PACKING,
    ),
}
RECURRENT = (Kind.LSTM, Kind.LSTM_GRADIENT, Kind.GRU, Kind.GRU_GRADIENT)
GOOD_TABLES = {
    Kind.DEPTHWISE_PLANES: (5, [0, 1, 2, 6, 7, 8, 12, 13, 14]),
    Kind.DEPTHWISE_PLANES_GRADIENT: (5, [0, 1, 2, 6, 7, 8, 12, 13, 14]),
    Kind.ALIGN_REGIONS: (5, [0, 1, 1, 0]),
    Kind.POOL_REGIONS: (5, [[1, 0, 2, 2, 5, 0, 3, 3, 6]] * 4),
    Kind.DETECTIONS: (2, [0, 3, 5]),
    Kind.VITERBI: (5, [[0, 4], [4, 3]]),
    **{kind: (BEHIND + 9, [0, 3, 5]) for kind in RECURRENT},
}
BAD_TABLES = {
    Kind.DEPTHWISE_PLANES: [[0, 1, 2, 6, 7, 8, 12, 13, 15], [0, 1, 2, 6, 7, 8, 12, 14, 13], [-1, *range(1, 8), 14]],
    Kind.ALIGN_REGIONS: [[0, 2, 0, 0], [0, -1, 0, 0]],
    Kind.POOL_REGIONS: [
        [[2, 0, 2, 2, 5, 0, 3, 3, 6]] * 4,
        [[0, 0, 2, 2, 6, 0, 3, 3, 6]] * 4,
        [[0, 0, 2, 2, 5, 0, 3, 3, 7]] * 4,
        [[0, -1, 2, 2, 5, 0, 3, 3, 6]] * 4,
    ],
    Kind.DETECTIONS: [[0, 3, 6], [1, 3, 5], [0, 5, 3]],
    Kind.VITERBI: [[[0, 4], [4, 4]], [[-1, 4], [3, 3]], [[0, 5], [5, 2]]],
    **{kind: [[0, 2, 5], [1, 3, 5], [0, 3, 6], [0, 4, 5]] for kind in RECURRENT},
}


def arrays(kind: Kind) -> list[np.ndarray | None]:
    """What fits the call of a kind to the last number."""
    counts = CALLS[kind][1]
    found: list[np.ndarray | None] = [
        np.zeros(counts[slot], np.float32) if slot in counts else None for slot in range(max(counts) + 1)
    ]
    if kind in GOOD_TABLES:
        slot, table = GOOD_TABLES[kind]
        found[slot] = np.array(table, np.int64)
    if BEHIND + 10 in counts:
        found[BEHIND + 10] = np.arange(ROW, dtype=np.int64)
    return found


@pytest.mark.parametrize("kind", CALLS, ids=lambda kind: kind.name)
def test_a_call_that_fits_to_the_last_number_is_made(kind: Kind) -> None:
    check_call(kind, WIDTH, TASKS, CALLS[kind][0], arrays(kind))


@pytest.mark.parametrize(
    ("kind", "slot"), [(kind, slot) for kind, (_, counts) in CALLS.items() for slot in counts], ids=str
)
def test_an_array_that_is_one_number_short_is_refused(kind: Kind, slot: int) -> None:
    given = arrays(kind)
    array = given[slot]
    assert array is not None
    given[slot] = np.zeros(array.nbytes // 4 - 1, np.float32)
    with pytest.raises(ExtentError, match=rf"{kind.name} must not run: pointer {slot} reaches over"):
        check_call(kind, WIDTH, TASKS, CALLS[kind][0], given)


@pytest.mark.parametrize("kind", CALLS, ids=lambda kind: kind.name)
def test_an_array_that_is_not_contiguous_is_refused(kind: Kind) -> None:
    given = arrays(kind)
    slot = min(CALLS[kind][1])
    array = given[slot]
    assert array is not None
    given[slot] = np.zeros(2 * array.size, np.float32)[::2]
    with pytest.raises(ExtentError, match=f"pointer {slot} reaches over"):
        check_call(kind, WIDTH, TASKS, CALLS[kind][0], given)


@pytest.mark.parametrize(
    ("kind", "table"), [(kind, table) for kind, bad in BAD_TABLES.items() for table in bad], ids=str
)
def test_a_table_that_leads_elsewhere_is_refused(kind: Kind, table: list[int]) -> None:
    given = arrays(kind)
    given[GOOD_TABLES[kind][0]] = np.array(table, np.int64)
    with pytest.raises(ExtentError, match=f"{kind.name} must not run: without a table that fits its sizes"):
        check_call(kind, WIDTH, TASKS, CALLS[kind][0], given)


@pytest.mark.parametrize("kind", RECURRENT, ids=lambda kind: kind.name)
def test_a_row_that_no_sequence_has_is_refused(kind: Kind) -> None:
    given = arrays(kind)
    given[BEHIND + 10] = np.array([0, 1, 2, 3, ROW], np.int64)
    with pytest.raises(ExtentError, match="a table that fits its sizes"):
        check_call(kind, WIDTH, TASKS, CALLS[kind][0], given)


def test_polygons_with_more_corners_than_a_stack_holds_are_refused() -> None:
    with pytest.raises(ExtentError, match="corners that a stack holds"):
        check_call(Kind.SUPPRESS_POLYGONS, WIDTH, 1, {0: 1, 1: 34}, [np.zeros(34, np.float32)])


def test_windows_that_leave_their_plane_are_refused() -> None:
    sizes, _ = CALLS[Kind.DEPTHWISE_PLANES]
    with pytest.raises(ExtentError, match="windows within the plane"):
        check_call(Kind.DEPTHWISE_PLANES, WIDTH, TASKS, sizes | {5: 5}, arrays(Kind.DEPTHWISE_PLANES))


def test_every_kind_that_a_kernel_calls_has_its_extents() -> None:
    folder = Path(kernels.__file__).parent
    used = {name for file in folder.glob("*.py") for name in re.findall(r"Kind\.([A-Z_]+)", file.read_text())}
    assert used - {kind.name for kind in EXTENTS} == set()
    assert set(TABLES) == set(GOOD_TABLES)
