"""Passes that find out how large the outputs of operators become, for engines that want to know (Paddle 1.8.5)."""

from __future__ import annotations

from fluidtool.errors import AssertedError
from fluidtool.fluid.contrib.slim.quantization.nodes import (
    State,
    check_graph,
    insert,
    outputs_of,
    values_of,
)
from fluidtool.fluid.ir_graph import IrGraph, IrVarNode
from fluidtool.runtime.scope import Scope
from fluidtool.tensor import CPUPlace, Place

OPERATORS = tuple(
    [
        "conv2d",
        "depthwise_conv2d",
        "mul",
        "matmul",
        "relu",
        "leaky_relu",
        "relu6",
        "sigmoid",
        "tanh",
        "prelu",
        "swish",
        "softmax",
        "batch_norm",
        "elementwise_add",
        "pool2d",
        "reshape2",
        "transpose2",
        "concat",
        "elementwise_mul",
        "scale",
    ]
)


class OutScaleForTrainingPass:
    """Keeps a moving average of the largest output of operators, in variables 'NAME@scale' of the scope."""

    def __init__(self, scope: Scope | None = None, place: Place | None = None, moving_rate: float = 0.9) -> None:
        self._scope, self._place, self._moving_rate = scope, place, moving_rate

    def apply(self, graph: IrGraph) -> IrGraph:
        """Change the graph, and return it."""
        check_graph(graph)
        for op in [op for op in graph.all_op_nodes() if op.name() in OPERATORS]:
            for name in outputs_of(op):
                self._measure(graph, graph._find_node_by_name(op.outputs, name))
        return graph

    def _measure(self, graph: IrGraph, node: IrVarNode) -> None:
        state = State(graph, values_of(self._scope, self._place), node)
        inputs, outputs = {"X": node}, {"Out": state.after(node), "OutScale": state.make(f"{node.name()}@scale", [1.0])}
        if not graph.is_test():
            more_inputs, more_outputs = state.averages(("scale_state@", "scale_accum@"))
            inputs, outputs = {**inputs, **more_inputs}, {**outputs, **more_outputs}
        attrs = {"moving_rate": self._moving_rate, "is_test": graph.is_test()}
        insert(graph, "moving_average_abs_max_scale", attrs, inputs, outputs)


class OutScaleForInferencePass:
    """Writes those averages into the attribute out_threshold of the operators."""

    def __init__(self, scope: Scope | None = None) -> None:
        self._scope = scope

    def apply(self, graph: IrGraph) -> IrGraph:
        """Change the graph, and return it; raises AssertedError for an average that the scope lacks."""
        check_graph(graph)
        values = values_of(self._scope, CPUPlace())
        for op in [op for op in graph.all_op_nodes() if op.name() in OPERATORS]:
            names = outputs_of(op)
            if len(names) != 1:
                raise AssertedError(
                    f"Only support collecting output for op that only has one output, {op.name()} has {names}"
                )
            op.set_attr("out_threshold", float(values.read(f"{names[0]}@scale")[0]))
        return graph
