"""Arithmetic on whole numbers in regions and training steps, moves of them, and lookups by those that are computed.

The numbers are the CPU's, to the bit, and so are the errors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fluidtool.fluid as fluid
from fluidtool.errors import FluidError, OperatorError
from fluidtool.fluid import layers
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from fluidtool.tensor import CPUPlace, CUDAPlace, LoDTensor
from tests.gpu.standin import EVENTS
from tests.gpu.test_cuda_ranking import read, same, scores
from tests.gpu.test_cuda_regions import on_gpu
from tests.gpu.test_cuda_wholes import cast, worth
from tests.gpu.test_training_reductions import in_a_step, kernels
from tests.runtime.native.checking import Array, Net

pytestmark = pytest.mark.usefixtures("cupy")
FP32, INT64, INT32, BOOL = (int(each) for each in (VarType.FP32, VarType.INT64, VarType.INT32, VarType.BOOL))
LIMITS = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WHOLE = np.array([0, 1, 2, -1, -7, 2**31, 2**53 + 1, 2**62, -(2**62)])
SHORT = np.array([0, 1, 2, -1, -7, 2**31 - 1, -(2**31) + 1], np.int32)


def left(net: Net, why: str, *names: str) -> None:
    """An operator is left to cupy for this reason; the numbers are numpy's."""
    want, found = net.run("numpy", *names), on_gpu(net, *names)
    assert net.why_not() == [why]
    for a, b in zip(found, want, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------- arithmetic
def pairs(found: Array) -> tuple[Array, Array]:
    """All pairs of some numbers, as a column and a row."""
    return np.repeat(found[:, None], len(found), 1), np.repeat(found[None], len(found), 0)


@pytest.mark.parametrize("kind", ["int64", "int32"])
@pytest.mark.parametrize("type", ["add", "sub", "mul", "max", "min"])
def test_sums_products_and_extremes(type: str, kind: str) -> None:
    """Those of 32 bits begin again where they end."""
    net = Net()
    x, y = (net.data(of=array) for array in pairs(WHOLE // 4 if kind == "int64" and type == "mul" else WHOLE))
    if kind == "int32":
        x, y = (net.data(of=array) for array in pairs(SHORT))
    found = net.op(f"elementwise_{type}", "Out", {"X": x, "Y": y}, axis=-1)
    same(net, cast(net, found, INT64, INT32) if kind == "int32" else found, worth(net))


@pytest.mark.parametrize("version", [0, 2_000_000, 2_005_000])
@pytest.mark.parametrize("type", ["div", "floordiv", "mod"])
def test_division_by_constants(type: str, version: int) -> None:
    """Rounded as in the version of Paddle that saved the program."""
    net = Net()
    net.program.version = version
    x, y = net.data(of=WHOLE.reshape(3, 3)), net.parameter(of=np.array([3, 1, 7]))
    same(net, net.op(f"elementwise_{type}", "Out", {"X": x, "Y": y}, axis=-1), worth(net))


DIVISORS = np.array([1, -1, 2, -2, 3, -7, 2**31 - 1, 2**31, -(2**62), -(2**63)])
DIVIDED = np.array([0, 1, -1, 6, -6, 7, -8, 2**53 + 1, -(2**63), 2**63 - 1])


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("kind", [np.int64, np.int32])
@pytest.mark.parametrize("version", [0, 2_000_000, 2_005_000])
@pytest.mark.parametrize("type", ["div", "floordiv", "mod"])
def test_division_by_any_numbers(type: str, version: int, kind: Any, is_constant: bool) -> None:
    """The lowest number by -1 is itself."""
    net = Net()
    net.program.version = version
    divisors = DIVISORS if kind == np.int64 else np.array([1, -1, 2, -2, 3, -7, 2**31 - 1, -(2**31)])
    numbers = DIVIDED if kind == np.int64 else np.array([0, 1, -1, 6, -6, 7, -8, 2**31 - 1, -(2**31)])
    x, by = np.repeat(numbers[:, None], len(divisors), 1).astype(kind), divisors.astype(kind)
    inputs = {"X": net.data(of=x), "Y": net.parameter(of=by) if is_constant else net.data(of=by)}
    with np.errstate(over="ignore"):
        same(net, net.op(f"elementwise_{type}", "Out", inputs, axis=-1), worth(net))


@pytest.mark.parametrize("how", ["fed", "on the GPU", "computed"])
@pytest.mark.parametrize("type", ["div", "floordiv", "mod"])
def test_division_by_0_has_the_message_of_the_cpu(type: str, how: str, cupy: Any) -> None:
    """It names the operator, whichever of several it is; other batches go on."""
    net = Net()
    x, fed = net.data(of=WHOLE.reshape(3, 3)), net.data(of=np.array([3, -1, 7]))
    by = net.op("scale", "Out", {"X": fed}, scale=2.0) if how == "computed" else fed
    first = net.op("elementwise_mod", "Out", {"X": x, "Y": net.data(of=np.array([5]))}, axis=-1)
    names = [net.op(f"elementwise_{type}", "Out", {"X": first, "Y": by}, axis=-1), worth(net)]
    wrong = np.array([3, 0, 7])
    with pytest.raises(FluidError, match=rf"operator elementwise_{type}: Y \(int64\) holds a zero") as expected:
        Executor(CPUPlace(), engine="numpy").run(net.program, net.feeds | {fed: wrong}, names, net.scope)
    executor = Executor(CUDAPlace(0))
    want = net.run("numpy", *names)
    for _ in range(3):
        executor.run(net.program, net.feeds, names, net.scope)
        with pytest.raises(OperatorError) as caught:
            feeds = net.feeds | {fed: LoDTensor(cupy.asarray(wrong)) if how == "on the GPU" else wrong}
            executor.run(net.program, feeds, names, net.scope)[0].numpy()
        assert str(caught.value).partition(" [")[0] == str(expected.value).partition(" [")[0]
    for a, b in zip(on_gpu(net, *names), want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_constant_0_that_divides_is_left_to_the_operator() -> None:
    net = Net()
    found = net.op("elementwise_mod", "Out", {"X": net.data(of=WHOLE), "Y": net.parameter(of=np.array([0]))}, axis=-1)
    messages = []
    for run in (net.run, lambda engine, *names: on_gpu(net, *names)):
        with pytest.raises(FluidError, match="holds a zero") as caught:
            run("numpy", found, worth(net))
        messages.append(str(caught.value).partition(" [")[0])
    assert len(set(messages)) == 1


@pytest.mark.parametrize(("y", "axis"), [((3, 4), -1), ((4,), -1), ((2, 3), 0), ((3, 1), 1), ((1,), -1)])
def test_broadcasting(y: tuple[int, ...], axis: int) -> None:
    net = Net()
    inputs = {"X": net.data(of=np.arange(24).reshape(2, 3, 4)), "Y": net.data(of=np.arange(np.prod(y)).reshape(y))}
    same(net, net.op("elementwise_sub", "Out", inputs, axis=axis), worth(net))


@pytest.mark.parametrize("kind", [np.int64, np.int32])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("factor", "bias"), [(1.0, 0.0), (3.0, -2.0), (2.9, 1.9), (0.5, 0.0), (-1.0, 5.0)])
def test_scales_cut_their_numbers(factor: float, bias: float, after: bool, kind: Any) -> None:
    net = Net()
    x = net.data(of=SHORT.astype(kind))
    found = net.op("scale", "Out", {"X": x}, scale=factor, bias=bias, bias_after_scale=after)
    same(net, cast(net, found, INT64, INT32), worth(net))


def test_numbers_of_two_widths_have_the_message_of_the_cpu() -> None:
    net = Net()
    name = net.op("elementwise_add", "Out", {"X": net.data(of=SHORT), "Y": net.data(of=SHORT.astype(np.int64))})
    fetches, messages = (name, worth(net)), []
    for executor in (Executor(engine="numpy"), Executor(CUDAPlace(0))):
        with pytest.raises(FluidError, match="X is int32 and Y is int64; both must be of one data type") as caught:
            executor.run(net.program, net.feeds, list(fetches), net.scope)
        messages.append(str(caught.value))
    assert len(set(messages)) == 1


@pytest.mark.parametrize("given", [FP32, INT64, INT32, BOOL])
def test_casts_to_and_from_32_bits(given: int) -> None:
    net = Net()
    array = np.array([0, 0.5, -0.5, 1.9, -1.9, 3e9, -3e9], np.float32) if given in (FP32, BOOL) else WHOLE
    x = net.data(of=SHORT if given == INT32 else array)
    short = cast(net, cast(net, x, BOOL) if given == BOOL else x, INT32, given)
    same(net, cast(net, short, INT64, INT32), cast(net, short, FP32, INT32), worth(net))


@pytest.mark.parametrize("make", ["scale", "cast", "reshape"])
def test_numbers_of_32_bits_leave_as_such(make: str) -> None:
    net = Net()
    x = net.data(of=SHORT)
    found = {
        "scale": lambda: net.op("scale", "Out", {"X": x}, scale=2.0),
        "cast": lambda: cast(net, net.data(of=WHOLE), INT32, INT64),
        "reshape": lambda: net.op("reshape2", "Out", {"X": x}, "XShape", shape=[-1, 1]),
    }[make]()
    same(net, found, worth(net))


# ---------------------------------------------------------------- moves
MOVES: dict[str, Callable[[Net, str], str]] = {
    "transpose": lambda net, x: net.op("transpose2", "Out", {"X": x}, "XShape", axis=[2, 0, 1]),
    "slice": lambda net, x: net.op("slice", "Out", {"Input": x}, axes=[1, 2], starts=[1, -3], ends=[9, 9]),
    "split": lambda net, x: net.several("split", {"Out": 2}, {"X": x}, axis=2, num=2)[1],
    "concat": lambda net, x: net.op("concat", "Out", {"X": [x, x]}, axis=1),
    "stack": lambda net, x: net.op("stack", "Y", {"X": [x, net.op("scale", "Out", {"X": x}, scale=2.0)]}, axis=1),
    "expand": lambda net, x: net.op("expand", "Out", {"X": x}, expand_times=[2, 1, 3]),
    "assign": lambda net, x: net.op("assign", "Out", {"X": x}),
    "reshape": lambda net, x: net.op("reshape2", "Out", {"X": x}, "XShape", shape=[-1, 2]),
}


@pytest.mark.parametrize("kind", [np.int64, np.int32])
@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str, kind: Any) -> None:
    """Also of what was moved before."""
    net = Net()
    x = net.data(of=net.random.integers(-(2**40) if kind == np.int64 else -99, 99, (2, 3, 4)).astype(kind))
    turned = net.op("transpose2", "Out", {"X": x}, "XShape", axis=[1, 0, 2])
    same(net, *(cast(net, MOVES[name](net, each), INT64, INT32) for each in (x, turned)), worth(net))


@pytest.mark.parametrize("times", [[1, 1, 1], [2, 1, 1], [1, 3, 2], [2, 2, 2]])
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 1, 4), (1, 1, 1)])
def test_floats_that_are_repeated(shape: tuple[int, ...], times: list[int]) -> None:
    net = Net()
    x = read(net, scores("numbers", *shape))
    found = net.op("expand", "Out", {"X": x}, expand_times=times)
    same(net, found, net.op("expand_as", "Out", {"X": x, "target_tensor": found}))


