"""Collective operators on two threads: the values of their outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.distribute.collective.engines import Identifier, ThreadWorld
from fluidtool.distribute.collective.threads import run_ranks
from fluidtool.errors import CollectiveError, FluidError
from fluidtool.ir import Program
from fluidtool.ops.gradient import make_grad_ops
from fluidtool.runtime import Executor
from fluidtool.tensor import LoDTensor, SelectedRows
from tests.distribute.collective.support import thread_scope

SHAPE = (4, 2)


def own(rank: int) -> np.ndarray:
    return (np.arange(8, dtype="float32").reshape(SHAPE) - 3) * (rank + 1)


def run(
    type: str,
    attrs: dict[str, Any],
    shape: tuple[int, ...] = SHAPE,
    feeds: Any = own,
    ranks: int = 2,
    slots: tuple[str, str] = ("X", "Out"),
) -> list[Any]:
    """The output of the operator on every rank."""
    world = ThreadWorld(ranks, 10)
    jobs = []
    for _ in range(ranks):
        program = Program()
        block = program.global_block()
        block.create_var(name="x", shape=shape, dtype="float32")
        block.create_var(name="out")
        block.append_op(type=type, inputs={slots[0]: ["x"]}, outputs={slots[1]: ["out"]}, attrs=attrs)
        jobs.append(program)

    def rank(ring: Communicator) -> Any:
        scope = thread_scope(world)
        init = (
            Program()
            .global_block()
            .append_op(type="c_comm_init", inputs={"X": ["id"]}, attrs={"nranks": ranks, "rank": ring.rank})
        )
        scope.communicators.join(init, Identifier(b"", ()), ring.rank, ranks)  # type: ignore[union-attr]
        try:
            return Executor(engine="numpy").run(jobs[ring.rank], {"x": feeds(ring.rank)}, ["out"], scope)[0]
        except FluidError as error:
            world.abort(str(error))
            raise

    return run_ranks(ranks, rank, 10)


EXPECTED = {
    "sum": own(0) + own(1),
    "max": np.maximum(own(0), own(1)),
    "min": np.minimum(own(0), own(1)),
    "prod": own(0) * own(1),
}


@pytest.mark.parametrize("reduction", list(EXPECTED))
def test_c_allreduce(reduction: str) -> None:
    for found in run(f"c_allreduce_{reduction}", {}):
        np.testing.assert_array_equal(found.numpy(), EXPECTED[reduction])


@pytest.mark.parametrize("reduction", list(EXPECTED))
def test_c_reduce(reduction: str) -> None:
    first, root = run(f"c_reduce_{reduction}", {"root_id": 1})
    np.testing.assert_array_equal(root.numpy(), EXPECTED[reduction])
    np.testing.assert_array_equal(first.numpy(), own(0))


@pytest.mark.parametrize(("number", "reduction"), [(0, "sum"), (1, "prod"), (2, "max"), (3, "min")])
def test_allreduce_counts_reductions_as_nccl_does(number: int, reduction: str) -> None:
    for found in run("allreduce", {"reduce_type": number}):
        np.testing.assert_array_equal(found.numpy(), EXPECTED[reduction])


@pytest.mark.parametrize("type", ["broadcast", "c_broadcast"])
def test_broadcast(type: str) -> None:
    for found in run(type, {"root": 1}):
        np.testing.assert_array_equal(found.numpy(), own(1))


def test_broadcast_has_other_slots_in_paddle_2() -> None:
    for found in run("broadcast", {"root": 1}, slots=("x", "out")):
        np.testing.assert_array_equal(found.numpy(), own(1))


def test_c_broadcast_keeps_the_lod() -> None:
    for found in run("c_broadcast", {"root": 0}, feeds=lambda rank: LoDTensor(own(rank), [[0, 1, 4]])):
        assert found.lod() == [[0, 1, 4]]


def test_c_allgather() -> None:
    for found in run("c_allgather", {"nranks": 2}):
        np.testing.assert_array_equal(found.numpy(), np.concatenate([own(0), own(1)]))


def test_c_reducescatter() -> None:
    found = run("c_reducescatter", {"nranks": 2})
    np.testing.assert_array_equal(np.concatenate([part.numpy() for part in found]), EXPECTED["sum"])


def test_barrier_gives_its_input() -> None:
    for rank, found in enumerate(run("barrier", {})):
        np.testing.assert_array_equal(found.numpy(), own(rank))


def test_the_gradient_of_c_allreduce_sum_sums_gradients() -> None:
    block = Program().global_block()
    block.create_var(name="x", shape=(2,), dtype="float32")
    op = block.append_op(type="c_allreduce_sum", inputs={"X": ["x"]}, outputs={"Out": ["out"]}, attrs={"ring_id": 3})
    (grad,) = make_grad_ops(op)
    assert (grad.type, grad.inputs, grad.outputs) == ("c_allreduce_sum", {"X": ["out@GRAD"]}, {"Out": ["x@GRAD"]})
    assert grad.attrs["ring_id"] == 3


def test_shapes_that_only_a_run_tells_are_compared_in_the_run() -> None:
    with pytest.raises(CollectiveError, match=r"all_gather \(2, 2\) float32"):
        run("c_allgather", {"nranks": 2}, (-1, 2), feeds=lambda rank: np.zeros((2 + rank, 2), "float32"))


def test_rows_that_do_not_divide_are_refused() -> None:
    with pytest.raises(FluidError, match="cannot be split by rows over 2 ranks"):
        run("c_reducescatter", {"nranks": 2}, (-1, 2), feeds=lambda rank: np.zeros((3, 2), "float32"))


def test_sparse_gradients_are_refused() -> None:
    rows = SelectedRows([0], 4, np.zeros((1, 2), "float32"))
    with pytest.raises(
        FluidError, match=r"X must be a dense tensor with values, found a SelectedRows; use dense gradients"
    ):
        run("c_allreduce_sum", {}, feeds=lambda rank: rows)
