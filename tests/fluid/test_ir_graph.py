"""`fluid.framework.IrGraph`: a program as nodes, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.errors import ArgumentTypeError, AssertedError, ProgramError
from fluidtool.fluid import core
from fluidtool.fluid.ir_graph import IrGraph


@pytest.fixture
def program() -> fluid.Program:
    """y = (2 x) + x, and y overwrites itself at the end."""
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [2])
        double = fluid.layers.scale(x, 2.0)
        y = fluid.layers.elementwise_add(double, x)
        fluid.layers.increment(fluid.layers.reduce_sum(y), 1.0, in_place=True)
    return program


def graph_of(program: fluid.Program) -> IrGraph:
    return IrGraph(core.Graph(program.desc))


def run(program: fluid.Program, name: str) -> Any:
    feed = {"x": np.array([1, 2], "float32")}
    return fluid.Executor(fluid.CPUPlace()).run(program, feed=feed, fetch_list=[name])[0].tolist()


def test_a_program_comes_back_as_it_was(program: fluid.Program) -> None:
    back = graph_of(program).to_program()
    assert [op.type for op in back.global_block().ops] == [op.type for op in program.global_block().ops]
    assert sorted(back.global_block().vars) == sorted(program.global_block().vars)
    assert run(back, "reduce_sum_0.tmp_0") == run(program, "reduce_sum_0.tmp_0") == [10.0]


def test_what_nodes_are(program: fluid.Program) -> None:
    graph = graph_of(program)
    assert [node.name() for node in graph.all_op_nodes()] == ["scale", "elementwise_add", "reduce_sum", "increment"]
    values = [node for node in graph.all_var_nodes() if node.name() == "reduce_sum_0.tmp_0"]
    assert [[op.name() for op in value.inputs] for value in values] == [["reduce_sum"], ["increment"]]
    assert (values[0].shape(), values[0].persistable(), values[0].is_var(), values[0].is_op()) == (
        [1],
        False,
        True,
        False,
    )


def insert_negation(graph: IrGraph) -> None:
    """Let the addition read -2 x in place of 2 x."""
    [double] = [node for node in graph.all_var_nodes() if node.name() == "scale_0.tmp_0"]
    [addition] = [node for node in graph.all_op_nodes() if node.name() == "elementwise_add"]
    new = graph.create_var_node("new", double.type(), double.shape(), double.dtype())
    op = graph.create_op_node("scale", {"scale": -1.0}, {"X": double}, {"Out": new})
    graph.link_to(double, op)
    graph.link_to(op, new)
    graph.update_input_link(double, new, addition)


def test_an_operator_is_put_between_two(program: fluid.Program) -> None:
    graph = graph_of(program)
    insert_negation(graph)
    changed = graph.to_program()
    assert [op.type for op in changed.global_block().ops][:3] == ["scale", "scale", "elementwise_add"]
    assert run(changed, "reduce_sum_0.tmp_0") == [-2.0]
    assert run(program, "reduce_sum_0.tmp_0") == [10.0]  # the program that the graph was made of stays as it was


def test_who_reads_a_value_comes_before_who_overwrites_it(program: fluid.Program) -> None:
    graph = graph_of(program)
    first = next(node for node in graph.all_var_nodes() if node.name() == "reduce_sum_0.tmp_0")
    kept = graph.create_var_node("kept", first.type(), first.shape(), first.dtype())
    copy = graph.create_op_node("assign", {}, {"X": first}, {"Out": kept})
    graph.link_to(first, copy)
    graph.link_to(copy, kept)
    changed = graph.to_program()
    assert [op.type for op in changed.global_block().ops][-2:] == ["assign", "increment"]
    assert run(changed, "kept") == [9.0]


def test_nodes_are_removed_with_their_links(program: fluid.Program) -> None:
    graph = graph_of(program)
    [last] = [node for node in graph.all_op_nodes() if node.name() == "increment"]
    graph.safe_remove_nodes(last)
    assert run(graph.to_program(), "reduce_sum_0.tmp_0") == [9.0]
    assert all(last not in node.outputs for node in graph.all_var_nodes())


def test_a_circle_is_an_error(program: fluid.Program) -> None:
    graph = graph_of(program)
    assert not graph.has_circle()
    [double] = [node for node in graph.all_op_nodes() if node.name() == "scale"]
    total = next(node for node in graph.all_var_nodes() if node.name() == "reduce_sum_0.tmp_0")
    graph.link_to(total, double)
    assert graph.has_circle()
    with pytest.raises(ProgramError, match="the graph has a circle through operators"):
        graph.to_program()


def test_a_clone_is_independent(program: fluid.Program) -> None:
    graph = graph_of(program)
    copy = graph.clone()
    insert_negation(copy)
    assert (len(graph.all_op_nodes()), len(copy.all_op_nodes())) == (4, 5)


def test_a_graph_is_drawn(program: fluid.Program, tmp_path: Path) -> None:
    graph = graph_of(program)
    graph.draw(str(tmp_path / "pictures"), "one", marked_nodes=graph.all_op_nodes())
    text = (tmp_path / "pictures" / "one.dot").read_text()
    assert text.count('style="filled"') == 4 and 'label="scale_0.tmp_0"' in text


def test_a_graph_is_compiled(program: fluid.Program) -> None:
    compiled = fluid.CompiledProgram(graph_of(program).graph)
    found = fluid.Executor(fluid.CPUPlace()).run(
        compiled, feed={"x": np.array([1, 2], "float32")}, fetch_list=["reduce_sum_0.tmp_0"]
    )
    assert found[0].tolist() == [10.0]


def test_what_is_refused(program: fluid.Program) -> None:
    with pytest.raises(AssertedError, match=r"instance of core\.Graph, found Program"):
        IrGraph(program)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="takes the desc of a Program, found str"):
        core.Graph("program")  # type: ignore[arg-type]
    graph, other = graph_of(program), graph_of(program)
    with pytest.raises(AssertedError, match="must be in the graph nodes"):
        graph.link_to(next(iter(other.all_var_nodes())), next(iter(graph.all_op_nodes())))
    with pytest.raises(AssertedError, match="Cannot find the target node in the giving set: none"):
        graph._find_node_by_name(graph.all_var_nodes(), "none")