def test_what_is_repeated_along_one_number_has_no_memory() -> None:
    net = Net()
    x = read(net, scores("numbers", 3, 1))
    wide = net.op("expand", "Out", {"X": x}, expand_times=[1, 5])
    assert same(net, net.op("elementwise_add", "Out", {"X": net.data(3, 5), "Y": wide})) == ["pool", "each"]


@pytest.mark.parametrize(("times", "kept"), [([1, 3], [[0, 2, 3]]), ([2, 1], [])])
def test_sequences_that_are_repeated_stay_sequences(times: list[int], kept: list[list[int]]) -> None:
    """As long as their rows are the same."""
    net = Net()
    x = net.data(3, 2)
    net.feeds[x] = LoDTensor(net.feeds[x], [[0, 2, 3]])
    found = net.op("expand", "Out", {"X": net.op("relu", "Out", {"X": x})}, expand_times=times)
    names = [found, worth(net)]
    same(net, *names)
    for executor in (Executor(engine="numpy"), Executor(CUDAPlace(0))):
        assert executor.run(net.program, net.feeds, names, net.scope)[0].offsets == kept


# ---------------------------------------------------------------- constants
@pytest.mark.parametrize("dtype", [FP32, INT64, INT32])
def test_constants(dtype: int) -> None:
    net = Net()
    x = read(net, scores("numbers", 3, 4))
    given = net.op("fill_constant", "Out", {}, shape=[3, 1], dtype=dtype, value=2.5)
    like = net.op("fill_constant_batch_size_like", "Out", {"Input": x}, shape=[-1, 4], dtype=dtype, value=-7.0)
    ones = net.op("fill_any_like", "Out", {"X": like}, value=3.0)
    found = net.op(
        "elementwise_add", "Out", {"X": net.op("elementwise_mul", "Out", {"X": like, "Y": ones}), "Y": given}
    )
    same(net, cast(net, found, INT64, dtype), x)


