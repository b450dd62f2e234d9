"""Which steps of a plan make a region, what a region is compiled to, and how it is split if that fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, cast

from fluidtool.ir import Operator
from fluidtool.records import dataclass
from fluidtool.runtime.arrivals import Arrivals
from fluidtool.runtime.dependencies import is_own
from fluidtool.runtime.engines.base import CompiledRegion, Engine
from fluidtool.runtime.graph.importers.refusals import Attributes, every_attribute
from fluidtool.runtime.graph.importers.registry import IMPORTERS, RESULTS, Lod
from fluidtool.runtime.graph.importers.sequences import READING_LOD
from fluidtool.runtime.graph.ir import UnsupportedError
from fluidtool.runtime.graph.rewrites.pooling import pooled_inputs
from fluidtool.runtime.graph.spec import RegionSpec
from fluidtool.runtime.signatures import signature
from fluidtool.runtime.specialization import Refusal, Specializations
from fluidtool.runtime.step import Step

if TYPE_CHECKING:
    from fluidtool.runtime.filled_regions import FillingEngine, Fillings

BY_SHAPES = ""  # in the place of a result, for the division at all operators that read LoDs
ONE_BY_ONE = 8  # results of operators without a kernel, after which all operators of a type are left out together
WORTH = frozenset(
    {
        "conv2d",
        "conv3d",
        "conv2d_transpose",
        "conv3d_transpose",
        "depthwise_conv2d_transpose",
        "depthwise_conv2d",
        "mul",
        "matmul",
        "matmul_v2",
        "fc",
        "batch_norm",
        "layer_norm",
        "instance_norm",
        "group_norm",
        "pool2d",
        "pool3d",
        "softmax",
        "softmax_with_cross_entropy",
        "lstm",
        "lstmp",
        "gru",
        "gru_unit",
        "cudnn_lstm",
        "yolo_box",
        "sequence_conv",
        "cos_sim",
        "crf_decoding",
        "linear_chain_crf",
        "warpctc",
    }
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a region needs to know of its block: what is persistable, what steps write, what is needed after it.

    on_host: results that the host computes. inner: whether the block is within another one.
    """

    persistable: frozenset[str]
    written: frozenset[str]
    wanted: frozenset[str]
    on_host: frozenset[str] = frozenset()
    inner: bool = False
    banned: frozenset[str] = frozenset()  # results of operators without a kernel


@dataclass(frozen=True, eq=False, slots=True)
class Division:
    """A region split at an operator that has no kernel for some inputs: what replaces it."""

    culprit: Step
    reason: str
    parts: tuple[Step | Region, ...]


