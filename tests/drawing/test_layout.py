"""The layered layout: whatever graph it is given, nothing overlaps, lines go down, and work is in proportion to the graph."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluidtool.drawing.layout import Bundle, Layout, lay_out, routing
from fluidtool.drawing.layout.ordering import crossings, order_ranks
from fluidtool.drawing.layout.ranking import rank_nodes
from tests.support.counted_work import LIMIT, growth

Size = tuple[float, float]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Size], list[Bundle]]:
    """Up to 24 nodes of any size, and bundles to later nodes."""
    count = draw(st.integers(1, 24))
    sizes = draw(st.lists(st.tuples(st.floats(1, 300), st.floats(1, 90)), min_size=count, max_size=count))
    bundles = []
    for source in range(count - 1):
        for targets in draw(st.lists(st.sets(st.integers(source + 1, count - 1), min_size=1, max_size=4), max_size=2)):
            bundles.append(Bundle(source, tuple(sorted(targets))))
    return sizes, bundles


def ranks_of(layout: Layout) -> dict[int, int]:
    return {item: number for number, items in enumerate(layout.ranks) for item in items}


@given(graphs())
def test_nodes_do_not_overlap(graph: tuple[list[Size], list[Bundle]]) -> None:
    sizes, bundles = graph
    layout = lay_out(sizes, bundles)
    for items in layout.ranks:
        nodes = [item for item in items if item < len(sizes)]
        for left, right in pairwise(nodes):
            assert layout.x[left] + sizes[left][0] / 2 < layout.x[right] - sizes[right][0] / 2
    for (_, bottom), (top, _) in pairwise(zip(layout.tops, layout.bottoms, strict=True)):
        assert bottom < top


@given(graphs())
def test_every_node_lies_within_its_rank(graph: tuple[list[Size], list[Bundle]]) -> None:
    sizes, bundles = graph
    layout = lay_out(sizes, bundles)
    ranks = ranks_of(layout)
    for node, (_, height) in enumerate(sizes):
        rank = ranks[node]
        assert layout.tops[rank] <= layout.y[node] - height / 2 + 1e-9
        assert layout.y[node] + height / 2 <= layout.bottoms[rank] + 1e-9


@given(graphs())
def test_lines_go_down_one_rank_at_a_time(graph: tuple[list[Size], list[Bundle]]) -> None:
    sizes, bundles = graph
    layout = lay_out(sizes, bundles)
    ranks = ranks_of(layout)
    for bundle, route in zip(bundles, layout.routes, strict=True):
        for target, length in zip(bundle.targets, route.lengths, strict=True):
            assert length is not None
            way = [bundle.source, *route.trunk[:length], target]
            assert [ranks[item] for item in way] == list(range(ranks[bundle.source], ranks[target] + 1))


@given(graphs())
def test_lines_do_not_run_through_nodes(graph: tuple[list[Size], list[Bundle]]) -> None:
    sizes, bundles = graph
    layout = lay_out(sizes, bundles)
    for items in layout.ranks:
        for left, right in pairwise(items):
            half = [sizes[item][0] / 2 if item < len(sizes) else 0.0 for item in (left, right)]
            assert layout.x[left] + half[0] < layout.x[right] - half[1]


@given(graphs())
def test_the_leftmost_edge_is_at_zero(graph: tuple[list[Size], list[Bundle]]) -> None:
    sizes, bundles = graph
    layout = lay_out(sizes, bundles)
    lefts = [layout.x[node] - width / 2 for node, (width, _) in enumerate(sizes)]
    assert min(lefts) >= -0.01


@given(graphs())
def test_the_same_graph_is_laid_out_the_same(graph: tuple[list[Size], list[Bundle]]) -> None:
    assert lay_out(*graph) == lay_out(*graph)


def test_a_chain_is_a_straight_line() -> None:
    layout = lay_out([(100, 30), (60, 30), (200, 30)], [Bundle(0, (1,)), Bundle(1, (2,))])
    assert len(set(layout.x)) == 1


def test_a_long_line_beside_a_chain_is_straight() -> None:
    chain = [Bundle(at, (at + 1,)) for at in range(9)]
    layout = lay_out([(100, 30)] * 10, [*chain, Bundle(0, (9,))])
    trunk = layout.routes[-1].trunk
    assert len(trunk) == 8
    assert len({layout.x[item] for item in trunk}) == 1


def test_two_crossed_pairs_are_uncrossed() -> None:
    bundles = [Bundle(0, (3,)), Bundle(1, (2,))]
    web = routing.route([(10, 10)] * 4, bundles, rank_nodes(4, bundles))
    assert crossings(web, [[0, 1], [2, 3]]) == 1
    assert crossings(web, order_ranks(web)) == 0


def test_a_constant_stands_just_above_what_reads_it() -> None:
    # 0 -> 1 -> 2 -> 3, and 4 is read by 5 alone, which is at the end
    chain = [Bundle(0, (1,)), Bundle(1, (2,)), Bundle(2, (3,)), Bundle(3, (5,)), Bundle(4, (5,))]
    assert rank_nodes(6, chain) == [0, 1, 2, 3, 3, 4]


def test_what_is_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "ALWAYS", 3)
    monkeypatch.setattr(routing, "MOST_WAYPOINTS", 0)
    chain = [Bundle(at, (at + 1,)) for at in range(9)]
    layout = lay_out([(100, 30)] * 10, [*chain, Bundle(0, (9,)), Bundle(2, (4, 9))])
    assert layout.routes[-2].lengths == (None,)
    assert layout.routes[-1].lengths == (1, None) or layout.routes[-1].lengths == (None, None)
    assert len(layout.x) <= 10 + 3


def test_a_graph_without_nodes() -> None:
    layout = lay_out([], [])
    assert (layout.x, layout.ranks) == ((), ())


def _grid(size: int) -> tuple[list[Size], list[Bundle]]:
    """Chains with skips of all lengths up to 12."""
    bundles = [Bundle(at, tuple(sorted({at + 1, min(at + 2 + at % 11, size - 1)}))) for at in range(size - 1)]
    return [(80.0, 30.0)] * size, bundles


def test_work_grows_with_the_graph() -> None:
    assert growth(lambda size: lambda: lay_out(*_grid(size)), 400, 40) < LIMIT


def test_work_grows_with_values_that_everything_reads() -> None:
    def star(size: int) -> tuple[list[Size], list[Bundle]]:
        chain = [Bundle(at, (at + 1,)) for at in range(size - 1)]
        return [(80.0, 30.0)] * size, [*chain, *(Bundle(at, tuple(range(at + 1, size))) for at in range(3))]

    assert growth(lambda size: lambda: lay_out(*star(size)), 400, 40) < LIMIT