def test_division_by_a_filled_constant() -> None:
    net = Net()
    by = net.op("fill_constant", "Out", {}, shape=[1], dtype=INT64, value=4.0)
    same(net, net.op("elementwise_mod", "Out", {"X": net.data(of=WHOLE), "Y": by}, axis=-1), worth(net))


def test_a_constant_that_stays_on_the_host_is_left_to_the_operator() -> None:
    net = Net()
    found = net.op("fill_constant", "Out", {}, shape=[2, 3], dtype=FP32, value=2.5, force_cpu=True)
    total = net.op("elementwise_add", "Out", {"X": worth(net), "Y": found})
    left(net, "a constant that stays on the host", total, net.op("where_index", "Out", {"Condition": found}))


def test_a_constant_that_the_host_makes_but_does_not_read_is_part_of_the_region() -> None:
    net = Net()
    found = net.op("fill_constant", "Out", {}, shape=[2, 3], dtype=FP32, value=2.5, force_cpu=True)
    same(net, net.op("elementwise_add", "Out", {"X": worth(net), "Y": found}))


# ---------------------------------------------------------------- computed ids
ROWS = 7
TYPES = [
    "lookup_table",
    "lookup_table_v2",
    "gather",
    "gather of computed rows",
    "one_hot",
    "softmax_with_cross_entropy",
]


