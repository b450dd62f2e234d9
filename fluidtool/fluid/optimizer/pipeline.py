"""PipelineOptimizer: a training program split into sections (Paddle 1.8.5 optimizer.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

from fluidtool.errors import ArgumentTypeError, UsageError
from fluidtool.fluid.optimizer.base import Optimizer
from fluidtool.ir import Operator, Program, Variable
from fluidtool.ir.roles import ROLE_ATTR, OpRole
from fluidtool.ir.surgery import copy_operator
from fluidtool.ops.gradient import grad_name
from fluidtool.records import dataclass
from fluidtool.tensor import CUDAPlace


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a training program: its operators, its inputs and the outputs that later sections use."""

    program: Program
    inputs: frozenset[str]
    outputs: frozenset[str]


class PipelineOptimizer:
    """Trains with `optimizer`, and splits the program into sections at `cut_list`: lists of variables, the loss's last.

    In one process the sections run in sequence on each mini-batch, which is what running the program itself
    does. `sections` holds them after `minimize`: forward ones, the one with the loss, backward ones with their updates.
    The other arguments configure runs with several processes; they are kept.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        cut_list: Sequence[Sequence[Variable]] | None = None,
        place_list: Sequence[Any] | None = None,
        concurrency_list: Sequence[int] | None = None,
        queue_size: int = 30,
        sync_steps: int = 1,
        start_cpu_core_id: int = 0,
    ) -> None:
        if not hasattr(optimizer, "minimize"):
            raise ArgumentTypeError(f"PipelineOptimizer takes an optimizer, found {type(optimizer).__name__}")
        cuts = [list(cut) for cut in cut_list or ()]
        if not all(isinstance(var, Variable) for cut in cuts for var in cut):
            raise ArgumentTypeError("cut_list must contain lists of Variables")
        if len(cuts) == 1:
            raise UsageError("cut_list needs the variables to cut at and, last, the loss; found one list")
        self._optimizer, self._cut_list = optimizer, cuts
        self._settings: dict[str, Any] = {
            "place_list": place_list,
            "concurrency_list": concurrency_list,
            "queue_size": queue_size,
            "sync_steps": sync_steps,
            "start_cpu_core_id": start_cpu_core_id,
        }
        self.sections: list[Section] = []

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Variable | str] | None = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> None:
        """Append gradients and updates for `loss`, and split the program."""
        self._optimizer.minimize(loss, startup_program, parameter_list, no_grad_set)
        program = loss.block.program
        self.sections = split_program(program, self._cut_list) if self._cut_list else [_whole(program)]
        program._pipeline_opt = {
            "trainer": "PipelineTrainer",
            "device_worker": "Section",
            "section_program_list": [
                {"program": section.program, "input_set": set(section.inputs), "output_set": set(section.outputs)}
                for section in self.sections
            ],
            **self._settings,
            "param_need_sync": _synchronized(program, self.sections, self._settings["place_list"] or ()),
        }


def split_program(program: Program, cut_list: Sequence[Sequence[Variable]]) -> list[Section]:
    """The sections of a training program, in the order in which they run."""
    waiting = list(program.global_block().ops)
    parameters = {param.name for param in program.global_block().all_parameters()}
    cuts, last = _cut_names(cut_list), len(cut_list) - 1
    groups: list[list[Operator]] = []
    owned: list[set[str]] = []
    for index, names in enumerate(cuts):
        taken = _take(waiting, set(names), updates=False)
        if index == 0:
            taken += _remove(waiting, [op for op in waiting if op.get_attr(ROLE_ATTR, 0) == OpRole.LRSched])
        if index <= last:
            owned.append({name for op in taken for name in op.input_arg_names if name in parameters})
        if index >= last:
            taken += _take(waiting, owned[2 * last - index], updates=True)
        groups.append(taken)
    return _linked(program, [*groups, waiting])


def _cut_names(cut_list: Sequence[Sequence[Variable]]) -> list[list[str]]:
    """What ends each section but the last: cut variables in the forward pass, their gradients in the backward pass."""
    forward = [[var.name for var in cut] for cut in cut_list[:-1]]
    backward = [[grad_name(name) for name in names] for names in reversed(forward)]
    backward[-1] += [var.name for var in cut_list[-1]]
    return forward + backward


def _take(waiting: list[Operator], names: set[str], updates: bool) -> list[Operator]:
    """Remove the operators that compute `names`; operators of the Optimize role only with `updates`."""
    wanted, taken = set(names), []
    for op in reversed(waiting):
        optimizes = bool(op.get_attr(ROLE_ATTR, 0) & OpRole.Optimize)
        if wanted.intersection(op.output_arg_names) and (updates or not optimizes):
            wanted.update(op.input_arg_names)
            taken.append(op)
    return _remove(waiting, taken[::-1])


def _remove(waiting: list[Operator], taken: list[Operator]) -> list[Operator]:
    chosen = {id(op) for op in taken}
    waiting[:] = [op for op in waiting if id(op) not in chosen]
    return taken


@dataclass(slots=True)
class _Written:
    """The names that the operators of a group read before they write them, and those that they write."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, ops: Iterable[Operator]) -> _Written:
        found = cls()
        for op in ops:
            found.reads.update(name for name in op.input_arg_names if name not in found.writes)
            found.writes.update(op.output_arg_names)
        return found


def _linked(program: Program, groups: Sequence[Sequence[Operator]]) -> list[Section]:
    sections: list[Section] = []
    needed: set[str] = set()
    for ops in reversed(groups):
        flow = _Written.of(ops)
        sections.append(Section(_program_of(program, ops), frozenset(flow.reads), frozenset(flow.writes & needed)))
        needed |= flow.reads
    return sections[::-1]


def _program_of(program: Program, ops: Sequence[Operator]) -> Program:
    made = Program()
    made.random_seed = program.random_seed
    block, source = made.global_block(), program.global_block()
    for op in ops:
        for name in [*op.input_arg_names, *op.output_arg_names]:
            if name in source.vars and name not in block.vars:
                block.clone_variable(source.var(name), force_persistable=False)
        block.ops.append(copy_operator(op, block))
    return made


def _synchronized(program: Program, sections: Sequence[Section], places: Iterable[Any]) -> list[str]:
    """The parameters of sections on GPUs."""
    parameters = {param.name for param in program.global_block().all_parameters()}
    on_gpus = [section for section, place in zip(sections, places, strict=False) if isinstance(place, CUDAPlace)]
    return [name for section in on_gpus for name in section.program.global_block().vars if name in parameters]


def _whole(program: Program) -> Section:
    flow = _Written.of(program.global_block().ops)
    return Section(program, frozenset(flow.reads), frozenset())
