"""What is compared: a model on an engine, a model in real Paddle, or values that were recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from fluidtool.debugging.single_writes import with_single_writes
from fluidtool.ir import Program
from fluidtool.model import Model
from fluidtool.passes.pipeline import copy_scope
from fluidtool.records import dataclass
from fluidtool.runtime.bound_region import BoundRegion
from fluidtool.runtime.engines.native.region import NativeRegion
from fluidtool.runtime.partition import Region
from fluidtool.runtime.plan import Plan
from fluidtool.runtime.scope import Scope
from fluidtool.runtime.step import Step
from fluidtool.tensor import CUDAPlace, LoDTensor, LoDTensorArray, SelectedRows

SEED = 1


@dataclass(frozen=True, slots=True)
class Recording:
    """The outputs of a run as it normally is, and every value that could be had by name.

    disturbed: outputs that change when the other values are fetched, which changes what an engine computes at once.
    """

    outputs: Mapping[str, Any]
    values: Mapping[str, Any]
    disturbed: tuple[str, ...] = ()


class Side(Protocol):
    """One of the two that are compared, able to run."""

    @property
    def model(self) -> Model:
        """The program, with a name for each value, and its parameters."""

    @property
    def computes(self) -> str:
        """What computes: 'numpy', 'native, bf16', 'Paddle 1.8.5'."""

    def outputs(self, feed: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """The values of `names` as a run gives them; those without a value are left out."""

    def record(self, feed: Mapping[str, Any], names: Sequence[str]) -> Recording:
        """The outputs `names`, and every value on the way."""

    def part(self, program: Program) -> Side:
        """The same for a part of the program."""


@dataclass(frozen=True, slots=True)
class ModelSide:
    """A model that fluidtool runs."""

    model: Model
    every: bool = False

    @property
    def computes(self) -> str:
        """The engine, and a precision that is not float32."""
        if isinstance(self.model.place, CUDAPlace):
            return "cupy"
        engine = self.model.executor.engine
        name = "numpy" if engine is None else engine.name
        return name if self.model.precision == "float32" else f"{name}, {self.model.precision}"

    def part(self, program: Program) -> ModelSide:
        """Another program on the same parameters, with the same engine."""
        _ = self.model.executor  # brings the parameters into the scope
        return replace(self, model=self.model.with_program(program))

    def outputs(self, feed: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """Run and fetch `names` alone."""
        return self._run(feed, names, None)

    def record(self, feed: Mapping[str, Any], names: Sequence[str]) -> Recording:
        """Run as usual; then once more, keeping what each operator and region gives.

        On an engine that computes operators at once, only what is a value there is fetched (`every`: all), so that the run is
        the one that is judged.
        """
        usual = self.outputs(feed, names)
        recorder = Recorder()
        kept = self._kept(names)
        self._run(feed, list(dict.fromkeys([*names, *kept])), recorder)
        values = {**feed, **recorder.values}
        disturbed = tuple(
            name for name in usual if name in recorder.values and not same(usual[name], recorder.values[name])
        )
        return Recording(usual, {**values, **usual}, disturbed)

    def _kept(self, names: Sequence[str]) -> list[str]:
        """The values to fetch besides: those that regions have anyway."""
        plan = self.model.executor.plan(self.model.program, list(names), True)
        block = self.model.program.global_block()
        found = kept_in_regions(plan, self.every)
        return [name for name in found if name in block.vars and not block.vars[name].persistable]

    def _run(self, feed: Mapping[str, Any], names: Sequence[str], observer: Any) -> dict[str, Any]:
        model = self.model
        model.check_feed(feed, names)
        executor = model.executor
        values = executor.run(
            model.program,
            feed,
            names,
            self._scope(),
            needed_only=True,
            observer=observer,
            optional=names,
            generator=np.random.default_rng(model.seed or model.program.random_seed or SEED),
        )
        found = {name: snapshot(value) for name, value in zip(names, values, strict=True)}
        return {name: value for name, value in found.items() if value is not None}

    def _scope(self) -> Scope:
        """The parameters; a copy if operators write them, so that every run begins alike."""
        program = self.model.program
        return copy_scope(self.model.scope, program) if writes_parameters(program) else self.model.scope


def model_side(model: Model, every: bool = False) -> ModelSide:
    """A side whose program has a name for each value."""
    program = with_single_writes(model.program)
    return ModelSide(model if program is model.program else model.with_program(program), every)


def writes_parameters(program: Program) -> bool:
    """Whether an operator changes a persistable variable."""
    return any(
        (var := block.find_var_recursive(name)) is not None and var.persistable
        for block in program.blocks
        for op in block.ops
        if op.type != "fetch"
        for name in op.output_arg_names
    )


# ---------------------------------------------------------------- recording
class Recorder:
    """An observer that keeps the last value of everything that is computed."""

    whole_regions = True

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def __call__(self, step: Any, block: int) -> None:
        """Run a step and keep what it gives."""
        step.run()
        whole = isinstance(step, BoundRegion)
        holders = step.outputs.values() if whole else [each for row in step.outputs.values() for each in row]
        for holder in holders:
            value = None if holder is None else snapshot(holder.value)
            if value is not None:
                self.values[holder.name] = value


def snapshot(value: Any) -> Any:
    """A value on the host that stays as it is; None for one without memory. Arrays are shared: kernels make new ones."""
    if isinstance(value, LoDTensor):
        return LoDTensor(value.numpy(), value.lod()) if value.is_initialized() else None
    if isinstance(value, SelectedRows):
        return (
            SelectedRows(value.row_ids.copy(), value.table_height, value.tensor.numpy())
            if value.tensor.is_initialized()
            else None
        )
    if isinstance(value, LoDTensorArray):
        return LoDTensorArray(snapshot(item) or LoDTensor() for item in value)
    return None


def same(left: Any, right: Any) -> bool:
    """Whether two tensors are equal bit by bit; other values are taken to be."""
    if not (isinstance(left, LoDTensor) and isinstance(right, LoDTensor)):
        return True
    return left.numpy().tobytes() == right.numpy().tobytes()


def kept_in_regions(plan: Plan, every: bool) -> list[str]:
    """The results of operators of regions that are values in the compiled region, too, in order; every: all of them.

    Operators outside regions are seen by the observer.
    """
    regions = [item for item in plan.block(0).work if isinstance(item, Region)]
    return list(dict.fromkeys(name for region in regions for name in _kept(region, every)))


def _kept(item: Step | Region, every: bool) -> Iterator[str]:
    steps = item.steps if isinstance(item, Region) else (item,)
    compiled = list(item.specializations.kept.values()) if isinstance(item, Region) else []
    if not every and compiled and isinstance(compiled[-1], NativeRegion):
        there = {call.node.output.name for call in compiled[-1].kernel_calls if call.node is not None}
        yield from (name for step in steps for name in _results(step) if name in there)
    elif not every and not compiled and isinstance(item, Region) and item.parts:
        for part in item.parts:
            yield from _kept(part, every)
    else:
        yield from (name for step in steps for name in _results(step))


def _results(step: Step) -> list[str]:
    return step.op.output(step.info.outputs[0].name)