class Words:
    """What is looked up by ids that a region computes of a feed: double, and one less."""

    def __init__(self, type: str, dtype: Any = np.int64) -> None:
        self.net, self.type = Net(), type
        self.fed = self.net.data(of=np.array([1, 3, 2, 1], dtype))
        ids = self.net.op("scale", "Out", {"X": self.fed}, scale=2.0, bias=-1.0)
        self.name = self._looked_up(ids)

    def _looked_up(self, ids: str) -> str:
        net, table = self.net, self.net.parameter(ROWS, 5)
        column = net.op("reshape2", "Out", {"X": ids}, "XShape", shape=[-1, 1])
        if self.type == "lookup_table":
            return net.op("lookup_table", "Out", {"W": table, "Ids": column}, padding_idx=-1)
        if self.type == "lookup_table_v2":
            return net.op("lookup_table_v2", "Out", {"W": table, "Ids": ids}, padding_idx=-1)
        if self.type.startswith("gather"):
            rows = read(net, scores("numbers", ROWS, 3)) if "computed" in self.type else table
            return net.op("gather", "Out", {"X": rows, "Index": ids})
        if self.type == "one_hot":
            return net.op("one_hot", "Out", {"X": column}, depth=ROWS, dtype=FP32)
        logits = read(net, scores("numbers", 4, ROWS))
        return net.op("softmax_with_cross_entropy", "Loss", {"Logits": logits, "Label": column}, "Softmax")

    @property
    def names(self) -> list[str]:
        """What is fetched."""
        return [self.net.op("relu", "Out", {"X": self.name}), worth(self.net)]


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
@pytest.mark.parametrize("type", TYPES)
def test_lookups_by_computed_ids(type: str, dtype: Any) -> None:
    words = Words(type, dtype)
    names = words.names
    want, found = words.net.run("numpy", *names), on_gpu(words.net, *names)
    assert words.net.why_not() == [] and len(words.net.plan.work) == 1
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("wrong", [[1, 3, 2, 0], [1, 9, 2, 1], [1, 3, 2, 1 << 30]])
@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("type", TYPES)
def test_computed_ids_out_of_range_have_the_message_of_the_cpu(
    type: str, on_device: bool, wrong: list[int], cupy: Any
) -> None:
    words = Words(type)
    names, array = words.names, np.array(wrong)
    with pytest.raises(FluidError) as expected:
        Executor(CPUPlace(), engine="numpy").run(
            words.net.program, words.net.feeds | {words.fed: array}, names, words.net.scope
        )
    executor = Executor(CUDAPlace(0))
    for _ in range(3):
        executor.run(words.net.program, words.net.feeds, names, words.net.scope)
    with pytest.raises(OperatorError) as caught:
        feeds = words.net.feeds | {words.fed: LoDTensor(cupy.asarray(array) if on_device else array)}
        executor.run(words.net.program, feeds, names, words.net.scope)[0].numpy()
    assert str(caught.value).partition(" [")[0] == str(expected.value).partition(" [")[0]
    want = words.net.run("numpy", *names)
    for a, b in zip(on_gpu(words.net, *names), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_places_of_the_largest_numbers_are_looked_up() -> None:
    net = Net()
    places = net.op("arg_max", "Out", {"X": read(net, scores("ties", 5, 4))}, axis=-1, keepdims=True)
    rows = net.op("lookup_table", "Out", {"W": net.parameter(4, 3), "Ids": places}, padding_idx=-1)
    same(net, net.op("relu", "Out", {"X": rows}))


@pytest.mark.parametrize("shape", [(6,), (6, 2), (6, 2, 3), (1, 4)])
@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_rows_that_are_gathered(kind: Any, shape: tuple[int, ...]) -> None:
    net = Net()
    ids = net.data(of=np.array([[0], [shape[0] - 1], [0]]))
    x = net.data(of=net.random.integers(-9, 9, shape).astype(kind))
    same(net, net.op("gather", "Out", {"X": x, "Index": ids}), worth(net))


def test_rows_of_another_axis_are_left_to_the_operator() -> None:
    net = Net()
    inputs = {"X": read(net, scores("numbers", 3, 4)), "Index": net.data(of=np.array([3, 0]))}
    found = net.op("gather", "Out", inputs)
    net.program.global_block().ops[-1].set_attr("axis", 1)
    left(net, "another axis than the first", found)


@pytest.mark.parametrize("half", ["bf16", "fp16"])
def test_in_halves(half: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUIDTOOL_CUDA_PRECISION", half)
    words = Words("gather of computed rows")
    names = words.names
    for a, b in zip(on_gpu(words.net, *names), words.net.run("numpy", *names), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2)


# ---------------------------------------------------------------- random programs
def chained(net: Net, random: Any) -> list[str]:
    """Some operators after each other on whole numbers, and rows of a table by what is left of their division."""
    pool = [net.data(of=random.integers(-99, 99, (2, 3, 4))), net.data(of=random.integers(0, 99, (2, 3, 4)))]
    by = net.op("fill_constant", "Out", {}, shape=[1], dtype=INT64, value=float(random.integers(2, 9)))
    moves: list[Callable[[str], str]] = [partial(move, net) for move in MOVES.values()]
    steps: list[Callable[[str], str]] = [
        *moves,
        *(
            lambda x, type=type: net.op(f"elementwise_{type}", "Out", {"X": x, "Y": by}, axis=-1)
            for type in ("add", "sub", "mod", "floordiv", "max", "min")
        ),
        lambda x: net.op("scale", "Out", {"X": x}, scale=float(random.integers(-3, 4)), bias=2.0),
        lambda x: cast(net, cast(net, x, INT32, INT64), INT64, INT32),
        lambda x: cast(net, cast(net, x, FP32, INT64), INT64, FP32),
        lambda x: net.op("elementwise_sub", "Out", {"X": x, "Y": x}, axis=-1),
        lambda x: net.op("elementwise_mod", "Out", {"X": x, "Y": net.op("scale", "Out", {"X": x}, bias=3.0)}, axis=-1),
        lambda x: net.op("gather", "Out", {"X": x, "Index": net.data(of=np.array([1, 0, 1]))}),
    ]
    for _ in range(8):
        step = steps[random.integers(len(steps))]
        given = pool[random.integers(len(pool))]
        shape = net.program.global_block().var(given).shape
        if (len(shape) != 3 and step in moves) or shape[0] < 2 or max(shape) > 8 or shape[-1] % 2:
            continue
        pool.append(step(given))
    table = net.parameter(int(random.integers(3, 12)), 2)
    ids = net.op("elementwise_mod", "Out", {"X": pool[-1], "Y": by}, axis=-1)
    return [*pool[2:], net.op("lookup_table_v2", "Out", {"W": table, "Ids": ids}, padding_idx=-1), worth(net)]


@LIMITS
@given(seed=st.integers(0, 9999))
def test_random_programs(seed: int) -> None:
    """The same numbers, or the same error."""
    net = Net(seed)
    names = chained(net, np.random.default_rng(seed))

    def outcome(run: Callable[[], list[Array]]) -> Any:
        try:
            return run()
        except FluidError as error:
            return str(error).partition(" [")[0]

    want, found = outcome(lambda: net.run("numpy", *names)), outcome(lambda: on_gpu(net, *names))
    if isinstance(want, str):
        assert found == want
        return
    assert net.why_not() == []
    for a, b in zip(found, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------- training steps
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("version", [0, 2_000_000])
@pytest.mark.parametrize("shape", [(6,), (6, 3), (6, 2, 3)])
def test_the_gradient_of_gathered_rows(
    shape: tuple[int, ...], version: int, overwrite: bool, compiled: list[CudaStep]
) -> None:
    """Of a row that is named twice the last one counts, or both."""
    net = Net()
    net.program.version = version
    given = {"X": net.data(*shape), "Index": net.data(of=np.array([4, 0, 4, 1, 4]))}
    grad = net.data(of=np.arange(1, 1 + 5 * int(np.prod(shape[1:])), dtype=np.float32).reshape(5, *shape[1:]))
    names = [
        net.op("gather", "Out", given, overwrite=overwrite),
        net.op("gather_grad", "X@GRAD", given | {"Out@GRAD": grad}, overwrite=overwrite),
    ]
    in_a_step(net, *names)
    assert len(compiled) == 1 and "scatter" in kernels(compiled[-1])


@pytest.mark.parametrize("times", [[1, 1, 1], [2, 1, 3], [1, 4, 1]])
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 1, 4)])
def test_the_gradient_of_what_is_repeated(shape: tuple[int, ...], times: list[int], compiled: list[CudaStep]) -> None:
    net = Net()
    x = net.data(*shape)
    y = net.op("expand", "Out", {"X": x}, expand_times=times)
    grad = net.data(of=net.random.integers(-9, 9, np.multiply(shape, times)).astype(np.float32))
    names = [y, net.op("expand_grad", "X@GRAD", {"X": x, "Out@GRAD": grad}, expand_times=times)]
    names.append(net.op("expand_as_grad", "X@GRAD", {"X": x, "target_tensor": y, "Out@GRAD": grad}))
    in_a_step(net, *names)
    assert len(compiled) == 1


