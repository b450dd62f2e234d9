"""`fuse-seqpool-concat`: several sequences are pooled by one operator, to 1e-6, and no LoD appears."""

import numpy as np
import pytest

from fluidtool.passes.inference.identities import drop_identity
from fluidtool.passes.inference.sequence_pooling import fuse_seqpool_concat
from fluidtool.passes.verify import verify
from fluidtool.proto.enums import VarType
from fluidtool.runtime import Executor
from tests.passes.inference.net import Net, reasons

POOL_TYPES = ("SUM", "AVERAGE", "SQRT")


def pooled(
    kind: str = "SUM",
    cvm: bool = False,
    *,
    axis: int = 1,
    dtype: str = "float32",
    widths: tuple[int, ...] = (4, 4, 4),
    last: int = 0,
) -> Net:
    """Three pooled inputs side by side; the last sequence of the third has `last` rows."""
    lods = [[[0, 2, 5]], [[0, 3, 4]], [[0, 1, 1 + last]]]
    net = Net()
    if cvm:
        net.data("clicks", abs(net.numbers(2, 2)))
    parts = []
    for index, (lod, width) in enumerate(zip(lods, widths, strict=True)):
        net.data(f"x{index}", abs(net.numbers(lod[0][-1], width, dtype=dtype)), lod)
        outputs = {"Out": [f"p{index}"], "MaxIndex": [f"m{index}"]}
        net.op("sequence_pool", {"X": [f"x{index}"]}, outputs, pooltype=kind, pad_value=0.0, is_test=True)
        parts.append(f"p{index}")
        if cvm:
            net.op("cvm", {"X": [f"p{index}"], "CVM": ["clicks"]}, {"Y": [f"y{index}"]}, use_cvm=True)
            parts[-1] = f"y{index}"
    net.op("concat", {"X": parts}, {"Out": ["out"]}, axis=axis)
    return net


@pytest.mark.parametrize("cvm", [False, True])
@pytest.mark.parametrize("kind", POOL_TYPES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pooled_sequences_become_one_operator(kind: str, cvm: bool, dtype: str) -> None:
    net = pooled(kind, cvm, dtype=dtype)
    before = net.run("out")[0]
    assert fuse_seqpool_concat(net.program, net.scope, ["out"]).changed
    assert net.types == [f"fusion_seqpool_{'cvm_' if cvm else ''}concat", "transpose"]
    np.testing.assert_allclose(net.run("out")[0], before, rtol=1e-6, atol=1e-7)
    assert verify(net.program) == []
    assert not fuse_seqpool_concat(net.program, net.scope, ["out"]).changed


def test_the_result_has_no_lod_and_the_transpose_that_sees_to_it_stays() -> None:
    net = pooled()
    fuse_seqpool_concat(net.program, net.scope, ["out"])
    assert not drop_identity(net.program, net.scope, ["out"]).changed
    assert Executor().run(net.program, net.feeds, ["out"], net.scope)[0].offsets == []


def left(net: Net, *keep: str) -> list[str]:
    result = fuse_seqpool_concat(net.program, net.scope, keep)
    assert not result.changed
    return reasons(result)


def test_a_fetched_part_stays() -> None:
    assert left(pooled(), "p1") == ["p1 is fetched or must be kept"]


def test_a_part_with_another_reader_stays() -> None:
    net = pooled()
    net.op("relu", {"X": ["p0"]}, {"Out": ["other"]})
    assert left(net) == ["p0 is also read by relu"]


def test_other_ways_to_pool_stay() -> None:
    assert left(pooled("MAX")) == ["the sequences are pooled by MAX, not all by one of SUM, AVERAGE, SQRT"]


def test_different_ways_to_pool_stay() -> None:
    net = pooled()
    net.block.ops[1].set_attr("pooltype", "SQRT")
    assert left(net) == ["the sequences are pooled by SQRT, SUM, not all by one of SUM, AVERAGE, SQRT"]


def test_rows_below_each_other_stay() -> None:
    assert left(pooled(axis=0)) == ["the pooled sequences are not concatenated side by side (axis 1)"]


def test_different_widths_stay() -> None:
    assert left(pooled(widths=(4, 4, 3))) == ["x0 and x2 are not declared with rows of one width"]


def test_two_levels_of_sequences_stay() -> None:
    net = pooled()
    net.block.var("x1").lod_level = 2
    assert left(net) == ["x1 is not declared as rows of one level of sequences"]


def test_a_pad_value_stays() -> None:
    net = pooled()
    net.block.ops[2].set_attr("pad_value", 1.0)
    assert left(net) == ["empty sequences of x2 give 1.0, not 0"]


def test_half_precision_stays() -> None:
    net = pooled()
    net.block.var("x0").dtype = VarType.FP16
    assert left(net) == ["x0 is not declared float32 or float64 like the others"]


def test_rows_that_are_overwritten_stay() -> None:
    net = pooled()
    net.block.insert_op(3, type="relu", inputs={"X": ["x0"]}, outputs={"Out": ["x0"]})
    assert left(net) == ["x0 is written again before the last operator of the group"]


def test_cvm_that_drops_its_columns_stays() -> None:
    net = pooled(cvm=True)
    for op in net.block.ops:
        if op.type == "cvm":
            op.set_attr("use_cvm", False)
    assert left(net) == ["the cvm drops show and click (use_cvm is False)"]


def test_a_concat_with_something_else_is_no_candidate() -> None:
    net = pooled()
    net.data("more", net.numbers(2, 4))
    net.block.ops[-1].set_input("X", ["p0", "more"])
    assert left(net) == []
