"""`fluid.framework.IrGraph`: block 0 of a program as operators and the values between them (Paddle 1.8.5 framework.py).

A variable has a node for every time that it is written. Operators are put in order when the graph becomes a program again:
one that reads a value comes before the one that overwrites it, without the control nodes that Paddle adds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from fluidtool.errors import ArgumentTypeError, AssertedError, ProgramError
from fluidtool.ir import Operator, Program, Variable
from fluidtool.ir.descriptions import OpDesc, VarDesc
from fluidtool.ir.program import ProgramDesc

__all__ = ["Graph", "IrGraph", "IrNode", "IrOpNode", "IrVarNode"]

N = TypeVar("N", bound="IrNode")


class IrNode:
    """A node and its neighbors; `node` is the node itself."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    @property
    def node(self) -> IrNode:
        """This node."""
        return self

    def id(self) -> int:
        """Its number in the graph."""
        return self._number

    def name(self) -> str:
        """The name of the variable, or the type of the operator."""
        raise NotImplementedError

    def is_op(self) -> bool:
        """Whether it is an operator."""
        return isinstance(self, IrOpNode)

    def is_var(self) -> bool:
        """Whether it is a variable."""
        return isinstance(self, IrVarNode)

    def is_ctrl_var(self) -> bool:
        """False: the order of operators needs no nodes."""
        return False

    def append_input(self, node: IrNode) -> None:
        """Let a node come before this one."""
        self.inputs.append(node)

    def append_output(self, node: IrNode) -> None:
        """Let a node come after this one."""
        self.outputs.append(node)

    def remove_input(self, node: IrNode) -> None:
        """Cut the link from a node."""
        self.inputs = [each for each in self.inputs if each is not node]

    def remove_output(self, node: IrNode) -> None:
        """Cut the link to a node."""
        self.outputs = [each for each in self.outputs if each is not node]

    def remove_input_by_id(self, node_id: int) -> None:
        """Cut the link from the node of this number."""
        self.inputs = [each for each in self.inputs if each.id() != node_id]

    def remove_output_by_id(self, node_id: int) -> None:
        """Cut the link to the node of this number."""
        self.outputs = [each for each in self.outputs if each.id() != node_id]

    def clear_inputs(self) -> None:
        """Cut all links from other nodes."""
        self.inputs = []

    def clear_outputs(self) -> None:
        """Cut all links to other nodes."""
        self.outputs = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._number}: {self.name()}>"


class IrVarNode(IrNode):
    """A value of a variable; inputs: the operator that writes it. outputs: those that read it."""

    def __init__(self, number: int, variable: Variable) -> None:
        super().__init__(number)
        self._variable = variable

    def name(self) -> str:
        """The name of the variable."""
        return self._variable.name

    def var(self) -> VarDesc:
        """The declaration."""
        return self._variable.desc

    def type(self) -> Any:
        """The kind."""
        return self._variable.type

    def dtype(self) -> Any:
        """The data type."""
        return self._variable.dtype

    def shape(self) -> list[int]:
        """The shape."""
        return list(self._variable.shape)

    def persistable(self) -> bool:
        """Whether the value outlives a run."""
        return self._variable.persistable

    def set_shape(self, shape: Sequence[int]) -> None:
        """Declare another shape."""
        self._variable.shape = tuple(shape)


class IrOpNode(IrNode):
    """An operator; inputs and outputs: the values that it reads and writes."""

    def __init__(self, number: int, operator: Operator) -> None:
        super().__init__(number)
        self._operator = operator

    def name(self) -> str:
        """The type of the operator."""
        return self._operator.type

    def op(self) -> OpDesc:
        """The operator."""
        return self._operator.desc

    def input(self, name: str) -> list[str]:
        """The variables of an input slot."""
        return self._operator.input(name)

    def output(self, name: str) -> list[str]:
        """The variables of an output slot."""
        return self._operator.output(name)

    def input_arg_names(self) -> list[str]:
        """The variables of all input slots."""
        return list(self._operator.input_arg_names)

    def output_arg_names(self) -> list[str]:
        """The variables of all output slots."""
        return list(self._operator.output_arg_names)

    def rename_input(self, old_input_name: str, new_input_name: str) -> None:
        """Read another variable."""
        self._operator.rename_input(old_input_name, new_input_name)

    def rename_output(self, old_output_name: str, new_output_name: str) -> None:
        """Write another variable."""
        self._operator.rename_output(old_output_name, new_output_name)

    def set_type(self, new_type: str) -> None:
        """Make it another operator with the same slots."""
        self._operator.type = new_type

    def set_attr(self, name: str, val: Any) -> None:
        """Give an attribute a value."""
        self._operator.set_attr(name, val)


