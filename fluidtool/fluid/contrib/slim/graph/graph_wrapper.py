"""Programs as the strategies of slim see them (Paddle 1.8.5 contrib/slim/graph/graph_wrapper.py)."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from math import prod
from typing import Any

import numpy as np

from fluidtool.errors import AssertedError
from fluidtool.fluid import io
from fluidtool.fluid.compiler import BuildStrategy, CompiledProgram
from fluidtool.fluid.executor import Executor
from fluidtool.fluid.framework import program_guard
from fluidtool.ir import Operator, Parameter, Program, Variable
from fluidtool.runtime.scope import Scope

__all__ = ["GraphWrapper", "OpWrapper", "VarWrapper"]

OPTIMIZER_OPS = frozenset(
    {
        "momentum",
        "lars_momentum",
        "adagrad",
        "adam",
        "adamax",
        "dpsgd",
        "decayed_adagrad",
        "adadelta",
        "rmsprop",
    }
)
Names = Mapping[str, str] | Iterable[tuple[str, str]] | None


class VarWrapper:
    """A variable of a graph; two are equal when their names are."""

    def __init__(self, var: Variable, graph: GraphWrapper) -> None:
        self._var, self._graph = var, graph

    def __eq__(self, v: object) -> bool:
        return isinstance(v, VarWrapper) and self._var.name == v._var.name

    def __hash__(self) -> int:
        return hash(self._var.name)

    def name(self) -> str:
        """The name."""
        return self._var.name

    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self._var.shape

    def set_shape(self, shape: Sequence[int]) -> None:
        """Declare another shape."""
        self._var.shape = tuple(int(size) for size in shape)

    def inputs(self) -> list[OpWrapper]:
        """The operators that read it."""
        return [op for op in self._graph.ops() if self.name() in op._op.input_arg_names]

    def outputs(self) -> list[OpWrapper]:
        """The operators that write it."""
        return [op for op in self._graph.ops() if self.name() in op._op.output_arg_names]


class OpWrapper:
    """An operator of a graph; two are equal when they stand at the same place of their block."""

    def __init__(self, op: Operator, graph: GraphWrapper) -> None:
        self._op, self._graph = op, graph

    def __eq__(self, op: object) -> bool:
        return isinstance(op, OpWrapper) and self.idx() == op.idx()

    def __hash__(self) -> int:
        return hash(self.idx())

    def all_inputs(self) -> list[VarWrapper]:
        """The variables that it reads, slot by slot in alphabetical order."""
        return self._vars(self._op.inputs)

    def all_outputs(self) -> list[VarWrapper]:
        """The variables that it writes, slot by slot in alphabetical order."""
        return self._vars(self._op.outputs)

    def _vars(self, slots: Mapping[str, Sequence[str]]) -> list[VarWrapper]:
        return [self._graph.var(name) for slot in sorted(slots) for name in slots[slot]]

    def idx(self) -> int:
        """The place in its block."""
        return self._op.idx

    def type(self) -> str:
        """The type."""
        return self._op.type

    def is_bwd_op(self) -> bool:
        """Whether it computes gradients."""
        return self.type().endswith("_grad")

    def is_opt_op(self) -> bool:
        """Whether it updates a parameter; `sgd`, which has no accumulators, is not in the list."""
        return self.type() in OPTIMIZER_OPS

    def inputs(self, name: str) -> list[VarWrapper]:
        """The variables of an input slot."""
        return [self._graph.var(each) for each in self._op.input(name)]

    def outputs(self, name: str) -> list[VarWrapper]:
        """The variables of an output slot."""
        return [self._graph.var(each) for each in self._op.output(name)]

    def set_attr(self, key: str, value: Any) -> None:
        """Give an attribute a value."""
        self._op.set_attr(key, value)

    def attr(self, name: str) -> Any:
        """The value of an attribute."""
        return self._op.attr(name)


class GraphWrapper:
    """A program, with names for its inputs and its results: {"loss": name of the variable, …}, or pairs."""

    def __init__(self, program: Program | None = None, in_nodes: Names = None, out_nodes: Names = None) -> None:
        self.program = Program() if program is None else program
        self.persistables = {var.name: var for var in self.program.list_vars() if var.persistable}
        self.teacher_persistables: dict[str, Variable] = {}
        self.compiled_graph: CompiledProgram | None = None
        self.in_nodes: OrderedDict[str, str] = OrderedDict(in_nodes or ())
        self.out_nodes: OrderedDict[str, str] = OrderedDict(out_nodes or ())
        self._attrs: OrderedDict[str, Any] = OrderedDict()

    def all_parameters(self) -> list[VarWrapper]:
        """The parameters."""
        return [VarWrapper(param, self) for block in self.program.blocks for param in block.all_parameters()]

    def is_parameter(self, var: VarWrapper) -> bool:
        """Whether a variable is a parameter."""
        return isinstance(var._var, Parameter)

    def is_persistable(self, var: VarWrapper) -> bool:
        """Whether a variable outlives a run."""
        return bool(var._var.persistable)

    def compile(self, for_parallel: bool = True, for_test: bool = False, mem_opt: bool = False) -> None:
        """Make a CompiledProgram of the program, which later runs take; after each change of the program.

        for_parallel: for all devices. for_test: without a loss.
        """
        loss = None if for_test else self.out_nodes["loss"]
        compiled = CompiledProgram(self.program)
        if for_parallel:
            strategy = BuildStrategy()
            strategy.enable_inplace = mem_opt
            strategy.memory_optimize = mem_opt
            strategy.fuse_all_reduce_ops = False
            compiled.with_data_parallel(loss_name=loss, build_strategy=strategy)
        self.compiled_graph = compiled

    def ops(self) -> list[OpWrapper]:
        """The operators of all blocks."""
        return [OpWrapper(op, self) for block in self.program.blocks for op in block.ops]

    def vars(self) -> list[VarWrapper]:
        """The variables of all blocks."""
        return [VarWrapper(var, self) for var in self.program.list_vars()]

    def var(self, name: str) -> VarWrapper:
        """A variable of block 0; raises ValueError if there is none."""
        return VarWrapper(self.program.global_block().var(name), self)

    def clone(self, for_test: bool = False) -> GraphWrapper:
        """A copy."""
        return GraphWrapper(self.program.clone(for_test), deepcopy(self.in_nodes), deepcopy(self.out_nodes))

    def merge(self, graph: GraphWrapper) -> None:
        """Append the operators of another graph; variables of the same name are one."""
        block = self.program.global_block()
        for var in graph.program.list_vars():
            if var.persistable:
                self.teacher_persistables[var.name] = var
            block.clone_variable(var, force_persistable=False).stop_gradient = var.stop_gradient
        for op in graph.ops():
            inner = op._op
            attrs = {name: inner.attr(name) for name in inner.attr_names}
            inputs, outputs = (
                {slot: [block.var(name) for name in names] for slot, names in slots.items()}
                for slots in (inner.inputs, inner.outputs)
            )
            block.append_op(type=inner.type, inputs=inputs, outputs=outputs, attrs=attrs)

    def pre_ops(self, op: OpWrapper) -> list[OpWrapper]:
        """The operators that write what an operator reads."""
        read = op._op.input_arg_names
        return [each for each in self.ops() for name in read if name in each._op.output_arg_names]

    def next_ops(self, op: OpWrapper) -> list[OpWrapper]:
        """The operators that read what an operator writes."""
        written = op._op.output_arg_names
        return [each for each in self.ops() for name in written if name in each._op.input_arg_names]

    def get_param_by_op(self, op: OpWrapper) -> list[VarWrapper]:
        """The parameters that an operator reads; raises AssertedError if there is none."""
        found = [var for var in op.all_inputs() if self.is_parameter(var)]
        if not found:
            raise AssertedError(f"operator {op.type()} reads no parameter")
        return found

    def numel_params(self) -> int:
        """The number of elements of all parameters."""
        return sum(prod(param.shape()) for param in self.all_parameters())

    def get_optimize_graph(
        self, optimizer: Any, place: Any, scope: Scope, no_grad_var_names: Iterable[str] = ()
    ) -> GraphWrapper | None:
        """A copy that trains: with gradients of the loss and updates by the optimizer, whose variables are initialized.

        None for a graph without a result called 'loss' or 'cost'.
        """
        graph, startup = self.clone(), Program()
        name = graph.out_nodes.get("loss", graph.out_nodes.get("cost"))
        if name is None:
            return None
        minimize(optimizer, graph, name, startup, no_grad_var_names)
        Executor(place).run(startup, scope=scope)
        return graph

    def flops(self, only_conv: bool = False) -> float:
        """Operations of one sample: of convolutions, and of pools, `mul`, activations and batch_norm unless only_conv."""
        return sum(_flops(op, only_conv) for op in self.ops())

    def save_model(self, path: str, exe: Any) -> None:
        """Save a model for `load_inference_model`: __model__ and __params__. exe: SlimGraphExecutor."""
        self._save(path, exe, list(self.in_nodes.values()), list(self.out_nodes.values()), "__model__", False)

    def save_infer_model(
        self, path: str, exe: Any, in_out: Sequence[Sequence[str]], program_only: bool = False
    ) -> None:
        """Save a model with other inputs and results: __model__.infer and __params__."""
        self._save(path, exe, list(in_out[0]), list(in_out[1]), "__model__.infer", program_only)

    def _save(self, path: str, exe: Any, feeds: list[str], fetches: list[str], model: str, program_only: bool) -> None:
        if not feeds or not fetches:
            raise AssertedError(f"a model needs inputs and results, found {len(feeds)} and {len(fetches)}")
        io.save_inference_model(
            path,
            feeds,
            [self.var(name)._var for name in fetches],
            exe.exe,
            main_program=self.program.clone(),
            model_filename=model,
            params_filename="__params__",
            program_only=program_only,
        )

    def save_persistables(self, path: str, exe: Any) -> None:
        """Save what persists, a file each, without readers and what a teacher has."""
        for var in self.program.list_vars():
            if var.persistable:
                self.persistables.setdefault(var.name, var)
        io.save_vars(exe.exe, path, vars=[v for n, v in self._stored() if n not in self.teacher_persistables])

    def load_persistables(self, path: str, exe: Any) -> None:
        """Load what persists and has a file."""
        found = [var for name, var in self._stored() if os.path.exists(os.path.join(path, name))]
        io.load_vars(exe.exe, path, vars=found)

    def _stored(self) -> list[tuple[str, Variable]]:
        return [(n, v) for n, v in self.persistables.items() if "reader" not in n and "double_buffer" not in n]

    def update_param_shape(self, scope: Scope) -> None:
        """Declare the parameters as they are in a scope."""
        for param in self.all_parameters():
            held = scope.find_var(param.name())
            if held is not None:
                param.set_shape(np.array(held.get_tensor()).shape)

    def infer_shape(self) -> None:
        """Declare what all operators imply of their results."""
        for op in self.ops():
            if op.type() != "conditional_block":
                op._op.infer()

    def update_groups_of_conv(self) -> None:
        """Give depthwise convolutions as many groups as they have filters."""
        for op in self.ops():
            if op.type() in ("depthwise_conv2d", "depthwise_conv2d_grad"):
                op.set_attr("groups", op.inputs("Filter")[0].shape()[0])


def minimize(
    optimizer: Any, graph: GraphWrapper, loss: str, startup: Program, no_grad_set: Iterable[str] | None = None
) -> None:
    """Append gradients and updates to a graph; a learning rate that another program computed is taken over."""
    with program_guard(graph.program, startup):
        if isinstance(optimizer._learning_rate, Variable):
            optimizer._learning_rate_map[graph.program] = optimizer._learning_rate
        optimizer.minimize(graph.var(loss)._var, no_grad_set=set(no_grad_set or ()))


def _flops(op: OpWrapper, only_conv: bool) -> float:
    kind = op.type()
    if kind in ("conv2d", "depthwise_conv2d"):
        filters, channels, *kernel = op.inputs("Filter")[0].shape()
        _, _, *pixels = op.outputs("Output")[0].shape()
        each = prod(kernel) * (channels / op.attr("groups")) + bool(op.inputs("Bias"))
        return float(2 * prod(pixels) * filters * each)
    if only_conv:
        return 0
    if kind == "pool2d":
        return float(prod(op.outputs("Out")[0].shape()[1:]) * op.attr("ksize")[0] ** 2)
    if kind == "mul":
        rows, inner = op.inputs("X")[0].shape()[:2]
        return 2 * abs(rows) * inner * op.inputs("Y")[0].shape()[1]
    if kind in ("relu", "sigmoid", "batch_norm"):
        rows, *rest = op.inputs("X")[0].shape()
        return abs(rows) * prod(rest)
    return 0
