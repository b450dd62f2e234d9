"""Attention in training steps with halves in memory: by cuDNN, forward and backward, where it has plans; else products and softmax.

In float32, and with a dropout of the weights, whose numbers cuDNN would draw by a generator of its own, it stays as the program
has it: products, and kernels of rows (softmax.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fluidtool.records import dataclass
from fluidtool.runtime.engines.cuda.attention import MOST_COLUMNS, whole_mask
from fluidtool.runtime.engines.cuda.calls import (
    Attention,
    AttentionGradient,
    Buffer,
    Call,
    Choice,
    Heads,
    Place,
    row_major,
)
from fluidtool.runtime.engines.cuda.lowering import (
    TENSOR_CORES,
    Lowering,
    lowers,
    products,
)
from fluidtool.runtime.engines.cuda.rows import softmax
from fluidtool.runtime.engines.cuda.training.softmax import SOFTMAX_GRADIENT, factor_by, softmax_gradient
from fluidtool.runtime.graph.importers.registry import ADD
from fluidtool.runtime.graph.ir import NONE, Graph, Node, Shape, Value


# ---------------------------------------------------------------- finding it
@dataclass(frozen=True, eq=False, slots=True)
class _Found:
    """An attention of a step: what it reads, the nodes that it is, and the values that it leaves."""

    q: Value
    k: Value
    v: Value
    grad: Value
    mask: tuple[Value, ...]
    mask_shape: Shape | None
    factor: float
    out: Node
    results: tuple[Node, Node, Node]  # the gradients of q, k, v
    within: tuple[Node, ...]


class _Unlike(Exception):
    """Nodes are not those of an attention."""


def _need(condition: bool) -> None:
    if not condition:
        raise _Unlike


class _Search:
    """Who makes and who reads each value of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.made = {node.output: node for node in graph.nodes}
        self.readers: dict[Value, list[Node]] = {}
        self.outputs = set(graph.outputs)
        for node in graph.nodes:
            for value in dict.fromkeys((*node.inputs, *(() if node.residual is None else (node.residual,)))):
                self.readers.setdefault(value, []).append(node)

    def maker(self, value: Value, kind: str, count: int = 1) -> Node:
        """The node of a kind that makes a value, which so many nodes read, and nobody outside."""
        node = self.made.get(value)
        _need(node is not None and value not in self.outputs and len(self.readers.get(value, ())) == count)
        assert node is not None
        _need(node.kind == kind and node.residual is None and (node.activation == NONE or kind == "unary"))
        return node

    def factor(self, value: Value) -> Node | None:
        """The node that multiplies by a number, if it is what makes a value that one node reads."""
        for kind in ("formula", "unary"):
            try:
                node = self.maker(value, kind)
            except _Unlike:
                continue
            if factor_by(node) is not None:
                return node
        return None

    def reader(self, value: Value, kind: str) -> Node:
        """The only reader of a kind of a value."""
        found = [node for node in self.readers.get(value, ()) if node.kind == kind]
        _need(len(found) == 1)
        return found[0]

    # ---------------------------------------------------------------- both ways
    def attention(self, out: Node) -> _Found:
        """The attention whose weighted values a product is. Raises _Unlike."""
        _need(out.kind == "matmul" and not out.attrs["swap_y"] and out.activation == NONE and out.residual is None)
        weights, v = out.inputs
        first = self.maker(weights, "softmax", 3)
        _need(len(weights.shape) == 4 and first.attrs["factor"] == 1.0 and len(first.inputs) == 1)
        within, scores = [first], first.inputs[0]
        mask: tuple[Value, ...] = ()
        mask_shape = None
        try:
            added = self.maker(scores, "binary")
            _need(added.attrs["operation"] == ADD and len(added.attrs["y_shape"]) == 4)
            mask, mask_shape, scores = (added.inputs[1],), tuple(added.attrs["y_shape"]), added.inputs[0]
            within.append(added)
        except _Unlike:
            pass
        scaled = self.factor(scores)
        if scaled is not None:
            within.append(scaled)
            scores = scaled.inputs[0]
        product = self.maker(scores, "matmul")
        _need(bool(product.attrs["swap_y"]))
        q, k = product.inputs
        factor = 1.0 if scaled is None else factor_by(scaled)
        assert factor is not None
        grad, results, more = self._gradients(weights, (q, k, v), out, factor)
        found = _Found(q, k, v, grad, mask, mask_shape, factor, out, results, (*within, product, *more))
        _need(_fits(found))
        return found

    def _gradients(
        self, weights: Value, given: tuple[Value, Value, Value], out: Node, factor: float
    ) -> tuple[Value, tuple[Node, Node, Node], list[Node]]:
        """The gradient of the result, the nodes of the gradients of q, k and v, and the others between them."""
        q, k, v = given
        steep, turned = self.reader(weights, SOFTMAX_GRADIENT), self.reader(weights, "transpose")
        by_weights = self.maker(steep.inputs[1], "matmul")
        grad, other = by_weights.inputs
        _need(steep.inputs[0] is weights and other is v and bool(by_weights.attrs["swap_y"]))
        by_v = self._turned_product(turned, grad)
        within, scores = [steep, by_weights, turned], steep.output
        if factor != 1.0:
            (scaled,) = self.readers.get(scores, [None])[:1]
            _need(scaled is not None and len(self.readers[scores]) == 1 and scores not in self.outputs)
            assert scaled is not None
            _need(factor_by(scaled) == factor)
            within.append(scaled)
            scores = scaled.output
        _need(len(self.readers.get(scores, ())) == 2 and scores not in self.outputs)
        by_q, again = self.reader(scores, "matmul"), self.reader(scores, "transpose")
        by_k = self._turned_product(again, q)
        keys = by_q.inputs[1]
        if by_q.attrs["swap_y"]:
            columns = self.maker(keys, "transpose")
            _need(_is_turned(columns))
            within.append(columns)
            keys = columns.inputs[0]
        _need(by_q.inputs[0] is scores and keys is k)
        return grad, (by_q, by_k, by_v), [*within, again]

    def _turned_product(self, turned: Node, other: Value) -> Node:
        """The product of a transposed matrix, which nothing else reads, and another."""
        _need(_is_turned(turned) and turned.output not in self.outputs and len(self.readers[turned.output]) == 1)
        (node,) = self.readers[turned.output]
        _need(node.kind == "matmul" and not node.attrs["swap_y"])
        _need(node.inputs[0] is turned.output and node.inputs[1] is other)
        return node