def tagged(sparse: bool = False) -> tuple[fluid.Program, fluid.Program, Any]:
    """Rows of a table by ids that are computed, and rows of a network's result by places that are cut to 32 bits."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids, places = (layers.data(name, [1], dtype="int64") for name in ("ids", "places"))
        rows = layers.embedding(layers.scale(ids, 2.0, 1.0), [9, 4], is_sparse=sparse, param_attr="w")
        hidden = layers.fc(layers.reshape(rows, [-1, 4]), 6, act="tanh", param_attr="v")
        picked = layers.gather(hidden, layers.cast(places, "int32"), overwrite=False)
        loss = layers.mean(layers.square(layers.fc(picked, 3, param_attr="u") - 0.5))
        fluid.optimizer.Adam(1e-2).minimize(loss)
    return main, startup, loss


def batch(seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {"ids": random.integers(0, 4, (6, 1)), "places": random.integers(0, 6, (5, 1))}


@pytest.mark.parametrize("sparse", [False, True])
def test_a_step_that_computes_its_ids_is_one_graph(sparse: bool, compiled: list[CudaStep]) -> None:
    main, startup, loss = tagged(sparse)
    found = []
    for place in (fluid.CPUPlace(), CUDAPlace(0)):
        scope, executor = fluid.Scope(), fluid.Executor(place)
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
        found.append([executor.run(main, batch(seed), [loss], scope=scope)[0] for seed in range(4)])
    np.testing.assert_allclose(found[1], found[0], rtol=2e-5)
    assert len(compiled) == 4


def shared(divides: str) -> tuple[fluid.Program, fluid.Program, Any]:
    """Rows of a table by what is left of a division, by numbers that are fed, or computed of those."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids, by = (layers.data(name, [1], dtype="int64") for name in ("ids", "by"))
        divisor = layers.scale(by, 1.0, 1.0) if divides == "computed" else by
        rows = layers.embedding(layers.elementwise_mod(ids, divisor), [9, 4], param_attr="w")
        loss = layers.mean(layers.square(layers.fc(layers.reshape(rows, [-1, 4]), 3, param_attr="u") - 0.5))
        fluid.optimizer.Adam(1e-2).minimize(loss)
    return main, startup, loss


