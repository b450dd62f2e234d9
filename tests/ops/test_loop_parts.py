"""Which operators of a loop run before or behind all steps, and that nothing changes by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.ir.reuse import ORIGINAL_NAMES_ATTR
from fluidtool.ops.control_flow import loop_backwards, loop_parts, while_loop
from fluidtool.ops.control_flow.joining import joined
from fluidtool.ops.control_flow.loop_parts import LoopParts, parts_of
from fluidtool.passes.backward import append_backward
from fluidtool.passes.memory_optimize import memory_optimize
from fluidtool.passes.release_memory import release_memory
from fluidtool.proto.enums import VarType
from tests.support.blocks import BOOL, Building, check_program_gradient
from tests.support.operators import dense

RNG = np.random.default_rng(11)
FEED = {
    "x": RNG.normal(size=(2, 3)),
    "w": RNG.normal(size=(3, 3)),
    "v": RNG.normal(size=(3, 4)),
    "c": RNG.normal(size=4),
}
ARRAY = VarType.LOD_TENSOR_ARRAY


def decoder(steps: int, *, last: str = "softmax", fed_back: bool = False, **attrs: Any) -> Building:
    """s = x; in each step s = tanh(s w), and softmax(s v + c) becomes an item of an array; loss = mean(square(item 0 + 1)).

    last: what stands in place of softmax. fed_back: the next state also adds the mean of the scores.
    """
    b = Building()
    x, w, v, c = b.data("x", [2, 3]), b.data("w", [3, 3]), b.data("v", [3, 4]), b.data("c", [4])
    i, n = b.constant("i", 0), b.constant("n", steps)
    b.op("scale", {"X": x}, {"Out": "s"}, scale=1.0)
    b.op("less_than", {"X": i, "Y": n}, {"Out": "go_on"}, dtype=BOOL)
    b.block.create_var(name="items", type=ARRAY, dtype=VarType.FP64)
    with b.sub_block() as body:
        b.op("mul", {"X": "s", "Y": w}, {"Out": "p"})
        b.op("tanh", {"X": "p"}, {"Out": "t"})
        b.op("mul", {"X": "t", "Y": v}, {"Out": "q"})
        b.op("elementwise_add", {"X": "q", "Y": c}, {"Out": "r"}, axis=1)
        b.op(last, {"X": "r"}, {"Out": "y"}, **attrs)
        if fed_back:
            b.op("reduce_mean", {"X": "y"}, {"Out": "m"}, dim=[0, 1], reduce_all=True)
            b.op("elementwise_add", {"X": "t", "Y": "m"}, {"Out": "s"})
        else:
            b.op("assign", {"X": "t"}, {"Out": "s"})
        b.op("write_to_array", {"X": "y", "I": i}, {"Out": "items"}, kind=ARRAY)
        b.next_step(i, n)
    b.block.create_var(name="steps", type=VarType.STEP_SCOPES)
    b.op(
        "while",
        {"X": [x, w, v, c, "s", i, n], "Condition": "go_on"},
        {"Out": ["s", i, "go_on", "items"], "StepScopes": "steps"},
        sub_block=b.program.block(body),
        is_test=False,
    )
    first, end = b.constant("first", 0), b.constant("end", steps - 1)
    for place, name in ((first, "begin"), (end, "finish")):
        b.op("read_from_array", {"X": "items", "I": place}, {"Out": name})
    b.op("elementwise_mul", {"X": "begin", "Y": "finish"}, {"Out": "both"})
    b.op("mean", {"X": "both"}, {"Out": "loss"})
    return b


def cut(monkeypatch: pytest.MonkeyPatch) -> list[LoopParts | None]:
    """How loops are cut from now on."""
    found: list[LoopParts | None] = []

    def noting(*args: Any, **options: Any) -> LoopParts | None:
        found.append(parts_of(*args, **options))
        return found[-1]

    for module in (while_loop, loop_backwards):
        monkeypatch.setattr(module, "parts_of", noting)
    return found


def types(ops: Any) -> list[str]:
    return [op.type for op in ops]


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_what_goes_to_no_later_step_gives_the_same_gradients(steps: int) -> None:
    check_program_gradient(decoder(steps), "loss", FEED, ["x", "w", "v", "c"])


def test_scores_run_behind_the_loop_and_their_gradients_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cut(monkeypatch)
    check_program_gradient(decoder(3), "loss", FEED, [])
    forward, backward = found[-2:]
    assert forward is not None and types(forward.behind) == ["mul", "elementwise_add", "softmax", "write_to_array"]
    assert forward.before == () and types(forward.within)[:2] == ["mul", "tanh"]
    assert backward is not None
    assert types(backward.before) == ["read_from_array", "softmax_grad", "elementwise_add_grad", "mul_grad"]
    assert backward.behind == ()


def test_each_operator_behind_the_loop_runs_once_for_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    run = loop_parts.Together._at_once

    def noting(self: Any, *args: Any) -> None:
        rows.append(sum(args[2]))
        run(self, *args)

    monkeypatch.setattr(loop_parts.Together, "_at_once", noting)
    decoder(3).run(FEED, ["loss"])
    assert rows == []  # without a gradient nothing of a step is kept
    check_program_gradient(decoder(3), "loss", FEED, [])
    assert rows == [6] * 6


def test_scores_that_the_next_step_reads_stay_in_their_step(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cut(monkeypatch)
    check_program_gradient(decoder(3, fed_back=True), "loss", FEED, ["x", "w", "v", "c"])
    assert found[-2] is None


@pytest.mark.parametrize(("last", "attrs"), [("cumsum", {"axis": 0}), ("reverse", {"axis": [0]})])
def test_an_operator_that_is_not_known_row_by_row_stays_in_its_step(
    last: str, attrs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = cut(monkeypatch)
    b = decoder(2, last=last, **attrs)
    b.program.global_block().create_var(name="unused", dtype=VarType.FP64)
    check_program_gradient(b, "loss", FEED, ["x", "v"])
    assert found[-2] is None


def test_a_softmax_over_the_rows_of_a_step_is_computed_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cut(monkeypatch)
    check_program_gradient(decoder(3, axis=0), "loss", FEED, ["x", "w", "v", "c"])
    assert found[-2] is not None and "softmax" in types(found[-2].behind)


def test_deletions_within_steps_change_neither_the_parts_nor_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    b = decoder(3)
    append_backward(b.program.global_block().var("loss"))
    names = [name + "@GRAD" for name in FEED]
    found = cut(monkeypatch)
    expected = [dense(value).tobytes() for value in b.run(FEED, names)]
    release_memory(b.program, set(names))
    assert [dense(value).tobytes() for value in b.run(FEED, names)] == expected
    whole, released = ([(types(part.before), types(part.behind)) for part in found[n : n + 2] if part] for n in (0, 2))
    assert len(whole) == 2 and released == whole


@pytest.mark.parametrize("releases", [False, True])
@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("native", ["0", "1"])
def test_variables_that_share_memory_change_neither_the_parts_nor_a_bit(
    native: str, level: int, releases: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUIDTOOL_NATIVE", native)
    b = decoder(5)
    append_backward(b.program.global_block().var("loss"))
    for name in ("p", "t", "q", "r", "y"):  # of which memory_optimize must know the shape
        for block in b.program.blocks[1:]:
            for each in (name, f"{name}@GRAD"):
                if each in block.vars:
                    block.var(each).shape = (2, 3 if name in "pt" else 4)
    names = [name + "@GRAD" for name in FEED]
    found = cut(monkeypatch)
    expected = [dense(value).tobytes() for value in b.run(FEED, names)]
    assert memory_optimize(b.program, set(names), level=level).changed
    if releases:
        release_memory(b.program, set(names))
    assert any(op.has_attr(ORIGINAL_NAMES_ATTR) for op in b.program.block(2).ops)
    assert [dense(value).tobytes() for value in b.run(FEED, names)] == expected
    alone, sharing = ([(types(part.before), types(part.behind)) for part in found[n : n + 2] if part] for n in (0, 2))
    assert len(alone) == 2 and sharing == alone


def deleting(b: Building, position: int, name: str) -> LoopParts | None:
    """How the loop of a decoder is cut where its block deletes a name."""
    block = b.program.block(1)
    block.insert_op(position, type="delete_var", inputs={"X": [name]})
    return parts_of(block.ops, set(block.vars))


def test_what_is_deleted_in_a_step_but_read_behind_it_is_spent_there() -> None:
    parts = deleting(decoder(2), 4, "q")
    assert parts is not None and parts.spent == {"q"}
    assert "elementwise_add" in types(parts.behind) and "delete_var" not in types(parts.within)


def test_what_no_operator_behind_the_steps_reads_is_deleted_in_its_step() -> None:
    parts = deleting(decoder(2), 2, "p")
    assert parts is not None and parts.spent == frozenset()
    assert types(parts.within)[:3] == ["mul", "tanh", "delete_var"]


@pytest.mark.parametrize("name", ["c", "q"])
def test_a_deletion_that_a_value_depends_on_stays_where_it_is(name: str) -> None:
    """One of a variable outside, and one of a variable that is used again."""
    b = decoder(2)
    parts = deleting(b, 3 if name == "q" else 5, name)
    assert parts is None or name not in {each for op in (*parts.before, *parts.behind) for each in op.input_arg_names}


class Context:
    """What joining needs of one."""

    np = xp = np


CONTEXT: Any = Context()


def test_neighboring_parts_are_joined_without_a_copy() -> None:
    whole = np.arange(12.0).reshape(6, 2)
    found = joined(CONTEXT, [whole[:1], whole[1:4], whole[4:4], whole[4:5]])
    np.testing.assert_array_equal(found, whole[:5])
    assert np.shares_memory(found, whole)


@pytest.mark.parametrize("order", [(1, 0), (0, 2), (0, 0)])
def test_parts_that_do_not_follow_each_other_are_copied(order: tuple[int, int]) -> None:
    whole = np.arange(12.0).reshape(6, 2)
    parts = [whole[2 * n : 2 * n + 2] for n in order]
    found = joined(CONTEXT, parts)
    np.testing.assert_array_equal(found, np.concatenate(parts))
    assert not np.shares_memory(found, whole)


def test_parts_of_different_arrays_are_copied() -> None:
    first, second = np.zeros((4, 2)), np.ones((4, 2))
    found = joined(CONTEXT, [first[:2], second[2:]])
    np.testing.assert_array_equal(found, [[0, 0]] * 2 + [[1, 1]] * 2)


def test_columns_are_no_neighbors() -> None:
    whole = np.arange(8.0).reshape(2, 4)
    np.testing.assert_array_equal(joined(CONTEXT, [whole[:, :2], whole[:, :2]]), [[0, 1], [4, 5]] * 2)
