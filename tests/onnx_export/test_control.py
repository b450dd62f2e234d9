"""Loops, branches and arrays of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidtool.fluid as fluid
from fluidtool.fluid import layers
from fluidtool.onnx_export.exporter import export
from fluidtool.runtime import Executor, Scope
from tests.onnx_export.support import require_onnx, run_onnx

require_onnx()


def both(build: Any, feed: dict[str, Any]) -> tuple[list[Any], list[Any], set[str]]:
    """Our outputs, those of ONNX Runtime, and the kinds of nodes."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        names = [out.name for out in build()]
    found = export(main, list(feed), names, {})
    own = Executor(engine="numpy").run(main, feed, names, Scope())
    return [value.numpy() for value in own], run_onnx(found, feed, names), {node.kind for node in found.graph.nodes}


@pytest.mark.parametrize("count", [0, 1, 5])
def test_while_is_a_loop(count: int) -> None:
    def build() -> list[Any]:
        limit = layers.data("limit", [1], append_batch_size=False, dtype="int64")
        i = layers.fill_constant([1], "int64", 0)
        total = layers.fill_constant([2], "float32", 1.0)
        cond = layers.less_than(i, limit)
        loop = layers.While(cond)
        with loop.block():
            layers.assign(layers.scale(total, 2.0), total)
            layers.increment(i)
            layers.less_than(i, limit, cond=cond)
        return [total, i]

    own, found, kinds = both(build, {"limit": np.array([count])})
    assert "Loop" in kinds
    for a, b in zip(own, found, strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b)


def test_an_array_grows_in_a_loop() -> None:
    def build() -> list[Any]:
        limit = layers.data("limit", [1], append_batch_size=False, dtype="int64")
        x = layers.data("x", [2, 3], append_batch_size=False)
        i = layers.fill_constant([1], "int64", 0)
        array = layers.array_write(x, i)
        cond = layers.less_than(i, limit)
        loop = layers.While(cond)
        with loop.block():
            before = layers.array_read(array, i)
            layers.increment(i)
            layers.array_write(layers.scale(before, 2.0, bias=1.0), i, array)
            layers.less_than(i, limit, cond=cond)
        return [layers.array_read(array, i), layers.array_length(array)]

    own, found, _ = both(build, {"limit": np.array([4]), "x": np.ones((2, 3), "float32")})
    for a, b in zip(own, found, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape) and np.allclose(a, b)


@pytest.mark.parametrize("value", [0.0, 2.0])
def test_cond_is_an_if(value: float) -> None:
    def build() -> list[Any]:
        x = layers.data("x", [1], append_batch_size=False)
        return [
            layers.cond(
                layers.less_than(x, layers.fill_constant([1], "float32", 1.0)), lambda: x * 3.0, lambda: x - 5.0
            )
        ]

    own, found, kinds = both(build, {"x": np.array([value], "float32")})
    assert "If" in kinds and np.array_equal(own[0], found[0])


def test_a_static_rnn_is_a_scan() -> None:
    def build() -> list[Any]:
        x = layers.data("x", [4, 2, 3], append_batch_size=False)
        rnn = layers.StaticRNN()
        with rnn.step():
            word = rnn.step_input(x)
            memory = rnn.memory(shape=[-1, 3], batch_ref=word, init_value=0.5)
            now = layers.elementwise_add(layers.scale(memory, 0.5), word)
            rnn.update_memory(memory, now)
            rnn.step_output(now)
        return [rnn()]

    own, found, kinds = both(build, {"x": np.random.default_rng(0).random((4, 2, 3)).astype("float32")})
    assert "Scan" in kinds
    np.testing.assert_allclose(found[0], own[0], rtol=1e-6)


def test_an_operator_without_rendering_inside_a_loop_is_listed_with_its_block() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        i, limit = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
        out = layers.fill_constant([1, 1], "float32", 0.0)
        cond = layers.less_than(i, limit)
        loop = layers.While(cond)
        with loop.block():
            layers.assign(layers.similarity_focus(layers.fill_constant([1, 1, 1, 1], "float32", 1.0), 1, [0]), out)
            row = layers.fill_constant([1, 1], "float32", 1.0)
            main.current_block().append_op(type="sampling_id", inputs={"X": [row]}, outputs={"Out": [out]})
            layers.increment(i)
            layers.less_than(i, limit, cond=cond)
    found = export(main, [], [out.name], {}).blockers
    assert {(each.block, each.type) for each in found} == {(1, "sampling_id"), (0, "while")}