def _is_turned(node: Node) -> bool:
    return tuple(node.attrs["axes"]) == (0, 1, 3, 2)


def _fits(found: _Found) -> bool:
    """Whether cuDNN takes heads of these sizes, which are whole pieces of 16 bytes."""
    sizes = (found.q.shape[-1], found.v.shape[-1])
    one_batch = found.q.shape[:2] == found.k.shape[:2] == found.v.shape[:2]
    plain = all(node.activation == NONE and node.residual is None for node in found.results)
    return one_batch and plain and all(size % TENSOR_CORES == 0 and size <= MOST_COLUMNS for size in sizes)


def with_attention(graph: Graph, is_offered: bool) -> Graph:
    """The graph with attentions as a node for each direction, where they are offered."""
    if not is_offered:
        return graph
    search = _Search(graph)
    for node in graph.nodes:
        try:
            found = search.attention(node)
        except _Unlike:
            continue
        graph = _joined(graph, found)
        search = _Search(graph)
    return graph


def _joined(graph: Graph, found: _Found) -> Graph:
    attrs = {"factor": found.factor, "mask_shape": found.mask_shape}
    forward = Node("attention_step", [found.q, found.k, found.v, *found.mask], found.out.output, attrs)
    of_q, of_k, of_v = (node.output for node in found.results)
    given = [found.q, found.k, found.v, found.out.output, found.grad, *found.mask]
    backward = [Node("attention_gradient", given, of_q, attrs)]
    backward += [Node("attention_part", [of_q], value, {"name": name}) for name, value in (("k", of_k), ("v", of_v))]
    gone = {*found.within, *found.results}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node is found.out:
            nodes.append(forward)
        elif node not in gone:
            nodes.append(node)
        elif backward and found.grad in node.inputs:  # the first that reads the gradient of the result
            nodes += backward
            backward = []
    return graph.with_nodes(nodes)


# ---------------------------------------------------------------- lowering it
def _heads(low: Lowering, value: Value) -> Heads:
    """A value in halves whose columns lie side by side."""
    place = low.place(value)
    if place.strides[3] != 1 or place.buffer.half != low.half:
        place = low.laid(value, side_by_side(value.shape), low.half)
    return Heads(place, value.shape)


def side_by_side(shape: Shape) -> Shape:
    """The strides of [batch, heads, rows, columns] as layers have it: the heads of a row one after another."""
    _, heads, rows, columns = shape
    return rows * heads * columns, columns, heads * columns, 1


def _new(low: Lowering, shape: Shape) -> Heads:
    return Heads(Place(low.room(shape, low.half), side_by_side(shape)), shape)


def _keep(low: Lowering, value: Value, found: Heads) -> None:
    """Make heads the value, in float32 where that is asked for."""
    low.places[value] = found.place
    if not low.half_of(value):
        low.places[value] = low.copy(value, Place(Buffer(value.floats), row_major(value.shape)))