class Graph:
    """`core.Graph`: the nodes of a program, of which it has a copy."""

    def __init__(self, desc: ProgramDesc | Program) -> None:
        if not isinstance(desc, ProgramDesc | Program):
            raise ArgumentTypeError(f"Graph takes the desc of a Program, found {type(desc).__name__}")
        self._program = (desc if isinstance(desc, Program) else desc.program).clone()
        self._nodes: dict[IrNode, None] = {}
        self._made = 0
        latest: dict[str, IrVarNode] = {}
        for op in self._program.global_block().ops:
            self._take(op, latest)

    def nodes(self) -> KeysView[IrNode]:
        """All nodes, in the order in which they were made."""
        return self._nodes.keys()

    def clone(self) -> Graph:
        """A graph of its own with the same operators."""
        return Graph(self.to_program())

    def create_var_node(self, desc: VarDesc | Variable) -> IrVarNode:
        """A new value of the variable that a declaration describes."""
        given = desc if isinstance(desc, Variable) else desc.variable
        return self._add(IrVarNode(self._made, given))

    def declare(self, **fields: Any) -> IrVarNode:
        """A value of a new variable (arguments of Variable)."""
        return self._add(IrVarNode(self._made, Variable(self._program.global_block(), **fields)))

    def create_op_node(self, desc: OpDesc) -> IrOpNode:
        """A copy of an operator, without links."""
        given = desc.operator
        inputs, outputs = dict(given.inputs), dict(given.outputs)
        return self.make_op(given.type, given.all_attrs(), inputs, outputs)

    def make_op(self, type: str, attrs: Mapping[str, Any], inputs: Any, outputs: Any) -> IrOpNode:
        """A new operator, without links."""
        block = self._program.global_block()
        return self._add(IrOpNode(self._made, Operator(block, None, type, inputs, outputs, attrs)))

    def remove(self, nodes: Iterable[IrNode]) -> None:
        """Take nodes out, with their links."""
        for node in nodes:
            self._nodes.pop(node, None)
            for other in (*node.inputs, *node.outputs):
                other.remove_input(node)
                other.remove_output(node)

    def to_program(self) -> Program:
        """The program of these operators; raises ProgramError when they depend on one another in a circle."""
        block = self._program.global_block()
        values = [node for node in self._nodes if isinstance(node, IrVarNode)]
        kept = {node.name(): node._variable for node in values}
        block.ops[:] = [node._operator for node in self.ordered()]
        for name in [name for name in block.vars if name not in kept]:
            block.remove_var(name)
        for name, variable in kept.items():
            if block.vars.get(name) is not variable:
                block.add_var(variable)
        self._program.touch()
        return self._program.clone()

    def ordered(self) -> list[IrOpNode]:
        """The operators, each after those that must come before, otherwise as they were made."""
        before, done, path = self._before(), dict[IrOpNode, None](), dict[IrOpNode, None]()
        for op in before:
            stack = [(op, iter(before[op]))] if op not in done else []
            while stack:
                current, earlier = stack[-1]
                path[current] = None
                following = next((each for each in earlier if each not in done), None)
                if following is None:
                    done[current] = None
                    del path[current]
                    stack.pop()
                elif following in path:
                    raise ProgramError(
                        f"the graph has a circle through operators {current.name()} and {following.name()}"
                    )
                else:
                    stack.append((following, iter(before[following])))
        return list(done)

    def _before(self) -> dict[IrOpNode, list[IrOpNode]]:
        """By operator: what writes what it reads, and what reads or writes what it overwrites."""
        ops = [node for node in self._nodes if isinstance(node, IrOpNode)]
        before = {op: [writer for value in op.inputs for writer in value.inputs] for op in ops}
        for versions in self._versions().values():
            for old, new in pairwise(versions):
                for writer in new.inputs:
                    before[writer] += [op for op in (*old.inputs, *old.outputs) if op is not writer]
        return {op: sorted(earlier, key=IrNode.id) for op, earlier in before.items()}

    def _versions(self) -> dict[str, list[IrVarNode]]:
        """The values of each variable, in the order of writing: one that is made of another comes right after it."""
        found: dict[str, list[IrVarNode]] = {}
        for node in self._nodes:
            if isinstance(node, IrVarNode):
                versions = found.setdefault(node.name(), [])
                of = [versions.index(value) for value in _read_by_writers(node) if value in versions]
                versions.insert(max(of) + 1 if of else len(versions), node)
        return found

    def _take(self, op: Operator, latest: dict[str, IrVarNode]) -> None:
        """Make nodes of an operator of the program; latest: the newest value of each variable."""
        node = self._add(IrOpNode(self._made, op))
        for name in dict.fromkeys(op.input_arg_names):
            if name not in latest and op.block.has_var_recursive(name):
                latest[name] = self.create_var_node(op.block.var_recursive(name))
            if name in latest:
                _link(latest[name], node)
        for name in dict.fromkeys(op.output_arg_names):
            if op.block.has_var_recursive(name):
                latest[name] = self.create_var_node(op.block.var_recursive(name))
                _link(node, latest[name])

    def _add(self, node: N) -> N:
        self._nodes[node] = None
        self._made += 1
        return node


