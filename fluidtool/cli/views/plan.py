"""`inspect --plan`: what a run does step by step, and what the native engine makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from fluidtool.cli.render import Table, counted, fields, size, table
from fluidtool.cli.views.engines import native_fields, native_text
from fluidtool.cli.views.program import kernel, sized_input
from fluidtool.model import Model
from fluidtool.ops.inference import infer_program
from fluidtool.passes.cost import footprint, input_metas, with_batch
from fluidtool.runtime.chains import Chain
from fluidtool.runtime.dependencies import trains
from fluidtool.runtime.engines.native.preview import Preview, RewriteView, explain, left_to_numpy, preview
from fluidtool.runtime.engines.registry import engine_for
from fluidtool.runtime.partition import Region
from fluidtool.runtime.plan import Plan
from fluidtool.runtime.step import Step
from fluidtool.runtime.training_regions import TrainingRegion
from fluidtool.shapes import shape_text

if TYPE_CHECKING:
    from fluidtool.report import inspect as report


class PlanView:
    """`--plan`: the steps, the memory, and the regions of the native engine with what they are compiled to."""

    def __init__(
        self, model: Model, batch: int, shapes: Mapping[str, tuple[int, ...]], explained: bool = False
    ) -> None:
        engine = engine_for(model.engine, precision=model.precision)
        self.delegate = None if engine is None or engine.name == "native" else engine
        plan = Plan(model.program, tuple(model.fetches), needed_only=True, engine=engine)
        work = plan.block(0).work
        self.steps = plan.block(0).steps
        metas = input_metas(model.program, model.feeds, batch, shapes)
        self.memory = footprint(plan, metas, batch)
        self.inputs = [sized_input(name, meta.shape) for name, meta in metas.items()]
        self.sizes = ", ".join(f"{name} {shape_text(meta.shape)}" for name, meta in metas.items()) or "no inputs"
        self.native = native_fields()
        self.trains = any(trains(step.op) for step in self.steps)
        block = plan.program.global_block()
        inferred = infer_program(plan.program, metas)
        self.regions: list[Preview] = []
        self.rewrites: list[tuple[RewriteView, ...]] = []  # of each region, where they are asked for
        self.engines: list[tuple[str, int | None, str]] = []  # of each step: engine, region, kernel

        def look(item: Step | Region | Chain | TrainingRegion) -> None:
            if isinstance(item, Chain | TrainingRegion):
                for step in item.steps:
                    look(step)
                return
            if isinstance(item, Step):
                self.engines.append(("numpy", None, kernel(item.info.module)))
                return
            found = {name: inferred.find(block, name) for name in item.inputs}
            sized = {name: meta and meta.with_shape(with_batch(meta.shape, batch)) for name, meta in found.items()}
            compiled = preview(item, block, sized)
            if item.parts:
                for part in item.parts:
                    look(part)
                return
            self.regions.append(compiled)
            if explained and self.delegate is None:
                self.rewrites.append(() if compiled.reason else explain(item, block, sized))
            self.engines += self._of(item)

        for item in work:
            look(item)
        watched = engine is not None and not self.trains
        self.left = left_to_numpy(work) if watched else {}

    def _of(self, region: Region) -> list[tuple[str, int | None, str]]:
        number = len(self.regions)
        if self.regions[-1].reason:
            return [("numpy", number, kernel(step.info.module)) for step in region.steps]
        name = "native" if self.delegate is None else self.delegate.name
        return [(name, number, f"region {number}")] * len(region.steps)

    def data(self) -> report.PlanReport:
        """The steps, the peak of memory, the regions."""
        rows = zip(self.steps, self.engines, self.memory.by_step, strict=True)
        return {
            "schema": "fluidtool.inspect/1",
            "view": "plan",
            "inputs": self.inputs,
            "peak_activation_bytes": self.memory.peak,
            "unknown": self.memory.unknown,
            "delegated_to": None if self.delegate is None else self.delegate.name,
            "native": {**self.native, "regions": self._regions(), "left_to_numpy": self.left},
            "steps": [
                {
                    "step": number,
                    "type": step.op.type,
                    "engine": engine,
                    "region": region,
                    "kernel": name,
                    "outputs": step.op.output_arg_names,
                    "release": step.release,
                    "alive_bytes": alive,
                }
                for number, (step, (engine, region, name), alive) in enumerate(rows)
            ],
        }

    def _regions(self) -> list[report.Region]:
        found = [_region(region) for region in self.regions]
        for region, applied in zip(found, self.rewrites, strict=False):
            region["rewrites"] = [_rewrite(each) for each in applied]
        return found

    def tables(self) -> Iterable[Table]:
        """Fields, then the steps, then what each region is compiled to."""
        unknown = self.memory.unknown
        yield fields(
            "",
            [
                ("inputs", self.sizes),
                ("steps", len(self.steps)),
                ("peak", f"{size(self.memory.peak)} of activations"),
                *([("not counted", f"{', '.join(unknown)} (sizes known only at run time)")] if unknown else []),
                ("native engine" if self.delegate is None else self.delegate.name, self._summary()),
            ],
        )
        out = table("Steps", ">#", "operator", "!engine", "kernel", "released after", ">alive")
        rows = zip(self.steps, self.engines, self.memory.by_step, strict=True)
        for position, (step, (engine, _, name), alive) in enumerate(rows):
            out.add(position, step.op.type, engine, name, "\n".join(step.release), size(alive))
        yield out
        for number, region in enumerate(self.regions, 1):
            yield from region_tables(number, region)
            if self.rewrites and self.rewrites[number - 1]:
                yield rewrites_table(number, self.rewrites[number - 1])
        left = table("Left to numpy", "operator", "because")
        for op_type, reason in self.left.items():
            left.add(op_type, reason)
        yield left

    def _summary(self) -> str:
        if self.delegate is None and not self.native["in_use"]:
            return native_text(self.native)
        if self.trains:
            return "not used: training programs run operator by operator"
        taken = sum(engine != "numpy" for engine, _, _ in self.engines)
        regions = sum(not region.reason for region in self.regions)
        share = f"{taken} of {counted(len(self.steps), 'operator')} in {counted(regions, 'region')}"
        return f"{share} ({self.native['instructions'] if self.delegate is None else self.delegate.version})"


def _region(found: Preview) -> report.Region:
    return {
        "operators": found.operators,
        "kernel_calls": [
            {
                "kernel": each.kernel,
                "computes": each.computes,
                "result": each.result,
                "shape": each.shape,
                "layout": each.layout,
                "tasks": each.tasks,
            }
            for each in found.kernel_calls
        ],
        "arena_bytes": found.arena_bytes,
        "lower_bound_bytes": found.lower_bound_bytes,
        "constant_bytes": found.constant_bytes,
        "reason": found.reason or None,
    }


def _rewrite(found: RewriteView) -> report.Rewrite:
    return {"name": found.name, "purpose": found.purpose, "done": found.done, "no_matches": found.no_matches}


def region_tables(number: int, region: Preview) -> Iterable[Table]:
    """The memory and the kernel calls of one region; or the reason why there is none."""
    operators = counted(region.operators, "operator")
    if region.reason:
        yield fields(f"Region {number}: {operators}, left to numpy", [("because", region.reason)])
        return
    if not region.arena_bytes:
        count = len(region.kernel_calls)
        yield fields(f"Region {number}: {operators} delegated as {counted(count, 'computation')}", ())
        return
    arena = f"{size(region.arena_bytes)}; no arrangement needs less than {size(region.lower_bound_bytes)}"
    yield fields(
        f"Region {number}: {operators} in {counted(len(region.kernel_calls), 'kernel call')}",
        [("arena", arena), ("constants", f"{size(region.constant_bytes)} of packed weights and tables")],
    )
    out = table("", ">#", "!kernel", "computes", "!layout", "!shape", ">tasks")
    for position, shown in enumerate(region.kernel_calls):
        sizes = shape_text(shown.shape) if shown.result else ""
        out.add(position, shown.kernel, shown.computes, shown.layout, sizes, shown.tasks)
    yield out


def rewrites_table(number: int, rewrites: Iterable[RewriteView]) -> Table:
    """What rewrites did to the graph of a region, in order, and why not elsewhere; without those that found nothing fit."""
    out = table(f"Region {number}: rewrites", "!rewrite", ">done", "what was done, and why not elsewhere")
    for rewrite in rewrites:
        if rewrite.done or rewrite.no_matches:
            reasons = [f"{times} times not: {reason}" for reason, times in rewrite.no_matches.items()]
            out.add(rewrite.name, rewrite.done, "\n".join([rewrite.purpose, *reasons]))
    return out