@pytest.mark.parametrize("divides", ["fed", "computed"])
def test_a_step_that_divides_by_0_changes_nothing(divides: str, compiled: list[CudaStep]) -> None:
    main, startup, loss = shared(divides)
    feeds = [{"ids": np.arange(6).reshape(6, 1) + n, "by": np.array([[3], [4], [9], [1], [8], [5]])} for n in range(3)]
    messages, losses = [], []
    for place in (fluid.CPUPlace(), CUDAPlace(0)):
        scope, executor = fluid.Scope(), fluid.Executor(place)
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
        losses.append([executor.run(main, feed, [loss], scope=scope)[0] for feed in feeds])
        before = {name: np.array(scope.find_var(name).get_tensor()) for name in "wu"}
        zero = feeds[0]["by"].copy()
        zero[2] = -1 if divides == "computed" else 0
        with pytest.raises(OperatorError, match=r"elementwise_mod: Y .* holds a zero") as caught:
            executor.run(main, feeds[0] | {"by": zero}, [loss], scope=scope)
        messages.append(str(caught.value).partition(" [")[0])
        for name, array in before.items():
            np.testing.assert_array_equal(np.array(scope.find_var(name).get_tensor()), array)
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-5)
    assert messages[0] == messages[1] and len(compiled) == 4


