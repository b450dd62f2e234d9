"""`inspect --plan`: what a run does step by step, and what the native engine makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from fluidtool.cli.engines import native_fields, native_text
from fluidtool.cli.render import Table, fields, shape_text, size, table
from fluidtool.cli.view_parts import kernel
from fluidtool.model import Model
from fluidtool.ops.inference import infer_program
from fluidtool.passes.cost import footprint, input_metas, with_batch
from fluidtool.runtime.chains import Chain
from fluidtool.runtime.engines import delegate_for, native_library
from fluidtool.runtime.engines.native.partition import Region
from fluidtool.runtime.engines.native.preview import Preview, left_to_numpy, preview
from fluidtool.runtime.plan import Plan, Step, trains


class PlanView:
    """`--plan`: the steps, the memory, and the calls into the native engine with what they are compiled to."""

    def __init__(self, model: Model, batch: int, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.delegate = delegate_for(model.engine)
        native = native_library(model.engine, precision=model.precision)
        plan = Plan(model.program, tuple(model.fetches), needed_only=True, native=native, delegate=self.delegate)
        work = plan.block(0).work
        self.steps = plan.block(0).steps
        metas = input_metas(model.program, model.feeds, batch, shapes)
        self.memory = footprint(plan, metas, batch)
        self.sizes = ", ".join(f"{name} {list(meta.shape)}" for name, meta in metas.items()) or "no inputs"
        self.native = native_fields()
        self.trains = any(trains(step.op) for step in self.steps)
        block = plan.program.global_block()
        inferred = infer_program(plan.program, metas)
        self.calls: list[Preview] = []
        self.engines: list[tuple[str, int | None, str]] = []  # of each step: engine, call, kernel

        def look(item: Step | Region | Chain) -> None:
            if isinstance(item, Chain):
                for step in item.steps:
                    look(step)
                return
            if isinstance(item, Step):
                self.engines.append(("numpy", None, kernel(item.info.module)))
                return
            found = {name: inferred.find(block, name) for name in item.inputs}
            sized = {name: meta and meta.with_shape(with_batch(meta.shape, batch)) for name, meta in found.items()}
            call = preview(item, block, sized)
            if item.parts:
                for part in item.parts:
                    look(part)
                return
            self.calls.append(call)
            self.engines += self._of(item)

        for item in work:
            look(item)
        watched = (plan.native or plan.delegate) is not None and not self.trains
        self.left = left_to_numpy(work) if watched else {}

    def _of(self, region: Region) -> list[tuple[str, int | None, str]]:
        number = len(self.calls)
        if self.calls[-1].reason:
            return [("numpy", number, kernel(step.info.module)) for step in region.steps]
        name = "native" if self.delegate is None else self.delegate.name
        return [(name, number, f"call {number}")] * len(region.steps)

    def data(self) -> Any:
        """The steps, the peak of memory, the calls."""
        return {
            "inputs": self.sizes,
            "peak_activation_bytes": self.memory.peak,
            "unknown_sizes": self.memory.unknown,
            "delegated_to": None if self.delegate is None else self.delegate.name,
            "native": {**self.native, "calls": [asdict(call) for call in self.calls], "left_to_numpy": self.left},
            "steps": [
                {
                    "operator": step.op.type,
                    "engine": engine,
                    "call": call,
                    "kernel": name,
                    "outputs": step.op.output_arg_names,
                    "release": step.release,
                    "alive_bytes": alive,
                }
                for step, (engine, call, name), alive in zip(self.steps, self.engines, self.memory.by_step, strict=True)
            ],
        }

    def tables(self) -> Iterable[Table]:
        """Fields, then the steps, then what each call is compiled to."""
        unknown = self.memory.unknown
        yield fields(
            "",
            [
                ("inputs", self.sizes),
                ("steps", len(self.steps)),
                ("peak", f"{size(self.memory.peak)} of activations"),
                *([("not counted", f"{', '.join(unknown)} (sizes that only a run can tell)")] if unknown else []),
                ("native engine" if self.delegate is None else self.delegate.name, self._summary()),
            ],
        )
        out = table("Steps", ">#", "operator", "!engine", "kernel", "released after", ">alive")
        rows = zip(self.steps, self.engines, self.memory.by_step, strict=True)
        for position, (step, (engine, _, name), alive) in enumerate(rows):
            out.add(position, step.op.type, engine, name, "\n".join(step.release), size(alive))
        yield out
        for number, call in enumerate(self.calls, 1):
            yield from call_tables(number, call)
        left = table("Left to numpy", "operator", "because")
        for op_type, reason in self.left.items():
            left.add(op_type, reason)
        yield left

    def _summary(self) -> str:
        if self.delegate is None and not self.native["in_use"]:
            return native_text(self.native)
        if self.trains:
            return "not used: a program that trains runs operator by operator"
        taken = sum(engine != "numpy" for engine, _, _ in self.engines)
        calls = sum(not call.reason for call in self.calls)
        counted = f"{taken} of {len(self.steps)} operators in {calls} call{'s' if calls != 1 else ''}"
        return f"{counted} ({self.native['instructions'] if self.delegate is None else self.delegate.version})"


def call_tables(number: int, call: Preview) -> Iterable[Table]:
    """The memory and the steps of one call; or the reason why there is none."""
    operators = f"{call.operators} operator{'s' if call.operators != 1 else ''}"
    if call.reason:
        yield fields(f"Call {number}: {operators}, left to numpy", [("because", call.reason)])
        return
    if not call.arena_bytes:
        count = len(call.steps)
        yield fields(f"Call {number}: {operators} delegated as {count} computation{'s' if count != 1 else ''}", ())
        return
    arena = f"{size(call.arena_bytes)}; no arrangement needs less than {size(call.lower_bound_bytes)}"
    yield fields(
        f"Call {number}: {operators} in {len(call.steps)} step{'s' if len(call.steps) != 1 else ''}",
        [("arena", arena), ("constants", f"{size(call.constant_bytes)} of packed weights and tables")],
    )
    out = table("", ">#", "!kernel", "computes", "!layout", "!shape", ">parts")
    for position, step in enumerate(call.steps):
        shape = shape_text(step.shape) if step.result else ""
        out.add(position, step.kernel, step.computes, step.layout, shape, step.parts)
    yield out
