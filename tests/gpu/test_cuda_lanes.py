"""Generated kernels whose threads compute several elements side by side, and rows in registers. The numbers are numpy's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.engines.cuda import sources
from fluidtool.runtime.engines.cuda.arena import lay_out
from fluidtool.runtime.engines.cuda.calls import Buffer, Launch, Place, channels_last, row_major, viewed_strides
from fluidtool.runtime.engines.cuda.lowering import Lowering
from fluidtool.runtime.engines.cuda.region import Libraries, constants_of, source_of, work_of
from fluidtool.runtime.engines.cuda.training import reductions  # noqa: F401  (what lowers sums)
from fluidtool.runtime.engines.registry import device_for
from fluidtool.runtime.graph.importers.registry import ADD, EXP
from fluidtool.runtime.graph.ir import Activation, Graph, Node, Value
from fluidtool.tensor import CUDAPlace
from tests.gpu.nvrtc import faults, nvrtc

Array = np.ndarray[Any, Any]
LANES = {"": 4, "bf16": 8, "fp16": 8}


def some(*shape: int) -> Array:
    return np.random.default_rng(int(np.prod(shape))).standard_normal(shape).astype(np.float32)


def computed(
    given: Mapping[Value, Array],
    nodes: Sequence[Node],
    half: str = "",
    places: Mapping[Value, Place] | None = None,
    role: str = "input",
) -> tuple[Array, list[Launch]]:
    """What the last node is, and the kernels. places: where inputs are, if they do not lie row by row from the start on."""
    (found,), kernels = several(given, nodes, [nodes[-1].output], half, places, role)
    return found, kernels


def several(
    given: Mapping[Value, Array],
    nodes: Sequence[Node],
    outs: Sequence[Value],
    half: str = "",
    places: Mapping[Value, Place] | None = None,
    role: str = "input",
) -> tuple[list[Array], list[Launch]]:
    """The same of several results."""
    low = Lowering(Graph(tuple(given), list(outs), tuple(nodes)), frozenset(), {}, half=half)
    device, arrays = device_for(CUDAPlace(0)), {}
    for value, array in given.items():
        own = (places or {}).get(value) or Place(
            Buffer(value.floats, role, integer=value.integer), row_major(value.shape)
        )
        low.places[value] = own
        memory = np.zeros(own.buffer.floats // (1 + own.buffer.integer), array.dtype)
        view = np.lib.stride_tricks.as_strided(
            memory[own.offset :], array.shape, [step * array.itemsize for step in own.strides]
        )
        view[...] = array
        arrays[own.buffer] = memory
    low.nodes()
    found = dict(zip(outs, low.outputs(outs), strict=True))
    low.name_calls(None)
    calls = tuple(low.calls)
    with device.active():
        xp = device.xp
        on_device = {buffer: xp.asarray(array) for buffer, array in arrays.items()}
        on_device |= {buffer: xp.asarray(buffer.array) for buffer in constants_of(calls)}
        on_device |= {buffer: xp.zeros(value.shape, value.dtype) for value, buffer in found.items()}
        offsets, size = lay_out(calls)
        arena = xp.empty(max(size, 1), np.float32)
        work_of(calls, low.results, on_device, arena, offsets, device, Libraries(device)).run()
        results = [device.host(on_device[buffer]) for buffer in found.values()]
    assert nvrtc() is None or faults(source_of(calls), "sm_80") == ""
    return results, [call for call in calls if isinstance(call, Launch)]


def rounded(array: Array, half: str) -> Array:
    """What halves keep of numbers."""
    if half == "fp16":
        return array.astype(np.float16).astype(np.float32)
    if half == "bf16":
        bits = array.view(np.uint32)
        return ((bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return array


def binary(x: Value, y: Value, wide: tuple[int, ...] | None = None) -> Node:
    return Node("binary", [x, y], Value("sum", x.shape), {"operation": ADD, "y_shape": wide or y.shape})


def exp(x: Value) -> Node:
    return Node("unary", [x], Value("exp", x.shape), {}, Activation(EXP))


@pytest.fixture(autouse=True)
def _standin(cupy: Any) -> None:
    """On the stand-in, which refuses pieces that are not aligned."""


# ---------------------------------------------------------------- elements
@pytest.mark.parametrize("half", ["", "bf16", "fp16"])
@pytest.mark.parametrize("shape", [(16,), (3, 8), (5, 7), (1,), (2, 3, 24), (1023,), (1, 1, 9)])
def test_elements_and_what_is_left_over(shape: tuple[int, ...], half: str) -> None:
    x, given = Value("x", shape), some(*shape)
    kept = exp(x)
    found, kernels = computed({x: given}, [kept, binary(kept.output, kept.output)], half)
    np.testing.assert_allclose(found, 2 * rounded(np.exp(given), half), rtol=1e-6)
    many = np.prod(shape) >= 2
    assert [("int lane" in kernel.source) for kernel in kernels] == [many, many]
    assert not half or not many or f"ft_put_{half}<" in kernels[0].source


def test_most_lanes_fill_16_bytes() -> None:
    x, given = Value("x", (64,)), some(64)
    kept = exp(x)
    nodes = [kept, binary(kept.output, kept.output)]
    assert all("ft_get_float<4>" in kernel.source for kernel in computed({x: given}, [nodes[0]])[1])
    _, (first, second) = computed({x: given}, nodes, "bf16")
    assert "ft_get_float<8>" in first.source and "ft_put_bf16<8>" in first.source and "ft_get_bf16<8>" in second.source


@pytest.mark.parametrize(
    ("shape", "other", "wide"),
    [
        ((4, 8), (8,), (1, 8)),
        ((4, 8), (4,), (4, 1)),
        ((4, 8), (1,), (1, 1)),
        ((3, 5), (5,), (1, 5)),
        ((3, 5), (3,), (3, 1)),
        ((2, 6, 4), (6,), (1, 6, 1)),
        ((2, 3, 5, 7), (3,), (1, 3, 1, 1)),
    ],
)
def test_broadcasting(shape: tuple[int, ...], other: tuple[int, ...], wide: tuple[int, ...]) -> None:
    x, y, of_x, of_y = Value("x", shape), Value("y", other), some(*shape), some(*other)
    found, (kernel,) = computed({x: of_x, y: of_y}, [binary(x, y, wide)])
    np.testing.assert_allclose(found, of_x + of_y.reshape(wide), rtol=1e-6)
    assert "ft_get_float<" in kernel.source


@pytest.mark.parametrize(("offset", "step", "lanes"), [(0, 12, True), (4, 12, True), (1, 12, False), (0, 13, False)])
def test_pieces_lie_where_they_are_aligned(offset: int, step: int, lanes: bool) -> None:
    x, given = Value("x", (4, 8)), some(4, 8)
    place = Place(Buffer(offset + 4 * step, "input"), (step, 1), offset)
    found, (kernel,) = computed({x: given}, [exp(x)], places={x: place})
    np.testing.assert_allclose(found, np.exp(given), rtol=1e-6)
    assert ("ft_get_float<4>" in kernel.source) == lanes


@pytest.mark.parametrize("apart", [0, 1])
def test_states_may_lie_anywhere(apart: int) -> None:
    x, given = Value("x", (3, 8)), some(3, 8)
    place = Place(Buffer(32, "state"), (8, 1), 4 * apart)
    found, (kernel,) = computed({x: given}, [exp(x)], places={x: place})
    np.testing.assert_allclose(found, np.exp(given), rtol=1e-6)
    assert "ft_get_anywhere<4>" in kernel.source


def test_transposed_arrays_are_read_one_by_one() -> None:
    x, given = Value("x", (8, 16)), some(8, 16)
    turned = Node("transpose", [x], Value("turned", (16, 8)), {"axes": [1, 0]})
    found, (kernel,) = computed({x: given}, [turned, exp(turned.output)])
    np.testing.assert_allclose(found, np.exp(given.T), rtol=1e-6)
    assert "int lane" not in kernel.source


def test_images_are_written_in_the_order_of_memory() -> None:
    shape = (2, 8, 3, 5)
    x, given = Value("x", shape), some(*shape)
    place = Place(Buffer(x.floats, "input"), channels_last(shape))
    kept = exp(x)
    found, (first, _) = computed({x: given}, [kept, binary(kept.output, kept.output)], places={x: place})
    np.testing.assert_allclose(found, 2 * np.exp(given), rtol=1e-6)
    assert "ft_get_float<4>" in first.source and "ft_put_float<4>" in first.source


@pytest.mark.parametrize(("widths", "pieces"), [((8, 4, 12), 3), ((8, 3, 5), 1)])
def test_what_is_put_together_is_read_within_its_bounds(widths: tuple[int, ...], pieces: int) -> None:
    parts = [Value(f"x{width}", (3, width)) for width in widths]
    given = {part: some(*part.shape) for part in parts}
    whole = Node("concat", parts, Value("whole", (3, sum(widths))), {"axis": 1})
    found, (kernel,) = computed(given, [whole])
    np.testing.assert_array_equal(found, np.concatenate(list(given.values()), 1))
    assert kernel.source.count("ft_get_float<4>") == pieces and "< 8) ft_get_float<4>" in kernel.source


@pytest.mark.parametrize("start", [0, 4, 3])
def test_slices(start: int) -> None:
    x, given = Value("x", (3, 16)), some(3, 16)
    part = Node("slice", [x], Value("part", (3, 8)), {"starts": [0, start], "sizes": [3, 8]})
    found, _ = computed({x: given}, [part, exp(part.output)])
    np.testing.assert_allclose(found, np.exp(given[:, start : start + 8]), rtol=1e-6)


def test_arrays_too_small_for_it_have_a_thread_for_each_element(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "ENOUGH", 1 << 15)
    x, given = Value("x", (64, 64)), some(64, 64)
    _, (kernel,) = computed({x: given}, [exp(x)])
    assert "int lane" not in kernel.source and kernel.blocks * kernel.threads == 4096


# ---------------------------------------------------------------- rows
ROWS = [(1, 1), (3, 5), (9, 32), (6, 96), (5, 768), (2, 1000), (2, 8192), (2, 9000), (1, 8195)]


@pytest.mark.parametrize("few", [1, 1 << 15])
@pytest.mark.parametrize("shape", ROWS)
def test_softmax_of_rows(shape: tuple[int, int], few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "ENOUGH", few)
    x, given = Value("x", shape), some(*shape)
    node = Node("softmax", [x], Value("y", shape), {"factor": 0.5, "mask_shape": None})
    found, (kernel,) = computed({x: given}, [node])
    powers = np.exp(0.5 * (given - given.max(1, keepdims=True)).astype(np.float64))
    np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), rtol=3e-6)
    kept = shape[1] <= 8192
    assert ("float x[" in kernel.source) == kept and "__shfl_xor_sync" in kernel.source
    assert ("__syncthreads" in kernel.source) == (kernel.threads != 128)


@pytest.mark.parametrize("half", ["", "bf16", "fp16"])
@pytest.mark.parametrize("shape", ROWS[1:])
def test_normalized_rows(shape: tuple[int, int], half: str) -> None:
    x, given = Value("x", shape), some(*shape)
    scale, shift = some(shape[1]), some(1, shape[1])[0]
    attrs = {"matrix": shape, "scale": scale, "shift": shift, "epsilon": 1e-5}
    kept = binary(x, x)
    node = Node("layer_norm", [kept.output], Value("y", shape), attrs)
    found, kernels = computed({x: given}, [kept, binary(kept.output, kept.output), node], half)
    rows = rounded(2 * given, half).astype(np.float64)
    apart = rows - rows.mean(1, keepdims=True)
    want = apart / np.sqrt((apart**2).mean(1, keepdims=True) + 1e-5) * scale + shift
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=2e-5)
    assert (f"<{LANES[half]}>" in kernels[-1].source) == (shape[1] % LANES[half] == 0)


@pytest.mark.parametrize("how", range(5))
@pytest.mark.parametrize("shape", [(7, 5), (3, 64), (2, 9001)])
def test_reduced_rows(shape: tuple[int, int], how: int) -> None:
    x, given = Value("x", shape), some(*shape) if how < 4 else 1 + some(*shape) / 100
    node = Node("reduce", [x], Value("y", (shape[0], 1)), {"sizes": (*shape, 1), "how": how})
    found, (kernel,) = computed({x: given}, [node])
    want = [np.sum, np.mean, np.max, np.min, np.prod][how](given.astype(np.float64), axis=1, keepdims=True)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
    assert "__shfl_xor_sync" in kernel.source


def test_a_number_that_is_none_is_found_in_any_lane() -> None:
    x, given = Value("x", (4, 64)), some(4, 64)
    given[1, 37] = np.nan
    node = Node("reduce", [x], Value("y", (4, 1)), {"sizes": (4, 64, 1), "how": 2})
    found, _ = computed({x: given}, [node])
    assert np.isnan(found[:, 0]).tolist() == [False, True, False, False]


# ---------------------------------------------------------------- sums
@pytest.mark.parametrize("lies", [row_major, channels_last])
@pytest.mark.parametrize("kept", [(1,), (), (0,), (0, 1), (1, 2, 3), (2,), (0, 1, 2)])
@pytest.mark.parametrize("shape", [(4, 8, 6, 8), (3, 5, 7, 3), (64, 4, 16, 16)])
def test_sums(shape: tuple[int, ...], kept: tuple[int, ...], lies: Any) -> None:
    x, given = Value("x", shape), some(*shape)
    node = Node("sums", [x], Value("y", tuple(shape[axis] for axis in kept)), {"kept": kept})
    found, kernels = computed({x: given}, [node], places={x: Place(Buffer(x.floats, "input"), lies(shape))})
    want = given.astype(np.float64).sum(axis=tuple(axis for axis in range(4) if axis not in kept))
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
    assert len(kernels) <= 2


@pytest.mark.parametrize("lies", [row_major, channels_last])
@pytest.mark.parametrize("kept", [(1,), (), (0, 1), (2,), (0, 1, 2)])
@pytest.mark.parametrize("how", [2, 3, 4])
def test_extremes_and_products(how: int, kept: tuple[int, ...], lies: Any) -> None:
    shape = (64, 4, 16, 16)
    x, given = Value("x", shape), some(*shape)
    node = Node("joins", [x], Value("y", tuple(shape[axis] for axis in kept)), {"kept": kept, "how": how})
    found, kernels = computed({x: given}, [node], places={x: Place(Buffer(x.floats, "input"), lies(shape))})
    want = {2: np.max, 3: np.min, 4: np.prod}[how](given, axis=tuple(axis for axis in range(4) if axis not in kept))
    np.testing.assert_allclose(found, want, rtol=0 if how < 4 else 1e-4)
    assert len(kernels) <= 2


# ---------------------------------------------------------------- views without a copy
@pytest.mark.parametrize(
    ("shape", "strides", "into", "want"),
    [
        ((2, 6), (6, 1), (3, 4), (4, 1)),
        ((4, 768), (2304, 1), (4, 12, 64), (2304, 64, 1)),
        ((4, 12, 64), (2304, 64, 1), (4, 768), (2304, 1)),
        ((2, 3), (1, 2), (6,), None),
        ((2, 3), (1, 2), (2, 3, 1), (1, 2, 2)),
        ((4, 6), (12, 1), (3, 8), None),
        ((1, 5), (9, 1), (5,), (1,)),
        ((2, 0), (0, 1), (0,), None),
        ((3, 4), (0, 1), (3, 2, 2), (0, 2, 1)),
    ],
)
def test_strides_of_a_view(shape: Any, strides: Any, into: Any, want: Any) -> None:
    found = viewed_strides(shape, strides, into)
    assert found == want or (want is None and found is None)