@pytest.mark.parametrize("wrong", [("ids", 4), ("ids", -1), ("places", 6), ("places", -2)])
def test_a_step_with_a_computed_id_out_of_range_changes_nothing(
    wrong: tuple[str, int], compiled: list[CudaStep]
) -> None:
    main, startup, loss = tagged()
    messages = []
    for place in (fluid.CPUPlace(), CUDAPlace(0)):
        scope, executor = fluid.Scope(), fluid.Executor(place)
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
        for seed in range(3):
            executor.run(main, batch(seed), [loss], scope=scope)
        before = {name: np.array(scope.find_var(name).get_tensor()) for name in "wvu"}
        feed = batch(3)
        feed[wrong[0]][2] = wrong[1]
        with pytest.raises(OperatorError) as caught:
            executor.run(main, feed, [loss], scope=scope)
        messages.append(str(caught.value).partition(" [")[0])
        for name, array in before.items():
            np.testing.assert_array_equal(np.array(scope.find_var(name).get_tensor()), array)
    assert messages[0] == messages[1] and compiled


def test_the_host_waits_once_for_ids_that_are_computed(compiled: list[CudaStep]) -> None:
    main, startup, loss = tagged()
    scope, executor = fluid.Scope(), Executor(CUDAPlace(0))
    fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
    for _ in range(4):
        with EVENTS.counted() as counts:
            executor.run(main, batch(0), [loss.name], scope)
    assert len(compiled) == 4 and counts["copies to the host"] + counts["synchronizations"] == 1


def test_ids_that_a_step_computes_of_its_parameters_are_left_to_cupy(compiled: list[CudaStep]) -> None:
    """They are not known before it."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = layers.fc(layers.data("x", [8]), 5)
        rows = layers.embedding(layers.reshape(layers.argmax(x, axis=1), [-1, 1]), [5, 3])
        loss = layers.mean(layers.square(layers.fc(rows, 4))) + layers.mean(layers.square(x))
        fluid.optimizer.SGD(0.1).minimize(loss)
    found = []
    for place in (fluid.CPUPlace(), CUDAPlace(0)):
        scope, executor = fluid.Scope(), fluid.Executor(place)
        startup.random_seed = 3
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
        feed = {"x": np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)}
        found.append([executor.run(main, feed, [loss], scope=scope)[0] for _ in range(3)])
    np.testing.assert_allclose(found[1], found[0], rtol=2e-5)
