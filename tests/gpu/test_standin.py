"""The stand-in refuses what cupy refuses, and counts what costs time on a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.engines.cuda.sources import PRELUDE
from tests.gpu.standin import EVENTS, installed

Use = Callable[[Any, Any], Any]
REFUSED: dict[str, tuple[Use, type[Exception], str]] = {
    "an array of the host beside one of the device": (lambda cp, x: x + np.ones(3), TypeError, "Unsupported type"),
    "an array of the host as an argument": (
        lambda cp, x: cp.concatenate([x, np.ones(6)]),
        TypeError,
        "Unsupported type",
    ),
    "conversion to numpy": (lambda cp, x: np.asarray(x), TypeError, "Implicit conversion"),
    "a list for an elementwise function": (lambda cp, x: cp.exp([1.0]), TypeError, "Unsupported type"),
    "a condition that is no array": (lambda cp, x: cp.where(True, x, x), AttributeError, "astype"),
    "a reduction that cupy lacks": (lambda cp, x: cp.maximum.reduce(x), NotImplementedError, "maximum.reduce"),
    "an operation at indices that cupy lacks": (
        lambda cp, x: cp.multiply.at(x, 0, 2),
        NotImplementedError,
        "multiply.at",
    ),
    "an argument that cupy lacks": (lambda cp, x: x.sum(initial=3), TypeError, "unexpected argument"),
    "a name that cupy lacks": (lambda cp, x: cp.insert, AttributeError, "nor has the real package"),
    "a number on the device as a size": (lambda cp, x: x.reshape(x.sum(), 1), TypeError, "as an integer"),
    "a number on the device as a bound": (lambda cp, x: x[: x.sum()], TypeError, "slice indices"),
    "text": (lambda cp, x: cp.asarray(np.array(["a"])), ValueError, "Unsupported dtype"),
    "repetitions known on the device only": (lambda cp, x: cp.repeat(x, cp.asarray([2])), ValueError, "repeats"),
    "numbers as indices that are not whole": (lambda cp, x: x[cp.asarray([1.0])], IndexError, "integer or boolean"),
    "an unstable sort": (lambda cp, x: cp.argsort(x, kind="heapsort"), ValueError, "sort kind"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str, cupy: Any) -> None:
    use, error, text = REFUSED[what]
    with pytest.raises(error, match=text):
        use(cupy, cupy.asarray(np.arange(6.0)))


def test_arrays_of_another_device_are_refused(cupy: Any) -> None:
    x = cupy.asarray([1.0])
    with cupy.cuda.Device(1), pytest.raises(ValueError, match="array device = 0 while current = 1"):
        x + x


def test_copies_and_views_work_across_devices(cupy: Any) -> None:
    x = cupy.asarray(np.arange(6.0).reshape(2, 3))
    with cupy.cuda.Device(1):
        devices = [each.device.id for each in (x.copy(), cupy.asarray(x), x.T, cupy.swapaxes(x, 0, 1), x[0])]
        assert x.get().shape == (2, 3)
    assert devices == [1, 1, 0, 0, 0]


def test_indices_beyond_the_end_wrap_around(cupy: Any) -> None:
    x = cupy.asarray(np.arange(4))
    assert x[cupy.asarray([5, -1])].tolist() == [1, 3]
    assert x.take(cupy.asarray([9])).tolist() == [1]
    x[cupy.asarray([6])] = 7
    assert x.tolist() == [0, 1, 7, 3]


def test_of_repeated_indices_any_may_win(cupy: Any) -> None:
    x = cupy.zeros(3)
    x[cupy.asarray([1, 1])] = cupy.asarray([5.0, 6.0])
    assert x.tolist() == [0, 5, 0]  # numpy lets the last one win


COUNTED: dict[str, tuple[Use, dict[str, int]]] = {
    "arithmetic": (lambda cp, x: x + 1, {"launches": 1}),
    "a view": (lambda cp, x: x.reshape(2, 3).T[0], {}),
    "a copy to be contiguous": (lambda cp, x: x.reshape(2, 3).T.reshape(6), {"launches": 1}),
    "the value of a number": (lambda cp, x: float(x[0]), {"synchronizations": 1}),
    "a decision": (lambda cp, x: bool(x[0] > 1), {"launches": 1, "synchronizations": 1}),
    "elements by a mask": (lambda cp, x: x[x > 1], {"launches": 2, "synchronizations": 1}),
    "fetching": (lambda cp, x: cp.asnumpy(x), {"copies to the host": 1}),
    "a list as indices": (lambda cp, x: x[[1, 2]], {"launches": 1, "copies to the device": 1}),
    "addition at indices": (lambda cp, x: cp.add.at(x, 0, 1.0), {"launches": 1, "atomic additions": 1}),
}


@pytest.mark.parametrize("what", COUNTED)
def test_counted(what: str, cupy: Any) -> None:
    use, expected = COUNTED[what]
    x = cupy.asarray(np.arange(6.0))
    with EVENTS.counted() as counts:
        use(cupy, x)
    assert dict(counts) == expected


def test_memory_has_an_end(cupy: Any) -> None:
    from tests.gpu.standin.devices import MACHINE

    MACHINE.free_bytes = 100
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match="Out of memory allocating 800 bytes"):
        cupy.zeros(100)


def test_nothing_is_left_of_it() -> None:
    before = set(sys.modules)
    with installed():
        assert sys.modules["cupy"].__version__ == "14.2.0+standin"
    assert {name for name in set(sys.modules) - before if name.startswith("cupy")} == set()


SOURCE = """
extern "C" __global__ void reversed(const float* from, float* to, int count)
{
    __shared__ float kept[64];
    int at = threadIdx.x;
    kept[at] = from[blockIdx.x * blockDim.x + at];
    __syncthreads();
    to[blockIdx.x * blockDim.x + at] = kept[count - 1 - at];
}
"""


def test_threads_of_a_block_wait_for_one_another(cupy: Any) -> None:
    x, y = cupy.asarray(np.arange(12, dtype="float32")), cupy.zeros(12, "float32")
    cupy.RawModule(code=SOURCE).get_function("reversed")((3,), (4,), (x, y, np.int32(4)))
    assert y.tolist() == [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8]


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ((1,), "takes 3 arguments, found 1"),
        (("x", "y", np.int64(4)), "takes int, found int64"),
        (("x", 0, np.int32(4)), r"takes an array as float\*, found int"),
        (("x", "z", np.int32(4)), r"takes an array of float32 as float\*, found float64"),
    ],
)
def test_arguments_of_kernels_have_the_declared_types(args: tuple[Any, ...], error: str, cupy: Any) -> None:
    arrays = {"x": cupy.zeros(4, "float32"), "y": cupy.zeros(4, "float32"), "z": cupy.zeros(4)}
    with pytest.raises(TypeError, match=error):
        cupy.RawModule(code=SOURCE).get_function("reversed")((1,), (4,), [arrays.get(arg, arg) for arg in args])


REACHES = """
extern "C" __global__ void reaches(const float* from, float* to, int place)
{
    const float* other = from + 2;
    to[0] = other[place];
}
extern "C" __global__ void writes(float* to, int place) { to[place] = 1.0f; }
extern "C" __global__ void shares(float* to, int place)
{
    __shared__ float kept[4];
    kept[place] = 1.0f;
    to[0] = kept[place];
}
extern "C" __global__ void takes(float* to) { __shared__ float kept[4], more[12285]; to[0] = kept[0] = more[0]; }
"""


@pytest.mark.parametrize(("place", "fits"), [(0, True), (1, True), (-2, True), (2, False), (-3, False)])
def test_kernels_read_within_their_arrays(place: int, fits: bool, cupy: Any) -> None:
    kernel, memory = cupy.RawModule(code=REACHES).get_function("reaches"), cupy.zeros(12, "float32")
    args = memory[4:8], memory[:1], np.int32(place)
    if fits:
        kernel((1,), (1,), args)
        return
    with pytest.raises(RuntimeError, match="reaches reads or writes outside of its arrays"):
        kernel((1,), (1,), args)
    kernel((1,), (1,), (*args[:2], np.int32(0)))


@pytest.mark.parametrize("name", ["writes", "shares"])
@pytest.mark.parametrize("place", [-1, 4])
def test_kernels_write_within_their_arrays(name: str, place: int, cupy: Any) -> None:
    memory = cupy.zeros(12, "float32")
    with pytest.raises(RuntimeError, match=f"{name} reads or writes outside"):
        cupy.RawModule(code=REACHES).get_function(name)((1,), (1,), (memory[4:8], np.int32(place)))
    assert name == "shares" or memory.tolist() == [0.0] * 12


@pytest.mark.parametrize(("start", "size"), [(1, 8), (0, 3), (2, 2)])
def test_pieces_are_aligned_and_within_their_arrays(start: int, size: int, cupy: Any) -> None:
    source = f"""{PRELUDE}
