"""`fluid.debugger`, `fluid.graphviz` and `fluid.net_drawer`: programs as text and as graphs in DOT."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.errors import AssertedError
from fluidtool.fluid import debugger, net_drawer
from fluidtool.fluid.graphviz import Graph


@pytest.fixture
def program() -> Iterator[fluid.Program]:
    """fc and its gradient."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [-1, 3], "float32", lod_level=1)
        fluid.layers.fill_constant([2], "float32", 1.5)
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.fc(x, 4)))
        yield main


def test_text_has_variables_and_operators_without_gradients(program: fluid.Program) -> None:
    text = debugger.pprint_program_codes(program)
    assert "// block-0  parent--1" in text
    assert "LoDTensor x (level=1, tensor(type=float32, shape=[-1, 3]))" in text
    assert "Tensor fc_0.w_0 (tensor(type=float32, shape=[3, 4]))" in text
    assert "fill_constant_0.tmp_0 = 1.5 [shape=[2]]" in text
    assert "fc_0.tmp_0 = mul(X=x, Y=fc_0.w_0)" in text
    assert "@GRAD" not in text


def test_text_has_gradients_where_they_are_asked_for(program: fluid.Program) -> None:
    text = debugger.pprint_block_codes(program.global_block(), show_backward=True)
    assert "fc_0.w_0@GRAD" in text
    assert " = mul_grad(" in text
    assert " = sgd(" in text


def test_a_block_is_drawn_with_what_is_marked(program: fluid.Program, tmp_path: Path) -> None:
    path = tmp_path / "block.dot"
    debugger.draw_block_graphviz(program.global_block(), highlights=["mul$"], path=str(path))
    text = path.read_text()
    assert text.startswith("digraph G {")
    marked = [line for line in text.splitlines() if "orange" in line and "<<B>" in line]
    assert [line.count("<<B>mul</B>>") for line in marked] == [1]
    assert text.count("<<B>") == len(program.global_block().ops)


def test_what_sums_every_tensor_runs(program: fluid.Program) -> None:
    before = len(program.global_block().ops)
    tensors = len(program.global_block().vars)
    debugger.prepare_fast_nan_inf_debug(program)
    added = program.global_block().ops[before:]
    assert [op.type for op in added] == ["sum"] * tensors


def test_a_run_that_fails_saves_what_persists(
    program: fluid.Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {"x": fluid.create_lod_tensor(np.ones((2, 3), np.float32), [[2]], fluid.CPUPlace())}
    assert debugger.run_fast_nan_inf_debug(exe, program, feed, ["mean_0.tmp_0"])
    assert not list(tmp_path.iterdir())
    assert debugger.run_fast_nan_inf_debug(exe, program, {}, ["mean_0.tmp_0"]) is None
    (saved,) = tmp_path.glob("core*.pdckpt")
    assert f"dumping a core into ./{saved.name}" in capsys.readouterr().out
    with pytest.raises(AssertedError, match="takes an Executor"):
        debugger.run_fast_nan_inf_debug(None, program)


def test_two_programs_are_drawn_as_one_graph(program: fluid.Program, tmp_path: Path) -> None:
    path = tmp_path / "net.gv"
    graph = net_drawer.draw_graph(fluid.default_startup_program(), program, filename=str(path))
    assert path.read_text() == graph.code()
    assert 'label="Y(fc_0.w_0)"' in graph.code()


def test_nodes_of_a_rank_are_at_one_height() -> None:
    graph = Graph("title", rankdir="LR")
    rank = graph.rank_group("same", 1)
    a, b = graph.node('"a"', "n", rank=rank), graph.node('"b"', "n", rank=rank, color="red")
    graph.edge(a, b)
    assert f"{{rank=same;{a.name},{b.name}}}" in graph.code()
    assert f'{b.name} [label="b" ,color="red" ];' in graph.code()
    assert f"{a.name} -> {b.name} " in graph.code()
