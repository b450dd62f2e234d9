"""Programs as graphs: nodes, links, blocks, and what is folded."""

from __future__ import annotations

import pytest

from fluidtool.drawing.build import program_graph
from fluidtool.drawing.folding import folded
from fluidtool.drawing.graph import Graph, Place
from fluidtool.drawing.kinds import KINDS, kind_of
from fluidtool.drawing.palette import KIND_COLORS
from fluidtool.drawing.text import shortened, visible
from fluidtool.ops.index import MODULES
from tests.cli.support import linear_program
from tests.drawing.programs import chain, looping, named
from tests.support.counted_work import LIMIT, growth


def linked(graph: Graph) -> set[tuple[str, str]]:
    return {(graph.nodes[link.source].title, graph.nodes[each].title) for link in graph.links for each in link.targets}


def test_operators_inputs_and_outputs_are_nodes() -> None:
    graph = program_graph(linear_program(), [])
    assert [node.title for node in graph.nodes] == ["x", "mul", "elementwise_add", "relu", "softmax", "probability"]
    assert [node.kind for node in graph.nodes][0::5] == ["input", "output"]


def test_values_lead_from_node_to_node() -> None:
    assert linked(program_graph(linear_program(), [])) == {
        ("x", "mul"),
        ("mul", "elementwise_add"),
        ("elementwise_add", "relu"),
        ("relu", "softmax"),
        ("softmax", "probability"),
    }


def test_a_value_that_is_changed_in_place_is_followed_by_version() -> None:
    graph = program_graph(linear_program(in_place=True), [])
    assert ("relu", "softmax") in linked(graph) and ("elementwise_add", "softmax") not in linked(graph)


def test_parameters_stand_in_the_node_that_reads_them() -> None:
    node = program_graph(linear_program(), []).nodes[1]
    assert (node.title, node.lines) == ("mul", ("Y (4, 3)",))


def test_links_have_the_shapes_of_their_values() -> None:
    labels = [link.label for link in program_graph(linear_program(), []).links]
    assert labels == ["(-1, 4)", "(-1, 3)", "(-1, 3)", "(-1, 3)", "(-1, 3)"]


def test_without_feed_operators_what_is_not_computed_is_an_input() -> None:
    program = linear_program()
    block = program.global_block()
    for position in reversed(range(len(block.ops))):
        if block.ops[position].type in ("feed", "fetch"):
            block.remove_op(position)
    graph = program_graph(program, ["probability"])
    assert [(node.title, node.kind) for node in graph.nodes if node.is_value] == [
        ("x", "input"),
        ("probability", "output"),
    ]


def test_a_block_is_a_group_in_the_operator_that_runs_it() -> None:
    graph = program_graph(looping(), [])
    (loop,) = graph.groups()
    assert (loop.title, loop.folded, loop.lines) == ("while", "block", ("block 1 · 3 operators",))
    assert loop.inner is not None
    assert {node.title for node in loop.inner.nodes if node.is_value} == {"x", "one", "condition"}
    assert ("assign", "less_than") in linked(loop.inner)


def test_every_operator_is_drawn_once() -> None:
    program = looping()
    places = list(program_graph(program, []).places())
    wanted = [Place(block.idx, position) for block in program.blocks for position in range(len(block.ops))]
    assert sorted(places) == wanted


def test_a_block_that_no_operator_runs_is_drawn() -> None:
    program = linear_program()
    program.create_block().append_op(type="relu", inputs={"X": ["x"]}, outputs={"Out": ["x"]})
    group = program_graph(program, []).nodes[-1]
    assert (group.title, group.lines) == ("block 1", ("no operator runs it", "1 operator"))


def test_an_unknown_operator_is_drawn_and_marked() -> None:
    node = program_graph(named("x"), []).nodes[2]
    assert (node.title, node.kind, node.lines) == ("mystery", "unknown", ("unknown operator",))


def test_every_operator_has_a_kind_with_a_color() -> None:
    assert {kind_of(op_type) for op_type in MODULES} <= set(KINDS) <= set(KIND_COLORS)


@pytest.mark.parametrize(
    ("op_type", "kind"),
    [
        ("conv2d", "convolution"),
        ("mul", "product"),
        ("layer_norm", "normalization"),
        ("while", "control"),
        ("adam", "optimizer"),
    ],
)
def test_kinds(op_type: str, kind: str) -> None:
    assert kind_of(op_type) == kind


# ---------------------------------------------------------------- folding
def test_what_is_small_is_not_folded() -> None:
    graph = program_graph(chain(50), [])
    assert folded(graph, 300) == graph


@pytest.mark.parametrize("size", [100, 1000, 3000])
def test_no_picture_of_a_large_graph_is_large(size: int) -> None:
    graph = folded(program_graph(chain(size), []), 60)
    assert max(len(each.nodes) for each in [graph, *(node.inner for node in graph.groups() if node.inner)]) <= 130


def test_folding_loses_no_operator() -> None:
    graph = program_graph(chain(500), [])
    assert sorted(folded(graph, 60).places()) == sorted(graph.places())


def test_links_of_what_is_folded_lead_to_later_nodes() -> None:
    graph = folded(program_graph(chain(500), []), 60)
    for each in [graph, *(node.inner for node in graph.groups() if node.inner)]:
        assert all(link.source < min(link.targets) for link in each.links)
        assert all(0 <= number < len(each.nodes) for link in each.links for number in (link.source, *link.targets))


def test_name_scopes_are_groups() -> None:
    graph = folded(program_graph(chain(100, scopes=4), []), 40)
    assert [node.title for node in graph.nodes if node.folded == "scope"] == [f"encoder_{at}" for at in range(4)]


def test_sections_are_cut_where_few_values_pass() -> None:
    graph = folded(program_graph(chain(100), []), 40)
    sections = [node for node in graph.nodes if node.folded == "section"]
    assert sections[0].title.startswith("operators 1–") and "relu ×" in sections[0].lines[1]
    assert [len(link.names) for link in graph.links] == [1] * len(graph.links)


def test_many_inputs_become_one() -> None:
    program = linear_program()
    block = program.global_block()
    for at in range(200):
        block.create_var(name=f"in{at}", shape=[2], dtype="float32")
        block.create_var(name=f"out{at}", shape=[2], dtype="float32")
        block.append_op(type="relu", inputs={"X": [f"in{at}"]}, outputs={"Out": [f"out{at}"]})
    titles = [node.title for node in folded(program_graph(program, []), 100).nodes if node.kind == "input"]
    assert len(titles) == 60 and titles[-1] == "142 inputs"


def test_work_grows_with_the_program() -> None:
    assert growth(lambda size: lambda: folded(program_graph(chain(size), []), 40), 300, 60) < LIMIT


# ---------------------------------------------------------------- text
def test_what_cannot_be_seen_is_written_out() -> None:
    assert visible("a\x1b[1m\u202eb\n") == "a\\x1b[1m\\u202eb\\n"


def test_long_text_keeps_its_ends() -> None:
    short = shortened("start" + "x" * 10_000 + "end", 20)
    assert len(short) == 20 and short.startswith("start") and short.endswith("end") and "…" in short