extern "C" __global__ void pieces(const float* from, float* to) {{ float v[4]; ft_get_float<4>(v, from); to[0] = v[0]; }}
"""
    memory = cupy.zeros(16, "float32")
    with pytest.raises(RuntimeError, match="pieces reads or writes"):
        cupy.RawModule(code=source).get_function("pieces")((1,), (1,), (memory[start : start + size], memory[:1]))


def test_static_shared_memory_has_an_end(cupy: Any) -> None:
    with pytest.raises(ValueError, match="takes: 49156 bytes of static shared memory, of which a block has 49152"):
        cupy.RawModule(code=REACHES).get_function("takes")


@pytest.mark.parametrize(
    ("grid", "block"), [((2**31,), (1,)), ((1, 65536), (1,)), ((1, 1, 65536), (1,)), ((0,), (1,)), ((1,), (1025,))]
)
def test_grids_and_blocks_have_an_end(grid: tuple[int, ...], block: tuple[int, ...], cupy: Any) -> None:
    with pytest.raises(ValueError, match="writes: a grid of"):
        cupy.RawModule(code=REACHES).get_function("writes")(grid, block, (cupy.zeros(4, "float32"), np.int32(0)))


def test_arguments_take_at_most_4_kib(cupy: Any) -> None:
    names = ", ".join(f"float* p{number}" for number in range(513))
    source = f'extern "C" __global__ void many({names}) {{ p0[0] = 1.0f; }}'
    with pytest.raises(ValueError, match="many: 513 arguments take more than 4096 bytes"):
        cupy.RawModule(code=source).get_function("many")((1,), (1,), [cupy.zeros(1, "float32")] * 513)


TOGETHER = """
extern "C" __global__ void neighbors(const float* from, float* to)  // reads what another thread of the block may have written
{
    __shared__ float kept[64];
    const int at = threadIdx.x;
    kept[at] = from[at];
    to[at] = kept[at ^ 1];
}
extern "C" __global__ void blocks(float* to) { to[blockIdx.x] = blockIdx.x ? to[blockIdx.x - 1] + 1.0f : 1.0f; }
extern "C" __global__ void lasting(float* to) { to[0] = (float)threadIdx.x; }
extern "C" __global__ void one(float* to) { to[0] = 5.0f; }
extern "C" __global__ void unwritten(float* to)
{
    __shared__ float kept[64];
    if (blockIdx.x == 0) kept[threadIdx.x] = 1.0f;
    to[blockIdx.x * blockDim.x + threadIdx.x] = kept[threadIdx.x];
}
extern "C" __global__ void ended(float* to)
{
    if (threadIdx.x > 40) return;
    to[threadIdx.x] = 1.0f;
    __syncthreads();
    to[threadIdx.x] += 1.0f;
}
extern "C" __global__ void apart(float* to)
{
    if (threadIdx.x % 2) __syncthreads(); else __syncthreads();
    to[threadIdx.x] = 1.0f;
}
extern "C" __global__ void warps(float* to)  // one warp shuffles, while another waits at the barrier
{
    float x = (float)(threadIdx.x % 32);
    if (threadIdx.x < 32) x = __shfl_xor_sync(0xffffffffu, x, 1);
    __syncthreads();
    to[threadIdx.x] = x;
}
extern "C" __global__ void lanes(float* to)
{
    float x = 1.0f;
    if (threadIdx.x != 7) x += __shfl_xor_sync(0xffffffffu, x, 1);
    to[threadIdx.x] = x;
}
"""
FAULTS = {
    ("neighbors", 1, 64): "in another order",
    ("blocks", 3, 1): "in another order",
    ("lasting", 1, 2): "in another order",
    ("apart", 1, 64): "at different places",
    ("lanes", 1, 64): "at different places",
    ("lanes", 1, 5): "at different places",  # not a whole warp
}


def started(cupy: Any, name: str, blocks: int, threads: int) -> Any:
    """What a kernel of TOGETHER leaves in memory."""
    given = (cupy.asarray(np.arange(64, dtype="float32")),) if name == "neighbors" else ()
    memory = cupy.zeros(192, "float32")
    cupy.RawModule(code=TOGETHER).get_function(name)((blocks,), (threads,), (*given, memory))
    return memory.get()


@pytest.mark.parametrize("case", FAULTS, ids=str)
def test_threads_that_do_not_wait_as_they_must(case: tuple[str, int, int], cupy: Any) -> None:
    with pytest.raises(RuntimeError, match=f"{case[0]} has .* {FAULTS[case]}"):
        started(cupy, *case)


def test_threads_that_write_the_same(cupy: Any) -> None:
    assert started(cupy, "one", 3, 64)[0] == 5


def test_shared_memory_holds_nothing_when_a_block_begins(cupy: Any) -> None:
    found = started(cupy, "unwritten", 2, 64)
    assert np.all(found[:64] == 1) and np.all(np.isnan(found[64:128]))


def test_threads_that_have_ended_keep_nobody_waiting(cupy: Any) -> None:
    assert started(cupy, "ended", 1, 64).tolist() == [2] * 41 + [0] * 151


def test_warps_wait_each_for_itself(cupy: Any) -> None:
    lanes = np.arange(32)
    assert started(cupy, "warps", 1, 64)[:64].tolist() == [*(lanes ^ 1), *lanes]