def _read_by_writers(node: IrVarNode) -> Iterator[IrVarNode]:
    """Earlier values of the same variable that its writer reads."""
    return (value for op in node.inputs for value in op.inputs if value.name() == node.name())


def _link(before: IrNode, after: IrNode) -> None:
    before.append_output(after)
    after.append_input(before)


class IrGraph:
    """A graph that passes change; `to_program` makes a program of it. for_test: whether it is for inference."""

    def __init__(self, graph: Graph, for_test: bool = False) -> None:
        if not isinstance(graph, Graph):
            raise AssertedError(f"graph must be the instance of core.Graph, found {type(graph).__name__}")
        self.graph = graph
        self._for_test = for_test

    def clone(self) -> IrGraph:
        """A graph of its own with the same operators."""
        return IrGraph(self.graph.clone(), self._for_test)

    def is_test(self) -> bool:
        """Whether it is for inference."""
        return self._for_test

    def all_nodes(self) -> KeysView[IrNode]:
        """All nodes, in the order in which they were made."""
        return self.graph.nodes()

    def all_var_nodes(self) -> KeysView[IrVarNode]:
        """All values."""
        return {node: None for node in self.graph.nodes() if isinstance(node, IrVarNode)}.keys()

    def all_persistable_nodes(self) -> KeysView[IrVarNode]:
        """All values of variables that outlive a run."""
        return {node: None for node in self.all_var_nodes() if node.persistable()}.keys()

    def all_op_nodes(self) -> KeysView[IrOpNode]:
        """All operators."""
        return {node: None for node in self.graph.nodes() if isinstance(node, IrOpNode)}.keys()

    def create_persistable_node(self, name: str, var_type: Any, shape: Sequence[int], var_dtype: Any) -> IrVarNode:
        """A value of a new variable that outlives a run."""
        return self.graph.declare(name=name, type=var_type, shape=shape, dtype=var_dtype, persistable=True)

    def create_var_node(self, name: str, var_type: Any, shape: Sequence[int], var_dtype: Any) -> IrVarNode:
        """A value of a new variable."""
        return self.graph.declare(name=name, type=var_type, shape=shape, dtype=var_dtype)

    def create_var_node_from_desc(self, var_desc: VarDesc) -> IrVarNode:
        """A further value of a variable."""
        return self.graph.create_var_node(var_desc)

    def create_op_node(
        self, op_type: str, attrs: Mapping[str, Any], inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> IrOpNode:
        """A new operator; inputs and outputs: nodes by slot. They are not linked yet."""
        return self.graph.make_op(op_type, attrs, _names(inputs), _names(outputs))

    def create_op_node_from_desc(self, op_desc: OpDesc) -> IrOpNode:
        """A copy of an operator, not linked yet."""
        return self.graph.create_op_node(op_desc)

    def update_input_link(self, old_input_node: IrNode, new_input_node: IrNode, op_node: IrOpNode) -> None:
        """Let an operator read another value."""
        self._need(old_input_node, new_input_node, op_node)
        old_input_node.remove_output(op_node)
        op_node.remove_input(old_input_node)
        _link(new_input_node, op_node)
        op_node.rename_input(old_input_node.name(), new_input_node.name())

    def update_output_link(self, old_output_node: IrNode, new_output_node: IrNode, op_node: IrOpNode) -> None:
        """Let an operator write another value."""
        self._need(old_output_node, new_output_node, op_node)
        old_output_node.remove_input(op_node)
        op_node.remove_output(old_output_node)
        _link(op_node, new_output_node)
        op_node.rename_output(old_output_node.name(), new_output_node.name())

    def link_to(self, node_in: IrNode, node_out: IrNode) -> None:
        """Let one node come after another."""
        self._need(node_in, node_out)
        _link(node_in, node_out)

    def safe_remove_nodes(self, remove_nodes: IrNode | Iterable[IrNode]) -> None:
        """Take nodes out, with their links."""
        self.graph.remove([remove_nodes] if isinstance(remove_nodes, IrNode) else list(remove_nodes))

    def resolve_hazard(self) -> None:
        """Kept for scripts: who reads a value before it is overwritten is seen to when operators are put in order."""

    def has_circle(self) -> bool:
        """Whether operators depend on one another in a circle."""
        try:
            self.graph.ordered()
        except ProgramError:
            return True
        return False

    def topology_sort(self) -> list[IrNode]:
        """The operators, in an order in which they can run."""
        return list(self.graph.ordered())

    def draw(
        self, save_path: str, name: str, marked_nodes: Iterable[IrNode] | None = None, remove_ctr_var: bool = True
    ) -> None:
        """Write save_path/name.dot, and a PDF file if the command `dot` is there; marked nodes are filled."""
        os.makedirs(save_path, exist_ok=True)
        path, marked = os.path.join(save_path, f"{name}.dot"), set(marked_nodes or ())
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(["digraph G {", *(_drawn(node, marked) for node in self.graph.nodes()), "}\n"]))
        if shutil.which("dot"):
            subprocess.run(["dot", "-Tpdf", path, "-o", f"{path[:-4]}.pdf"], check=False)

    def to_program(self) -> Program:
        """The program of these operators."""
        return self.graph.to_program()

    def _find_node_by_name(self, nodes: Iterable[N], node_name: str) -> N:
        """The last of these nodes that has the name; raises AssertedError if there is none."""
        found = [node for node in nodes if node.name() == node_name]
        if not found:
            raise AssertedError(f"Cannot find the target node in the giving set: {node_name}")
        return found[-1]

    def _need(self, *nodes: IrNode) -> None:
        for node in nodes:
            if node not in self.graph.nodes():
                raise AssertedError(f"{node} must be in the graph nodes.")


def _names(slots: Mapping[str, Any]) -> dict[str, list[str]]:
    return {
        slot: [node.name() for node in (given if isinstance(given, list) else [given])] for slot, given in slots.items()
    }


def _drawn(node: IrNode, marked: set[IrNode]) -> str:
    shape = "box" if node.is_op() else "ellipse"
    style = ', style="filled"' if node in marked else ""
    links = "".join(f"\n  n{node.id()} -> n{other.id()};" for other in node.outputs)
    return f'  n{node.id()} [label="{node.name()}", shape="{shape}"{style}];{links}'