def _mask_of(low: Lowering, node: Node, out: Value, sizes: tuple[int, int], mask: Sequence[Value]) -> Heads | None:
    """The mask in halves, made once for both directions."""
    if not mask:
        return None
    if (out, "mask") not in low.beside:
        low.beside[out, "mask"] = whole_mask(low, mask[0], node.attrs["mask_shape"], sizes).place
    return Heads(low.beside[out, "mask"], (*node.attrs["mask_shape"][:2], *sizes))


def _weights(low: Lowering, node: Node, q: Heads, k: Heads, mask: Sequence[Value], stats: Place | None) -> Place:
    """The softmax of the scores, and the logarithms of its sums."""
    shape = (*q.shape[:3], k.shape[2])
    scores, place = Value(f"scores of {node.output.name}", shape), Place(low.room(shape, low.half), row_major(shape))
    low.places[scores] = place
    products(low, (q.place, q.shape), (k.place, k.shape), True, place, NONE)
    softmax(low, scores, mask[0] if mask else None, node.attrs, place, stats)
    return place


def _instead(low: Lowering, before: list[Call]) -> tuple[Call, ...]:
    """The calls since `before`, which is what there is again."""
    found, low.calls = tuple(low.calls), before
    return found


@lowers("attention_step")
def _attention_step(low: Lowering, node: Node) -> None:
    """By cuDNN; else scores, their softmax in place, and the weighted values. The logarithms of the sums are beside the result."""
    q, k, v = (_heads(low, value) for value in node.inputs[:3])
    mask, out = node.inputs[3:], _new(low, node.output.shape)
    rows = (*q.shape[:3], 1)
    stats = low.beside[node.output, "stats"] = Place(Buffer(prod(rows)), row_major(rows))
    added = _mask_of(low, node, node.output, (q.shape[2], k.shape[2]), mask)
    before, low.calls = low.calls, []
    weights = _weights(low, node, q, k, mask, stats)
    products(low, (weights, (*q.shape[:3], k.shape[2])), (v.place, v.shape), False, out.place, NONE)
    otherwise = _instead(low, before)
    call = Attention(q, k, v, out, node.attrs["factor"], added, Heads(stats, rows))
    low.calls.append(Choice(call, otherwise))  # type: ignore[arg-type]
    _keep(low, node.output, out)


@lowers("attention_gradient")
def _attention_gradient(low: Lowering, node: Node) -> None:
    """By cuDNN; else the weights again, and products with them and with their gradients."""
    values = node.inputs[:5]
    q, k, v, out, grad = (_heads(low, value) for value in values)
    mask, rows = node.inputs[5:], (*q.shape[:3], 1)
    stats = Heads(low.beside[values[3], "stats"], rows)
    added = _mask_of(low, node, values[3], (q.shape[2], k.shape[2]), mask)
    by_q, by_k, by_v = (_new(low, each.shape) for each in (q, k, v))
    before, low.calls = low.calls, []
    shape = (*q.shape[:3], k.shape[2])
    weights, steep = _weights(low, node, q, k, mask, None), Place(low.room(shape, low.half), row_major(shape))
    products(low, (grad.place, grad.shape), (v.place, v.shape), True, steep, NONE)
    y, slope = Value("", shape), Value("", shape)
    low.places |= {y: weights, slope: steep}
    softmax_gradient(low, y, slope, node.attrs["factor"], steep)
    products(low, (steep, shape), (k.place, k.shape), False, by_q.place, NONE)
    for place, other, found in ((steep, q, by_k), (weights, grad, by_v)):
        products(low, _turned(place, shape), (other.place, other.shape), False, found.place, NONE)
    otherwise = _instead(low, before)
    call = AttentionGradient(q, k, v, out, grad, stats, by_q, by_k, by_v, node.attrs["factor"], added)
    low.calls.append(Choice(call, otherwise))  # type: ignore[arg-type]
    for name, found in (("k", by_k), ("v", by_v)):
        low.beside[node.output, name] = found.place
    _keep(low, node.output, by_q)


@lowers("attention_part")
def _attention_part(low: Lowering, node: Node) -> None:
    """A gradient that another one left beside it."""
    _keep(low, node.output, Heads(low.beside[node.inputs[0], node.attrs["name"]], node.output.shape))


def _turned(place: Place, shape: Shape) -> tuple[Place, Shape]:
    """Matrices with rows for columns."""
    a, b, c, d = place.strides
    return Place(place.buffer, (a, b, d, c), place.offset), (*shape[:2], shape[3], shape[2])
