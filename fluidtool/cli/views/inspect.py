"""The views of `inspect`: each gathers its data once, for JSON or for tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from fluidtool.cli.render import Table, amount, fields, size, table
from fluidtool.cli.views.parameters import statistics_data, statistics_rows, statistics_table
from fluidtool.cli.views.program import (
    attributes,
    block_title,
    declared_table,
    operator_data,
    shaped_slots_text,
    shapes_of,
    sized_input,
    variable_data,
    variables_of,
    variables_table,
)
from fluidtool.io.parameters import EMPTY_STORE
from fluidtool.ir import Block, Operator
from fluidtool.ir.roles import CALLSTACK_ATTR
from fluidtool.model import Model
from fluidtool.passes.cost import input_metas
from fluidtool.shapes import shape_text
from fluidtool.summary import ParameterFault, parameter_faults, summarize, version_text

if TYPE_CHECKING:
    from fluidtool.report import inspect as report

Shapes = Mapping[str, tuple[int, ...]]


class View(Protocol):
    """What `inspect` needs of a view."""

    def data(self) -> report.InspectReport: ...
    def tables(self) -> Iterable[Table]: ...


def faults_table(faults: Sequence[ParameterFault]) -> Table:
    """The parameters that cannot be read."""
    out = table("Parameters that cannot be read", "parameter", "why")
    for each in faults:
        out.add(each.parameter, each.reason)
    return out


def faults_data(faults: Sequence[ParameterFault]) -> list[report.ParameterFault]:
    """The same for JSON."""
    return [{"parameter": each.parameter, "reason": each.reason} for each in faults]


class SummaryView:
    """The model at a glance."""

    def __init__(self, model: Model, batch: int, shapes: Shapes) -> None:
        self.summary = summarize(model, batch, shapes)
        metas = input_metas(model.program, model.feeds, batch, shapes)
        self.inputs = [sized_input(name, meta.shape) for name, meta in metas.items()]
        self.sizes = ", ".join(f"{name} {shape_text(shape)}" for name, shape in shapes.items()) or f"batch {batch}"

    def data(self) -> report.SummaryReport:
        """The whole summary."""
        summary = self.summary
        return {
            "schema": "fluidtool.inspect/1",
            "view": "summary",
            "program": summary.program_source,
            "version": summary.version,
            "version_text": summary.version_text if summary.version else None,
            "layout": summary.layout,
            "parameter_source": summary.parameter_source,
            "fault": summary.fault,
            "readable": summary.readable,
            "faults": faults_data(summary.faults),
            "inputs": [variable_data(each) for each in summary.inputs],
            "outputs": [variable_data(each) for each in summary.outputs],
            "blocks": summary.blocks,
            "variables": summary.variables,
            "operators": sum(summary.operators.values()),
            "types": [
                {
                    "type": type,
                    "count": count,
                    "multiply_adds": summary.cost.by_operator.get(type),
                    "supported": type not in summary.unsupported,
                }
                for type, count in summary.operators.items()
            ],
            "parameters": [
                {"data_type": each.data_type, "count": each.tensors, "elements": each.elements, "bytes": each.nbytes}
                for each in summary.parameters
            ],
            "cost": {
                "inputs": self.inputs,
                "multiply_adds": summary.cost.multiply_adds,
                "flops": 2 * summary.cost.multiply_adds,
                "unknown": summary.cost.unknown,
                "loops": summary.cost.loops,
            },
            "reaches": summary.reaches,
        }

    def tables(self) -> Iterable[Table]:
        """Fields, inputs, outputs, operators."""
        summary = self.summary
        yield fields(
            "",
            [
                ("program", summary.program_source),
                ("saved by", f"Paddle {version_text(summary.version)}" if summary.version else "an unrecorded version"),
                ("layout", summary.layout),
                ("parameters", self._parameters()),
                *([("blocks", summary.blocks)] if summary.blocks > 1 else []),
                ("operators", f"{sum(summary.operators.values())} of {len(summary.operators)} types"),
                ("variables", summary.variables),
                ("FLOPs", self._flops()),
                *([("asks for", self._reaches())] if summary.reaches else []),
            ],
        )
        yield faults_table(summary.faults)
        yield declared_table("Inputs", summary.inputs)
        yield declared_table("Outputs", summary.outputs)
        yield self._operators()

    def _parameters(self) -> str:
        totals = self.summary.parameters
        if not totals:
            return "none"
        tensors, elements, nbytes = (
            sum(getattr(row, name) for row in totals) for name in ("tensors", "elements", "nbytes")
        )
        types = ", ".join(row.data_type for row in totals)
        all_of_them = f"{tensors} ({amount(elements)} values of {types}, {size(nbytes)})"
        if self.summary.faults:
            return f"{all_of_them}, of which {self.summary.readable} can be read"
        return f"{all_of_them} {'not found' if self.summary.fault else f'in {self.summary.parameter_source}'}"

    def _flops(self) -> str:
        cost = self.summary.cost
        text = f"{amount(2 * cost.multiply_adds)} ({amount(cost.multiply_adds)} multiply-adds) for {self.sizes}"
        if cost.loops:
            text += ", one round of each loop"
        return text + (f"; not counted, sizes unknown: {', '.join(cost.unknown)}" if cost.unknown else "")

    def _reaches(self) -> str:
        return ", ".join(f"{name} ({', '.join(types)})" for name, types in self.summary.reaches.items())

    def _operators(self) -> Table:
        cost = self.summary.cost.by_operator
        out = table(
            "Operators", "!type", ">count", ">multiply-adds", *(["support"] if self.summary.unsupported else [])
        )
        for op_type, total in self.summary.operators.items():
            support = (
                ["not supported" if op_type in self.summary.unsupported else ""] if self.summary.unsupported else []
            )
            out.add(op_type, total, amount(cost[op_type]) if op_type in cost else "", *support)
        return out


class OperatorsView:
    """`--ops`: what reads and writes what, in order, with the declared shapes."""

    def __init__(self, model: Model, batch: int, shapes: Shapes) -> None:
        self.program = model.program

    def data(self) -> report.OperatorsReport:
        """The operators block by block."""
        return {
            "schema": "fluidtool.inspect/1",
            "view": "ops",
            "blocks": [
                {
                    "block": block.idx,
                    "parent": block.parent_idx,
                    "operators": [
                        {**operator_data(position, op), "shapes": shapes_of(op)}
                        for position, op in enumerate(block.ops)
                    ],
                }
                for block in self.program.blocks
            ],
        }

    def tables(self) -> Iterable[Table]:
        """One table for each block."""
        for block in self.program.blocks:
            out = table(block_title(block), ">#", "!operator", "inputs", "outputs")
            for position, op in enumerate(block.ops):
                out.add(position, op.type, *(shaped_slots_text(slots, block) for slots in (op.inputs, op.outputs)))
            yield out


class VariablesView:
    """`--vars`: what the blocks declare."""

    def __init__(self, model: Model, batch: int, shapes: Shapes) -> None:
        self.program = model.program

    def data(self) -> report.VariablesReport:
        """The variables block by block."""
        return {
            "schema": "fluidtool.inspect/1",
            "view": "vars",
            "blocks": [
                {
                    "block": block.idx,
                    "parent": block.parent_idx,
                    "variables": [variable_data(item) for item in variables_of(block)],
                }
                for block in self.program.blocks
            ],
        }

    def tables(self) -> Iterable[Table]:
        """One table for each block."""
        for block in self.program.blocks:
            yield variables_table(block)


class DetailsView:
    """`--with-details`: everything that the program says."""

    def __init__(self, model: Model, batch: int, shapes: Shapes) -> None:
        self.program = model.program

    def data(self) -> report.DetailsReport:
        """Blocks with variables and operators, attributes and call stacks."""
        return {
            "schema": "fluidtool.inspect/1",
            "view": "with-details",
            "version": self.program.version,
            "blocks": [
                {
                    "block": block.idx,
                    "parent": block.parent_idx,
                    "variables": [variable_data(item) for item in variables_of(block)],
                    "operators": [
                        {**operator_data(position, op), "attributes": attributes(op)}
                        for position, op in enumerate(block.ops)
                    ],
                }
                for block in self.program.blocks
            ],
        }

    def tables(self) -> Iterable[Table]:
        """For each block its variables, then each operator with what it has."""
        for block in self.program.blocks:
            yield variables_table(block)
            for position, op in enumerate(block.ops):
                yield self._operator(block, position, op)

    def _operator(self, block: Block, position: int, op: Operator) -> Table:
        within = f"block {block.idx}, " if block.program.num_blocks > 1 else ""
        pairs = [(f"  in  {slot}", ", ".join(names) or "(none)") for slot, names in op.inputs.items()]
        pairs += [(f"  out {slot}", ", ".join(names) or "(none)") for slot, names in op.outputs.items()]
        pairs += [
            (f"  {name}", f"{value!r}") for name, value in sorted(attributes(op).items()) if name != CALLSTACK_ATTR
        ]
        stack = [str(line).strip() for line in op.get_attr(CALLSTACK_ATTR, [])]
        if stack:
            pairs.append(("  made at", "\n".join(stack)))
        return fields(f"{within}{position} {op.type}", pairs)


class ParametersView:
    """`--with-params`: statistics of the weights; of a damaged model, of those that can be read."""

    def __init__(self, model: Model, batch: int, shapes: Shapes) -> None:
        fault = model.files.fault
        self.rows = statistics_rows(model.files.parameters if fault is None else fault.readable or EMPTY_STORE)
        self.faults = parameter_faults(model.files)

    def data(self) -> report.ParametersReport:
        """One entry for each parameter."""
        return {
            "schema": "fluidtool.inspect/1",
            "view": "with-params",
            "parameters": statistics_data(self.rows),
            "faults": faults_data(self.faults),
        }

    def tables(self) -> Iterable[Table]:
        """What can be read, and what cannot."""
        yield statistics_table(self.rows)
        yield faults_table(self.faults)


def _plan_view(model: Model, batch: int, shapes: Shapes, explained: bool = False) -> View:
    """The view of `--plan`, which alone needs the compiler of the native engine."""
    from fluidtool.cli.views.plan import PlanView

    return PlanView(model, batch, shapes, explained)


VIEWS: dict[str, Callable[[Model, int, Shapes], View]] = {
    "summary": SummaryView,
    "with-details": DetailsView,
    "ops": OperatorsView,
    "vars": VariablesView,
    "with-params": ParametersView,
    "plan": _plan_view,
    "plan, explained": partial(_plan_view, explained=True),
}
