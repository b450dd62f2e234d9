"""Products of computed matrices whose batches differ, on a GPU: in regions of inference and in training steps. The numbers are the
CPU's, and so Paddle's: matmul takes equally many matrices or a single one, matmul_v2 broadcasts.
"""

from __future__ import annotations

from typing import Any

import pytest

from fluidtool.runtime.engines.cuda.calls import Product
from fluidtool.runtime.engines.cuda.training.compiled import CudaStep
from tests.gpu.test_cuda_regions import check
from tests.gpu.test_training_images import numbered
from tests.gpu.test_training_reductions import in_a_step
from tests.runtime.native.checking import Net

pytestmark = pytest.mark.usefixtures("cupy")
Shape = tuple[int, ...]
ALIKE: list[tuple[Shape, Shape]] = [
    ((), ()), ((4,), ()), ((2, 3), ()), ((), (4,)), ((), (2, 3)), ((2, 3), (2, 3)), ((2, 1, 3), (2, 1, 3)), ((2, 3), (6,)),
]  # fmt: skip
"""Batches of X and Y that both operators take, except for the last."""
BROADCAST: list[tuple[Shape, Shape]] = [
    ((3,), (2, 3)),
    ((2, 1), (3,)),
    ((2, 1), (1, 3)),
    ((1, 3), (2, 3)),
    ((2, 1, 3), (4, 1)),
]
CASES = [("matmul", *each) for each in ALIKE] + [("matmul_v2", *each) for each in [*ALIKE[:-1], *BROADCAST]]
SWAPS = [(False, False), (True, True)]
ROWS, DEPTH, COLUMNS = 4, 6, 5


def factors(net: Net, left: Shape, right: Shape, swaps: tuple[bool, bool]) -> dict[str, str]:
    """X and Y, which are computed."""
    sizes = {"X": (*left, *((DEPTH, ROWS) if swaps[0] else (ROWS, DEPTH)))}
    sizes["Y"] = (*right, *((COLUMNS, DEPTH) if swaps[1] else (DEPTH, COLUMNS)))
    return {slot: net.op("tanh", "Out", {"X": net.data(*shape)}) for slot, shape in sizes.items()}


def attributes(type: str, swaps: tuple[bool, bool]) -> dict[str, Any]:
    if type == "matmul":
        return {"transpose_X": swaps[0], "transpose_Y": swaps[1], "alpha": 0.25}
    return {"trans_x": swaps[0], "trans_y": swaps[1]}


@pytest.mark.parametrize("swaps", SWAPS)
@pytest.mark.parametrize(("type", "left", "right"), CASES)
def test_products_in_a_region(type: str, left: Shape, right: Shape, swaps: tuple[bool, bool]) -> None:
    net = Net()
    out = net.op(type, "Out", factors(net, left, right, swaps), **attributes(type, swaps))
    check(net, out, net.op("relu", "Out", {"X": out}))


@pytest.mark.parametrize("swaps", SWAPS)
@pytest.mark.parametrize(("type", "left", "right"), CASES)
def test_products_and_gradients_in_a_step(
    type: str, left: Shape, right: Shape, swaps: tuple[bool, bool], compiled: list[CudaStep]
) -> None:
    net, attrs = Net(), attributes(type, swaps)
    inputs = factors(net, left, right, swaps)
    y = net.op(type, "Out", inputs, **attrs)
    both = {"X@GRAD": 1, "Y@GRAD": 1}
    grads = net.several(f"{type}_grad", both, {**inputs, "Out@GRAD": numbered(net, y)}, **attrs)
    in_a_step(net, y, *grads, rtol=5e-6)
    assert compiled


def test_a_single_matrix_behind_a_batch_is_one_product_of_all_rows() -> None:
    net = Net()
    assert (
        check(net, net.op("matmul", "Out", factors(net, (2, 3), (), (False, False)), alpha=1.0)).count("Product") == 1
    )


def test_a_single_matrix_before_a_batch_is_not_copied(compiled: list[CudaStep]) -> None:
    """One call, whose factors lie at a distance of 0."""
    net = Net()
    inputs = {"X": net.data(ROWS, DEPTH), "Y": net.data(3, DEPTH, COLUMNS)}
    y = net.op("matmul", "Out", inputs, alpha=1.0)
    grads = net.several("matmul_grad", {"X@GRAD": 1}, {**inputs, "Out@GRAD": numbered(net, y)}, alpha=1.0)
    in_a_step(net, y, *grads, rtol=5e-6)
    call = next(call for call in compiled[-1].calls if isinstance(call, Product))
    assert (call.matrices, call.x.batch) == (3, 0)
