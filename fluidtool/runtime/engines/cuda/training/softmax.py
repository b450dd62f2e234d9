"""Softmax in training steps: its gradient as one kernel, and a dropout of its results in the kernel that computes them."""

from __future__ import annotations

from math import prod

from fluidtool.runtime.engines.cuda.calls import Place
from fluidtool.runtime.engines.cuda.lowering import LARGEST, ROWS, WITHIN, Lowering, factor_of, lowers
from fluidtool.runtime.engines.cuda.rows import Dropped, Rows, in_rows, softmax
from fluidtool.runtime.engines.cuda.sources import number
from fluidtool.runtime.graph.importers.registry import need
from fluidtool.runtime.graph.ir import NONE, Graph, Node, Value, operands

SOFTMAX_GRADIENT = "softmax_gradient"


# ---------------------------------------------------------------- finding it
def with_softmax(graph: Graph) -> Graph:
    """The graph with what one kernel does as a node: a factor after the gradient of a softmax, a dropout after a softmax."""
    uses, made = graph.uses(), {node.output: node for node in graph.nodes}
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in operands(node):
            readers.setdefault(value, []).append(node)
    changed: dict[Node, tuple[Node, ...]] = {}
    for node in graph.nodes:
        before = made.get(node.inputs[0]) if node.inputs else None
        if before is None or before in changed:
            continue
        if _is_scaled(node, before) and uses[before.output] == 1:
            scaled = {"factor": factor_by(node)}
            changed[before], changed[node] = (), (Node(SOFTMAX_GRADIENT, before.inputs, node.output, scaled),)
        elif _is_dropped(node, before) and _may_be_late(before.output, node, graph, readers):
            attrs = {**before.attrs, "drops": node.attrs["drops"], "dropped": node.output}
            joined = Node("softmax_dropped", (*before.inputs, node.inputs[1]), before.output, attrs)
            changed[before], changed[node] = (), (joined, Node("softmax_part", [before.output], node.output))
    return graph.with_nodes(each for node in graph.nodes for each in changed.get(node, (node,)))


def factor_by(node: Node) -> float | None:
    """The number that a node multiplies by; None if it does something else."""
    if node.kind == "formula":
        factor: float | None = node.attrs.get("factor")
        return factor
    return factor_of(node.activation) if node.kind == "unary" and node.residual is None else None


def _is_scaled(node: Node, before: Node) -> bool:
    return before.kind == SOFTMAX_GRADIENT and before.output.shape == node.output.shape and factor_by(node) is not None


def _is_dropped(node: Node, before: Node) -> bool:
    plain = before.kind == "softmax" and before.activation == NONE and before.residual is None
    return plain and node.kind == "formula" and "drops" in node.attrs


def _may_be_late(weights: Value, dropout: Node, graph: Graph, readers: dict[Value, list[Node]]) -> bool:
    """Whether a softmax may be computed where its results are dropped, which are not computed within their reader."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    others = [node for node in readers[weights] if node is not dropout]
    after = readers.get(dropout.output, [])
    is_kernel = len(after) != 1 or after[0].kind not in WITHIN | ROWS
    return bool(others) and is_kernel and all(order[node] > order[dropout] for node in others)


# ---------------------------------------------------------------- lowering it
@lowers("softmax_dropped")
def _softmax_dropped(low: Lowering, node: Node) -> None:
    """attrs: those of a softmax, the factor of kept results, and the value that they are."""
    x, *mask, kept = node.inputs
    place = low.new(node.attrs["dropped"])
    dropped = Dropped(place, kept, node.attrs["drops"])
    softmax(low, x, mask[0] if mask else None, node.attrs, low.new(node.output), dropped=dropped)


@lowers("softmax_part")
def _softmax_part(low: Lowering, node: Node) -> None:
    """What a softmax has left already."""
    need(node.output in low.places, "results of a softmax that are dropped elsewhere")


@lowers(SOFTMAX_GRADIENT)
def _softmax_gradient(low: Lowering, node: Node) -> None:
    y, grad = node.inputs
    softmax_gradient(low, y, grad, node.attrs.get("factor", 1.0), low.new(node.output))


def softmax_gradient(low: Lowering, y: Value, grad: Value, factor: float, out: Place) -> None:
    """Rows of (dy - the sum of dy * y) * y * factor, from the result y of a softmax and its gradient dy; also in place of dy."""
    shape = y.shape
    need(prod(shape) <= LARGEST, "too many scores")

    def write(kernel: Rows) -> None:
        src = kernel.src

        def element(value: Value, part: str) -> str:
            return src.load(value, src.split(kernel.index(part), shape))

        def stored(part: str) -> str:
            found = f"(v - total) * {element(y, part)}"
            found = found if factor == 1.0 else f"{found} * {number(factor)}"
            return src.store(out, src.split(kernel.index(part), shape), found)

        src.lines.append("float total = 0.0f;")
        kernel.first(lambda part: element(grad, part), lambda part: f"total += v * {element(y, part)};")
        kernel.joined("total", "({a} + {b})")
        kernel.again(lambda part: element(grad, part), stored)

    in_rows(low, out, prod(shape[:-1]), shape[-1], "softmax_back", write)