@dataclass(eq=False, slots=True)
class Region:
    """Steps that an engine may run in one call, by the signature of the inputs: their shapes, data types and LoDs.

    Signatures share divisions, by the output of the operator at which they are split. hands_lods_on: whether a specialization is
    for inputs of any LoDs, which it hands on at most: in loops, where few LoDs come again. fillings: of one in a loop that reads
    LoDs.
    """

    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    outputs: tuple[str, ...]
    release: tuple[str, ...]
    engine: Engine
    surroundings: Surroundings
    pooled: frozenset[str] = frozenset()  # inputs whose number of rows is free in a specialization
    specializations: Specializations = field(default_factory=Specializations)
    hands_lods_on: bool = False
    fillings: Fillings | None = None
    divisions: dict[str, Division] = field(default_factory=dict)
    _operators: list[tuple[Operator, Attributes]] = field(default_factory=list)

    def operators(self) -> list[tuple[Operator, Attributes]]:
        """The operators with their attributes, parsed once; raises UnsupportedError for attributes that cannot be parsed."""
        if not self._operators:
            self._operators = [(step.op, every_attribute(step.op, step.info)) for step in self.steps]
        return self._operators

    @property
    def last_division(self) -> Division | None:
        """The division that was made last, to show what became of a region."""
        return next(reversed(self.divisions.values()), None)

    @property
    def parts(self) -> tuple[Step | Region, ...]:
        """The parts of that division; none if the region was never divided."""
        division = self.last_division
        return () if division is None else division.parts

    def signature(self, arrays: Iterable[Any], lods: Iterable[Lod]) -> Any:
        """The key of the specialization for these inputs: shapes and LoDs; for pooled ones the number of sequences."""
        return signature(self.inputs, self.pooled, arrays, lods)

    def found(
        self, arrays: Sequence[Any], lods: Sequence[Lod], constants: tuple[Any, ...]
    ) -> CompiledRegion | Division | None:
        """What runs these inputs: a specialization, compiled if needed, the parts of a division, or (None) the single steps.

        The caller holds the lock of the specializations.
        """
        kept = self.specializations
        key = self.signature(arrays, lods)
        compiled = kept.get(key, constants)
        if compiled is not None:
            return compiled
        if any([array.size == 0 for array in arrays]):
            return None
        if self.fillings is not None:
            engine = cast("FillingEngine", self.engine)
            fitting = self.fillings.found(key, lambda: self._spec(arrays, lods, constants), constants, kept, engine)
            if fitting is not None:
                return fitting
        if (refusal := kept.refusal(key)) is not None:
            division: Division | None = refusal.division
            return division
        if not kept.are_of(constants):
            kept.begin(constants, self.engine.packing(constants))
        if kept.waits():
            return None
        if not kept.is_due(key):
            return self.by_shapes()
        try:
            compiled = kept.in_memory(lambda: self._compile(arrays, lods))
        except UnsupportedError as error:
            return self.refuse(key, error)
        kept.keep(key, compiled)
        return compiled

    def withdraw(self, arrays: Sequence[Any], lods: Sequence[Lod], error: UnsupportedError) -> Division | None:
        """Give up the specialization for these inputs, which a library has refused to run; what runs them instead."""
        with self.specializations.lock:
            key = self.signature(arrays, lods)
            if self.fillings is not None:
                self.fillings.give_up(key, self.specializations)
            self.specializations.kept.pop(key, None)
            return self.refuse(key, error)

    def refuse(self, key: Any, error: UnsupportedError) -> Division | None:
        """Record why a signature has no specialization, and what runs it instead."""
        division = self.divide(error)
        self.specializations.refuse(key, Refusal(str(error), division))
        return division

    def _compile(self, arrays: Sequence[Any], lods: Sequence[Lod]) -> CompiledRegion:
        kept = self.specializations
        assert kept.constants is not None
        return self.engine.compile(self._spec(arrays, lods, kept.constants), kept.packed)

    def _spec(self, arrays: Sequence[Any], lods: Sequence[Lod], constants: Sequence[Any]) -> RegionSpec:
        return RegionSpec(
            self.operators(),
            dict(zip(self.inputs, arrays, strict=True)),
            dict(zip(self.constants, constants, strict=True)),
            self.outputs,
            dict(zip(self.inputs, lods, strict=True)),
            self.pooled,
            self.specializations.rounded,
        )

    def divide(self, error: UnsupportedError) -> Division | None:
        """Split at the operator without a kernel; the parts on both sides may still be compiled."""
        culprit = next(
            (
                step for step in self.steps
                if error.result in step.op.output_arg_names or error.operand in step.op.input_arg_names
            ),
            None,
        )  # fmt: skip
        if culprit is None:
            return None
        results = changed(culprit)
        division = self.divisions.get(results[0])
        if division is None:
            around = replace(self.surroundings, banned=self.banned_with(culprit))
            parts = tuple(sharing(group(self.steps, around, self.engine), self.specializations.share))
            division = self.divisions[results[0]] = Division(culprit, str(error), parts)
        return division

    def by_shapes(self) -> Division | None:
        """What runs inputs whose LoDs do not come again: what lies between the operators that read LoDs, which run one by one."""
        readers = [step for step in self.steps if step.op.type in READING_LOD]
        if not readers:
            return None
        division = self.divisions.get(BY_SHAPES)
        if division is None:
            around = replace(self.surroundings, banned=self.surroundings.banned.union(*map(changed, readers)))
            parts = tuple(sharing(group(self.steps, around, self.engine), self.specializations.share))
            division = self.divisions[BY_SHAPES] = Division(readers[0], "LoDs that come once", parts)
        return division

    def banned_with(self, culprit: Step) -> frozenset[str]:
        """Results to leave out with this one: after many were left out one by one, those of all operators of its type.

        Each division lies within another and visits everything that remains.
        """
        alike = [culprit]
        if len(self.surroundings.banned) >= ONE_BY_ONE:
            alike = [step for step in self.steps if step.op.type == culprit.op.type]
        return self.surroundings.banned.union(*map(changed, alike))


