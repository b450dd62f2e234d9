"""`fluidtool.reshape`: what follows the new shapes of inputs, what contains the old ones, and how that is repaired.

Every repaired model is run: its outputs for a larger batch are those for the old batch, row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool
from fluidtool.errors import BakedSizeError, FluidError, OutputExistsError, UsageError
from fluidtool.io.inference import inference_program
from fluidtool.ir import Program
from fluidtool.ir.operator import hooks
from fluidtool.ir.roles import CALLSTACK_ATTR
from fluidtool.ops.inference import infer_declared
from tests.cli.support import WEIGHT, call, error_of, everything_below, linear_model, write_model


@pytest.fixture(autouse=True)
def operators_as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "prepare", None)
    monkeypatch.setattr(hooks, "infer", None)


class Net:
    """A program of one input x, built operator by operator; `y` is its output."""

    def __init__(self, *shape: int) -> None:
        self.program = Program()
        self.block = self.program.global_block()
        self.block.create_var(name="x", shape=shape, dtype="float32")

    def op(self, kind: str, out: str, attrs: dict[str, Any] | None = None, **inputs: str | list[str]) -> Net:
        self.block.create_var(name=out, dtype="float32")
        given = {slot: [names] if isinstance(names, str) else names for slot, names in inputs.items()}
        infer_declared(self.block.append_op(type=kind, inputs=given, outputs={"Out": [out]}, attrs=attrs))
        return self

    def weight(self) -> Net:
        self.block.create_parameter(name="w", shape=[4, 3], dtype="float32")
        return self

    def save(self, folder: Path, *, feeds: tuple[str, ...] = ("x",)) -> Path:
        program = inference_program(self.program, list(feeds), ["y"])
        return write_model(folder, program, **({"w": WEIGHT} if self.block.has_var("w") else {}))


def constant(*shape: int) -> dict[str, Any]:
    return {"shape": list(shape), "value": 2.0, "dtype": 5}


def leading() -> Net:
    return Net(2, 2, 3).op("reshape", "y", {"shape": [2, 6]}, X="x")


def leading_with_rest() -> Net:
    return Net(2, 2, 3).op("reshape", "y", {"shape": [2, -1]}, X="x")


def merged() -> Net:
    return Net(2, 2, 3).op("reshape", "y", {"shape": [4, 3]}, X="x")


def inner() -> Net:
    net = Net(2, 6).op("transpose", "t", {"axis": [1, 0]}, X="x").op("reshape", "r", {"shape": [3, 2, 2]}, X="t")
    return net.op("transpose", "y", {"axis": [2, 0, 1]}, X="r")


def added() -> Net:
    return Net(2, 3).op("fill_constant", "c", constant(2, 3)).op("elementwise_add", "y", {"axis": -1}, X="x", Y="c")


def scaled_constant() -> Net:
    net = Net(2, 3).op("fill_constant", "c", constant(2, 4)).op("scale", "s", {"scale": 3.0}, X="c")
    return net.op("concat", "y", {"axis": 1}, X=["x", "s"])


def expanded() -> Net:
    net = Net(2, 3).op("fill_constant", "c", constant(1, 3)).op("expand", "e", {"expand_times": [2, 1]}, X="c")
    return net.op("concat", "y", {"axis": 1}, X=["x", "e"])


def sliced() -> Net:
    return Net(2, 3).op("slice", "y", {"axes": [0], "starts": [0], "ends": [2]}, Input="x")


REPAIRED: dict[Callable[[], Net], tuple[str, str]] = {
    leading: ("reshape", "shape [0, 6]"),
    leading_with_rest: ("reshape", "shape [0, -1]"),
    merged: ("reshape", "shape [-1, 3]"),
    inner: ("reshape", "shape [3, 2, -1]"),
    added: ("fill_constant", "fill_constant_batch_size_like, size 0 from x"),
    scaled_constant: ("fill_constant", "fill_constant_batch_size_like, size 0 from x"),
    expanded: ("expand", "expand_as, size 0 from x"),
    sliced: ("slice", "ends [2147483647]"),
}


def rows(*shape: int) -> Any:
    return np.random.default_rng(0).random(shape, np.float32)


@pytest.mark.parametrize("batch", [4, 5, -1])
@pytest.mark.parametrize("make", REPAIRED)
def test_a_repaired_model_gives_the_same_rows_in_another_batch(
    make: Callable[[], Net], batch: int, tmp_path: Path
) -> None:
    folder = make().save(tmp_path / "model")
    old = fluidtool.load(folder)
    shape = old.program.global_block().var("x").shape
    done = fluidtool.reshape(folder, {"x": (batch, *shape[1:])}, tmp_path / "out", fix_baked_batch=True)
    assert [(each.type, each.repair) for each in done.baked] == [REPAIRED[make]]
    for rows_fed in (4,) if batch == -1 else (batch,):
        x = rows(rows_fed, *shape[1:])
        (found,) = fluidtool.load(tmp_path / "out").run({"x": x}).values()
        again = np.concatenate([x, x])[: 2 * -(-rows_fed // 2)]
        parts = [old.run({"x": part})["y"].numpy() for part in np.split(again, len(again) // 2)]
        wanted = np.concatenate(parts)[: len(found.numpy())]
        assert np.array_equal(found.numpy(), wanted)


@pytest.mark.parametrize("make", REPAIRED)
def test_a_repaired_model_is_the_same_for_the_old_batch(make: Callable[[], Net], tmp_path: Path) -> None:
    folder = make().save(tmp_path / "model")
    shape = fluidtool.load(folder).program.global_block().var("x").shape
    fluidtool.reshape(folder, {"x": (-1, *shape[1:])}, tmp_path / "out", fix_baked_batch=True)
    x = {"x": rows(*shape)}
    before, after = (fluidtool.load(each).run(x)["y"].numpy() for each in (folder, tmp_path / "out"))
    assert np.array_equal(before, after)


@pytest.mark.parametrize("make", REPAIRED)
def test_nothing_is_written_without_repair(make: Callable[[], Net], tmp_path: Path) -> None:
    folder = make().save(tmp_path / "model")
    shape = fluidtool.load(folder).program.global_block().var("x").shape
    with pytest.raises(BakedSizeError, match="fix_baked_batch=True repairs 1 of 1") as raised:
        fluidtool.reshape(folder, {"x": (5, *shape[1:])}, tmp_path / "out")
    assert raised.value.operators[0].type == REPAIRED[make][0]
    assert not (tmp_path / "out").exists()


def test_shapes_follow_through_the_program(tmp_path: Path) -> None:
    done = fluidtool.reshape(linear_model(tmp_path / "model"), {"x": (8, 4)}, tmp_path / "out")
    block = fluidtool.load(tmp_path / "out").program.global_block()
    assert [block.var(name).shape for name in ("x", "product", "sum", "probability")] == [(8, 4), *[(8, 3)] * 3]
    assert (done.inputs, done.outputs) == ({"x": ((-1, 4), (8, 4))}, {"probability": ((-1, 3), (8, 3))})
    assert everything_below(tmp_path / "out") == {"__model__", "w", "b"}


def test_a_batch_that_only_a_reshape_knows_is_learnt_from_it(tmp_path: Path) -> None:
    net = Net(-1, 2, 3).op("reshape", "r", {"shape": [2, 6]}, X="x").op("fill_constant", "c", constant(2, 6))
    folder = net.op("elementwise_add", "y", {"axis": -1}, X="r", Y="c").save(tmp_path / "model")
    done = fluidtool.reshape(folder, {"x": (5, 2, 3)}, tmp_path / "out", fix_baked_batch=True)
    assert [each.type for each in done.baked] == ["reshape", "fill_constant"]
    x = rows(5, 2, 3)
    assert np.array_equal(fluidtool.load(tmp_path / "out").run({"x": x})["y"].numpy(), x.reshape(5, 6) + 2)


def test_a_reshape_that_follows_the_batch_is_left_alone(tmp_path: Path) -> None:
    folder = Net(1, 1, 6).op("reshape", "y", {"shape": [-1, 1, 1, 6]}, X="x").save(tmp_path / "model")
    assert fluidtool.reshape(folder, {"x": (5, 1, 6)}).baked == ()


def test_a_constant_that_broadcasts_is_left_alone(tmp_path: Path) -> None:
    net = Net(2, 3).op("fill_constant", "c", constant(1, 3))
    folder = net.op("elementwise_add", "y", {"axis": -1}, X="x", Y="c").save(tmp_path / "model")
    assert fluidtool.reshape(folder, {"x": (5, 3)}).baked == ()


def test_numbers_that_fill_the_old_batch_cannot_be_repaired(tmp_path: Path) -> None:
    values = {"shape": [2, 3], "dtype": 5, "fp32_values": [1.0] * 6}
    net = Net(2, 3).op("assign_value", "c", values).op("elementwise_add", "y", {"axis": -1}, X="x", Y="c")
    folder = net.save(tmp_path / "model")
    with pytest.raises(BakedSizeError, match="cannot be repaired: first operator 1 of block 0, assign_value") as raised:
        fluidtool.reshape(folder, {"x": (5, 3)}, tmp_path / "out", fix_baked_batch=True)
    assert raised.value.operators[0].repair == "" and not (tmp_path / "out").exists()


def test_another_input_that_keeps_its_batch_is_named(tmp_path: Path) -> None:
    net = Net(2, 3)
    net.block.create_var(name="z", shape=[2, 3], dtype="float32")
    net.op("relu", "r", X="z")  # the input is found through what is computed from it
    folder = net.op("elementwise_add", "y", {"axis": -1}, X="x", Y="r").save(tmp_path / "model", feeds=("x", "z"))
    with pytest.raises(BakedSizeError, match="name the shape of the input z, too"):
        fluidtool.reshape(folder, {"x": (5, 3)})
    assert fluidtool.reshape(folder, {"x": (5, 3), "z": (5, 3)}).outputs["y"] == ((2, 3), (5, 3))


def test_an_operator_says_where_it_was_written(tmp_path: Path) -> None:
    net = leading()
    net.block.ops[0].set_attr(CALLSTACK_ATTR, ['  File "net.py", line 7, in f\n    y = reshape(x, [2, 6])'])
    (found,) = fluidtool.reshape(net.save(tmp_path / "model"), {"x": (4, 2, 3)}, fix_baked_batch=True).baked
    assert (found.block, found.operator, found.output) == (0, 1, "y")
    assert (found.attribute, found.value, found.written_in) == (
        "shape",
        "[2, 6]",
        "net.py, line 7: y = reshape(x, [2, 6])",
    )


def test_an_unknown_operator_is_shown_and_its_sizes_are_open(tmp_path: Path) -> None:
    net = Net(2, 3)
    net.block.create_var(name="u", shape=[2, 3], dtype="float32")
    net.block.append_op(type="mystery", inputs={"X": ["x"]}, outputs={"Out": ["u"]})
    folder = net.op("relu", "y", X="u").save(tmp_path / "model")
    done = fluidtool.reshape(folder, {"x": (5, 3)}, tmp_path / "out")
    assert done.unknown == ((0, 1, "mystery"),) and done.outputs["y"] == ((2, 3), (-1, 3))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"w": (5, 4)}, "'w' is not an input; the inputs are x"),
        ({"x": (5, 4, 1)}, "has 2 sizes"),
        ({"x": (0, 4)}, "cannot have the size 0"),
        ({"x": (-2, 4)}, "cannot have the size -2"),
        ({"x": (2**31, 4)}, "cannot have the size 2147483648"),
        ({}, "name an input and its shape"),
    ],
)
def test_what_is_not_a_shape_of_an_input_is_refused(shapes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        fluidtool.reshape(linear_model(tmp_path / "model"), shapes, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_size_that_is_no_batch_must_fit(tmp_path: Path) -> None:
    with pytest.raises(FluidError, match="mul"):
        fluidtool.reshape(linear_model(tmp_path / "model"), {"x": (2, 5)}, tmp_path / "out", fix_baked_batch=True)


# ---------------------------------------------------------------- a batch that the model does not take
def test_a_batch_that_the_model_does_not_take_is_refused(tmp_path: Path) -> None:
    model = fluidtool.load(leading().save(tmp_path / "model"))
    with pytest.raises(
        UsageError, match=r"x float32 \(2, 2, 3\) is declared with a batch of 2, not 5; .*{'x': \[5,2,3\]}"
    ):
        fluidtool.run(model, fluidtool.Inputs(random=True, batch=5))
    assert fluidtool.run(model, fluidtool.Inputs(random=True, batch=2)).outputs["y"].numpy().shape == (2, 6)
    assert fluidtool.run(model, fluidtool.Inputs(random=True)).outputs["y"].numpy().shape == (2, 6)


def test_a_batch_that_one_input_does_not_take_is_noted(tmp_path: Path) -> None:
    net = Net(-1, 3)
    net.block.create_var(name="z", shape=[1, 3], dtype="float32")
    folder = net.op("elementwise_add", "y", {"axis": -1}, X="x", Y="z").save(tmp_path / "model", feeds=("x", "z"))
    result = call("run", folder, "--random", "--batch", 5)
    assert result.exit_code == 0
    assert "note: the input z float32 (1, 3) is declared with a batch of 1, not 5, and keeps it" in result.stderr


@pytest.mark.parametrize("command", [["run", "--random"], ["inspect"], ["inspect", "--plan"], ["profile", "--random"]])
def test_commands_refuse_a_batch_that_the_model_does_not_take(command: list[str], tmp_path: Path) -> None:
    folder = leading().save(tmp_path / "model")
    result = call(command[0], folder, *command[1:], "--batch", 5)
    assert result.exit_code == 2 and "declared with a batch of 2, not 5" in error_of(result)
    assert call(command[0], folder, *command[1:], "--batch", 2).exit_code == 0


def test_an_input_whose_shape_is_given_needs_no_batch(tmp_path: Path) -> None:
    folder = leading().save(tmp_path / "model")
    assert call("inspect", folder, "--batch", 5, "--shape", "x=2,2,3").exit_code == 0


def test_an_existing_model_stays_without_overwrite(tmp_path: Path) -> None:
    folder = linear_model(tmp_path / "model")
    before = (folder / "__model__").read_bytes()
    with pytest.raises(OutputExistsError):
        fluidtool.reshape(folder, {"": (8, 4)}, folder)
    assert (folder / "__model__").read_bytes() == before
    fluidtool.reshape(folder, {"": (8, 4)}, folder, overwrite=True)
    assert fluidtool.load(folder).program.global_block().var("x").shape == (8, 4)
