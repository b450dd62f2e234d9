"""A program as a graph: each block once, as a group in the operator that runs it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from math import prod

from fluidtool.drawing.graph import Graph, Link, Node, Place
from fluidtool.drawing.kinds import UNKNOWN, kind_of
from fluidtool.drawing.text import shortened
from fluidtool.ir import Block, Operator, Program, Variable
from fluidtool.ir.dataflow import BlockFlow, Version, block_flow
from fluidtool.ir.roles import NAMESCOPE_ATTR
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text

TITLE, LINE, LABEL = 28, 34, 22  # the most characters


def program_graph(program: Program, outputs: Collection[str]) -> Graph:
    """The graph of a program. outputs: what is drawn as outputs where no fetch operators say so."""
    drawn = {0}
    top = _BlockGraph(program.global_block(), drawn, outputs).build()
    left = [block for block in program.blocks if block.idx not in drawn]
    extra = [_unused(block, drawn) for block in left if block.idx not in drawn]
    return Graph((*top.nodes, *extra), top.links)


def _unused(block: Block, drawn: set[int]) -> Node:
    drawn.add(block.idx)
    inner = _BlockGraph(block, drawn, ()).build()
    lines = ("no operator runs it", count_text(inner))
    return Node(f"block {block.idx}", "group", lines, block=block.idx, inner=inner, folded="block")


def count_text(inner: Graph) -> str:
    """'12 operators'."""
    count = sum(1 for _ in inner.places())
    return f"{count} operator{'s' * (count != 1)}"


def value_text(var: Variable | None) -> str:
    """'(-1, 64)', with the levels of LoD if it has some; '' where nothing is declared."""
    if var is None or not var.has_shape:
        return ""
    return shape_text(var.shape) + (f" LoD {var.lod_level}" if var.lod_level else "")


@dataclass(slots=True)
class _BlockGraph:
    """One block while it is turned into nodes: `made` has the node of each version of a name."""

    block: Block
    drawn: set[int]
    outputs: Collection[str]
    before: list[Node] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    after: list[Node] = field(default_factory=list)
    made: dict[Version, tuple[list[Node], int]] = field(default_factory=dict)
    read: dict[Version, list[tuple[list[Node], int]]] = field(default_factory=dict)

    def build(self) -> Graph:
        """The graph of the block and those within."""
        flow = block_flow(self.block)
        for position, op in enumerate(self.block.ops):
            home = self.before if op.type == "feed" else self.after if op.type == "fetch" else self.nodes
            home.append(self._node(op, position))
            spot = home, len(home) - 1
            for name in _in_order(op.input_arg_names, flow.reads[position]):
                self._reads(flow.reads[position][name], spot)
            for name in _in_order(op.output_arg_names, flow.writes[position]):
                self.made[flow.writes[position][name]] = spot
        if not self.after:
            self._results(flow)
        return Graph((*self.before, *self.nodes, *self.after), tuple(self._links()))

    def _reads(self, version: Version, spot: tuple[list[Node], int]) -> None:
        """A value from before the block is an input, unless it is a parameter."""
        if version not in self.made:
            var = self.block.find_var_recursive(version.name)
            if version.number or (var is not None and var.persistable):
                return
            outer = self.block.idx > 0 and version.name not in self.block.vars
            self.before.append(_value_node(version.name, var, "outer" if outer else "input", self.block.idx))
            self.made[version] = self.before, len(self.before) - 1
        self.read.setdefault(version, []).append(spot)

    def _results(self, flow: BlockFlow) -> None:
        """What remains of the block: its outputs, or what a sub-block writes for those around it."""
        for name, version in sorted(flow.last.items()):
            inner = self.block.idx > 0
            wanted = name not in self.block.vars if inner else name in self.outputs
            if wanted and version.number:
                var = self.block.find_var_recursive(name)
                self.after.append(_value_node(name, var, "outer" if inner else "output", self.block.idx))
                self.read.setdefault(version, []).append((self.after, len(self.after) - 1))

    def _links(self) -> Iterator[Link]:
        """Values with the same source and targets share a link."""
        starts = {id(self.before): 0, id(self.nodes): len(self.before)}
        starts[id(self.after)] = len(self.before) + len(self.nodes)
        shared: dict[tuple[int, tuple[int, ...]], list[str]] = {}
        for version, spots in self.read.items():
            home, position = self.made[version]
            source = starts[id(home)] + position
            targets = tuple(sorted({starts[id(home)] + position for home, position in spots} - {source}))
            if targets:
                shared.setdefault((source, targets), []).append(version.name)
        for (source, targets), names in sorted(shared.items()):
            yield Link(source, targets, tuple(names), self._label(names))

    def _label(self, names: Sequence[str]) -> str:
        if len(names) > 1:
            return f"{len(names)} values"
        return shortened(value_text(self.block.find_var_recursive(names[0])), LABEL)

    # ---------------------------------------------------------------- nodes
    def _node(self, op: Operator, position: int) -> Node:
        place = Place(self.block.idx, position)
        if op.type in ("feed", "fetch"):
            names = [*(op.output_arg_names if op.type == "feed" else op.input_arg_names), ""]
            var = self.block.find_var_recursive(names[0])
            return _value_node(names[0], var, "input" if op.type == "feed" else "output", self.block.idx, place)
        blocks = [index for index in dict.fromkeys(op.sub_blocks()) if index not in self.drawn]
        self.drawn.update(blocks)
        kind = kind_of(op.type)
        inner = self._inner(blocks) if blocks else None
        lines = [*(["unknown operator"] if kind == UNKNOWN else []), *([] if inner else self._parameter(op))]
        if inner is not None:
            name = f"block {blocks[0]}" if len(blocks) == 1 else f"{len(blocks)} blocks"
            lines.append(f"{name} · {count_text(inner)}")
        return Node(
            title=shortened(op.type, TITLE) or "(no type)",
            kind=kind,
            lines=tuple(lines),
            place=place,
            block=self.block.idx,
            scope=_scope(op),
            inner=inner,
            folded="block" if inner else "",
        )

    def _inner(self, blocks: Sequence[int]) -> Graph:
        program = self.block.program
        graphs = [_BlockGraph(program.block(index), self.drawn, ()).build() for index in blocks]
        if len(graphs) == 1:
            return graphs[0]
        return Graph(tuple(_numbered(index, graph) for index, graph in zip(blocks, graphs, strict=True)), ())

    def _parameter(self, op: Operator) -> Iterator[str]:
        """The largest parameter that an operator reads, such as 'Filter (32, 3, 3, 3)'."""
        held = [
            (slot, var.shape)
            for slot, names in op.inputs.items()
            for var in map(self.block.find_var_recursive, names)
            if var is not None and var.persistable and var.has_shape and var.shape
        ]
        if held:
            slot, shape = max(held, key=lambda each: abs(prod(each[1])))
            yield shortened(f"{slot} {shape_text(shape)}", LINE)


def _numbered(index: int, graph: Graph) -> Node:
    return Node(f"block {index}", "group", (count_text(graph),), block=index, inner=graph, folded="block")


def _value_node(name: str, var: Variable | None, kind: str, block: int, place: Place | None = None) -> Node:
    text = value_text(var)
    return Node(
        shortened(name, TITLE) or "(no name)",
        kind,
        (shortened(text, LINE),) if text else (),
        place,
        name=name,
        block=block,
    )


def _scope(op: Operator) -> tuple[str, ...]:
    scope = op.get_attr(NAMESCOPE_ATTR, "")
    return tuple(filter(None, scope.split("/"))) if isinstance(scope, str) else ()


def _in_order(names: Iterable[str], known: Mapping[str, Version]) -> list[str]:
    """Names that are known in the order of the operator, then what its blocks use, by name."""
    first = [name for name in dict.fromkeys(names) if name in known]
    return [*first, *sorted(known.keys() - set(first))]