def find_regions(
    steps: Sequence[Step],
    persistable: frozenset[str],
    fetched: Iterable[str],
    engine: Engine,
    on_host: frozenset[str] = frozenset(),
    inner: bool = False,
) -> list[Step | Region]:
    """The steps, with worthwhile runs of native ones grouped into regions. on_host, inner: as of `Surroundings`."""
    written = frozenset(name for step in steps for name in changed(step))
    return sharing(group(steps, Surroundings(persistable, written, frozenset(fetched), on_host, inner), engine), 1)


def sharing(parts: list[Step | Region], share: int) -> list[Step | Region]:
    """The parts; regions among them split one `share` of the memory."""
    found = [part for part in parts if isinstance(part, Region)]
    for region in found:
        region.specializations.share = share * len(found)
    return parts


def group(steps: Sequence[Step], around: Surroundings, engine: Engine) -> list[Step | Region]:
    """The same within given surroundings."""
    found: list[Step | Region] = []
    run: list[int] = []
    last = {name: number for number, step in enumerate(steps) for name in names(step)}

    def wanted_after(number: int, mentioned: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in mentioned if name in around.wanted or last.get(name, -1) > number)

    def close() -> None:
        part = [steps[i] for i in run]
        if any(step.op.type in WORTH for step in part):
            wanted = wanted_after(run[-1], {name for step in part for name in names(step)})
            found.append(region_of(part, replace(around, wanted=wanted), engine))
        else:
            found.extend(part)
        run.clear()

    for number, step in enumerate(steps):
        if step.op.type not in engine.left_out and may_be_native(
            step, around, wanted_after(number, step.op.output_arg_names)
        ):
            run.append(number)
        else:
            if run:
                close()
            found.append(step)
    if run:
        close()
    return found


def region_of(part: Sequence[Step], around: Surroundings, engine: Engine) -> Region:
    """One region: what it reads from outside, and which results are needed after it."""
    made: dict[str, None] = {}
    read: dict[str, None] = {}
    for step in part:
        read |= dict.fromkeys(
            name for name in step.op.input_arg_names if name not in made and not is_own(step.op, name)
        )
        made |= dict.fromkeys(changed(step))
    constants = [name for name in read if name in around.persistable and name not in around.written]
    inputs = [name for name in read if name not in around.persistable or name in around.written]
    outputs = {name: None for name in made if name in around.wanted or name in around.persistable}
    release = dict.fromkeys(name for step in part for name in step.release if name not in outputs)
    pooled = pooled_inputs((step.op for step in part), inputs, outputs) if engine.any_rows else frozenset()
    named = tuple(inputs), tuple(constants), tuple(outputs), tuple(release)
    kept = Specializations(arrivals=Arrivals() if around.inner else None)
    reads_lods = any(step.op.type in READING_LOD for step in part)
    fillings = None
    if around.inner and reads_lods:
        from fluidtool.runtime.filled_regions import Fillings  # on GPUs alone

        fillings = Fillings()
    return Region(tuple(part), *named, engine, around, pooled, kept, around.inner and not reads_lods, fillings)


def names(step: Step) -> set[str]:
    """The names that an operator mentions."""
    return {*step.op.input_arg_names, *step.op.output_arg_names}


def changed(step: Step) -> list[str]:
    """What a native operator changes: its results. (Statistics of batch_norm are outputs, too, but do not change.)"""
    if step.op.type not in IMPORTERS:
        return step.op.output_arg_names
    slots = RESULTS.get(step.op.type, (step.info.outputs[0].name,))
    return [name for slot in slots for name in step.op.outputs.get(slot, [])]


def may_be_native(step: Step, around: Surroundings, wanted: frozenset[str]) -> bool:
    """Whether it may have a kernel: the operator is known, and its further outputs are not needed."""
    op, results = step.op, changed(step)
    if op.type not in IMPORTERS or op.sub_blocks() or not results or (len(results) > 1 and op.type not in RESULTS):
        return False
    further = [name for name in op.output_arg_names if name not in results and name not in op.input_arg_names]
    if op.variable_attrs():  # importers need numbers
        return False
    if any(name in around.persistable or name in around.banned or name in around.on_host for name in results):
        return False
    return not any(name in wanted for name in further)


def reasons(regions: Iterable[Any]) -> Mapping[str, str]:
    """Why regions, or parts of them, ran on numpy: the first operator's output -> the reason."""
    found: dict[str, str] = {}
    for region in regions:
        if isinstance(region, Region):
            for refusal in region.specializations.refused.values():
                found[region.steps[0].op.output_arg_names[0]] = refusal.reason
            for division in region.divisions.values():
                found |= {name: why for name, why in reasons(division.parts).items() if name not in found}
    return found
