"""Which steps of a plan make a region, and the region at run time: compiled for what it is given, kept by signature."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from fluidtool import locks
from fluidtool.runtime.bindings import Bindings, array_of
from fluidtool.runtime.engines.native.compiler import Compiler, Runner, Watch
from fluidtool.runtime.engines.native.packed import PackedConstants
from fluidtool.runtime.graph.importers.refusals import Attributes, every_attribute
from fluidtool.runtime.graph.importers.registry import IMPORTERS, RESULTS, Lod
from fluidtool.runtime.graph.ir import UnsupportedError
from fluidtool.runtime.graph.rewrites.pooling import pooled_inputs
from fluidtool.tensor import LoDTensor

if TYPE_CHECKING:
    from fluidtool.ir import Operator
    from fluidtool.runtime.plan import Step
    from fluidtool.runtime.scope import ScopeVariable

MOST_KEPT = 64  # compiled specializations of one region, by the shapes of its inputs; as many reasons why there is none
ROOM = 1 << 28  # bytes that the specializations of all regions of a block may take, where the newest do not take more
PATIENCE = 8  # signatures without a specialization after which a region that never had one is not tried any more
ONE_BY_ONE = 8  # results of operators without a kernel, after which all operators of a type are left out together
NUMBER = 36  # bytes of a number of a LoD that is kept: itself, and where it is
WORTH = frozenset(
    {
        "conv2d",
        "conv3d",
        "conv2d_transpose",
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
        "lstm",
        "lstmp",
        "gru",
        "gru_unit",
        "yolo_box",
        "sequence_conv",
        "cos_sim",
    }
)
Lookup = Callable[[str], "ScopeVariable | None"]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a region must know of its block: what persists, what some step writes, what is needed after it."""

    persistable: frozenset[str]
    written: frozenset[str]
    wanted: frozenset[str]
    banned: frozenset[str] = frozenset()  # results of operators that turned out to have no kernel


@dataclass(frozen=True, eq=False, slots=True)
class Division:
    """A region cut at an operator that has no kernel for some inputs: what takes its place."""

    culprit: Step
    reason: str
    parts: tuple[Step | Region, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no specialization for a signature; `division` is None where the steps run one by one."""

    reason: str
    division: Division | None


@dataclass(eq=False, slots=True)
class Region:
    """Steps that the library may run in one call, by the signature of the inputs: their shapes, data types and LoDs.

    Where it cannot for one signature, `refused` says why; that says nothing about other signatures, unless so many were
    refused, and none ever compiled, that `given_up` is for all. Divisions are shared by signatures, by the output of the
    operator that they are cut at. share: among how many regions of the block the room for specializations is divided.
    """

    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    outputs: tuple[str, ...]
    release: tuple[str, ...]
    library: Compiler
    surroundings: Surroundings
    pooled: frozenset[str] = frozenset()  # inputs of which a specialization takes any number of rows
    share: int = 1
    specializations: OrderedDict[Any, Runner] = field(default_factory=OrderedDict)
    packed: PackedConstants = field(default_factory=PackedConstants)  # of the constants that were met last
    refused: OrderedDict[Any, Refusal] = field(default_factory=OrderedDict)
    divisions: dict[str, Division] = field(default_factory=dict)
    failures: int | None = 0  # signatures refused in a row; None once one was compiled
    given_up: Refusal | None = None
    lock: Lock = field(default_factory=locks.lock)  # of all these: several threads may run one plan

    _operators: list[tuple[Operator, Attributes]] = field(default_factory=list)

    def operators(self) -> list[tuple[Operator, Attributes]]:
        """The operators with their attributes, read once; raises UnsupportedError for attributes that cannot be read."""
        if not self._operators:
            self._operators = [(step.op, every_attribute(step.op, step.info)) for step in self.steps]
        return self._operators

    @property
    def last_division(self) -> Division | None:
        """The division that was made last, for those who show what became of a region."""
        return next(reversed(self.divisions.values()), None)

    @property
    def parts(self) -> tuple[Step | Region, ...]:
        """The parts of that division; none where the region was never divided."""
        division = self.last_division
        return () if division is None else division.parts

    def signature(self, arrays: Iterable[Any], lods: Iterable[Lod]) -> Any:
        """What the specialization for these inputs is kept by: their shapes and LoDs; of pooled ones the number of sequences."""
        return tuple(
            (array.shape[1:], array.dtype.char, len(lod[0]))
            if name in self.pooled and len(lod) == 1 and array.size == len(array) == lod[0][-1] > 0
            else (array.shape, array.dtype.char, lod)
            for name, array, lod in zip(self.inputs, arrays, lods, strict=True)
        )

    def specialization(self, key: Any, constants: tuple[Any, ...]) -> Runner | None:
        """The specialization compiled for inputs of this signature and these constants, or None; the caller holds the lock."""
        specialization = self.specializations.get(key)
        if specialization is None or not self.packed.are_from(constants):
            return None
        self.specializations.move_to_end(key)
        return specialization

    def found(self, arrays: Sequence[Any], lods: Sequence[Lod], constants: tuple[Any, ...]) -> Runner | Division | None:
        """What runs these inputs: a specialization, compiled now if need be, or the parts of a division, or (None) step by step.

        The caller holds the lock.
        """
        key = self.signature(arrays, lods)
        specialization = self.specialization(key, constants)
        if specialization is not None:
            return specialization
        if any([array.size == 0 for array in arrays]):
            return None
        refusal = self.given_up or self.refused.get(key)
        if refusal is not None:
            return refusal.division
        if not self.packed.are_from(constants):  # what was packed from others is of no use
            self.specializations.clear()
            self.packed = PackedConstants(constants)
        try:
            specialization = self.library.compile(
                self.operators(),
                dict(zip(self.inputs, arrays, strict=True)),
                dict(zip(self.constants, constants, strict=True)),
                self.outputs,
                dict(zip(self.inputs, lods, strict=True)),
                self.packed,
                self.pooled,
            )
        except UnsupportedError as error:
            return self.refuse(key, error)
        self.failures = None
        self.specializations[key] = specialization
        self.trim()
        return specialization

    def refuse(self, key: Any, error: UnsupportedError) -> Division | None:
        """Note why there is no specialization for a signature; what runs it instead."""
        refusal = self.refused[key] = Refusal(str(error), self.divide(error))
        if len(self.refused) > MOST_KEPT:
            self.refused.popitem(last=False)
        if self.failures is not None:
            self.failures += 1
            if self.failures >= PATIENCE:
                self.given_up = refusal
        return refusal.division

    def divide(self, error: UnsupportedError) -> Division | None:
        """Cut at the operator that has no kernel after all; what is left on both sides may be native."""
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
            parts = tuple(sharing(group(self.steps, around, self.library), self.share))
            division = self.divisions[results[0]] = Division(culprit, str(error), parts)
        return division

    def banned_with(self, culprit: Step) -> frozenset[str]:
        """Results of what is left out once this is: where much was left out one by one, of all operators of its type.

        Each division lies within another, and goes over all that is left.
        """
        alike = [culprit]
        if len(self.surroundings.banned) >= ONE_BY_ONE:
            alike = [step for step in self.steps if step.op.type == culprit.op.type]
        return self.surroundings.banned.union(*map(changed, alike))

    def trim(self) -> None:
        """Forget the specializations that were used the longest time ago, where there are too many or they take too much."""
        taken = {
            key: specialization.memory + NUMBER * numbers_of(key)
            for key, specialization in self.specializations.items()
        }
        newest = next(reversed(taken))
        memory, room = sum(taken.values()), max(ROOM // self.share, 2 * taken[newest])
        for key in [key for key in taken if key != newest]:
            if len(self.specializations) <= MOST_KEPT and memory <= room:
                return
            memory -= taken[key]
            del self.specializations[key]


def numbers_of(signature: Any) -> int:
    """How many numbers the LoDs of a signature hold."""
    return sum(len(level) for _, _, lod in signature if isinstance(lod, tuple) for level in lod)


def find_regions(
    steps: Sequence[Step], persistable: frozenset[str], fetched: Iterable[str], library: Compiler
) -> list[Step | Region]:
    """The steps with every run of native ones, that is worth it, put together."""
    written = frozenset(name for step in steps for name in changed(step))
    return sharing(group(steps, Surroundings(persistable, written, frozenset(fetched)), library), 1)


def sharing(parts: list[Step | Region], share: int) -> list[Step | Region]:
    """The parts, with the regions among them sharing what is one `share` of the room."""
    found = [part for part in parts if isinstance(part, Region)]
    for region in found:
        region.share = share * len(found)
    return parts


def group(steps: Sequence[Step], around: Surroundings, library: Compiler) -> list[Step | Region]:
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
            found.append(region_of(part, replace(around, wanted=wanted), library))
        else:
            found.extend(part)
        run.clear()

    for number, step in enumerate(steps):
        if may_be_native(step, around, wanted_after(number, step.op.output_arg_names)):
            run.append(number)
        else:
            if run:
                close()
            found.append(step)
    if run:
        close()
    return found


def region_of(part: Sequence[Step], around: Surroundings, library: Compiler) -> Region:
    """One region: what it reads from outside, what it must leave behind."""
    made: dict[str, None] = {}
    read: dict[str, None] = {}
    for step in part:
        read |= dict.fromkeys(name for name in step.op.input_arg_names if name not in made)
        made |= dict.fromkeys(changed(step))
    constants = [name for name in read if name in around.persistable and name not in around.written]
    inputs = [name for name in read if name not in around.persistable or name in around.written]
    outputs = {name: None for name in made if name in around.wanted or name in around.persistable}
    release = dict.fromkeys(name for step in part for name in step.release if name not in outputs)
    pooled = pooled_inputs((step.op for step in part), inputs, outputs) if library.any_rows else frozenset()
    named = tuple(inputs), tuple(constants), tuple(outputs), tuple(release)
    return Region(tuple(part), *named, library, around, pooled)


def names(step: Step) -> set[str]:
    """What an operator mentions."""
    return {*step.op.input_arg_names, *step.op.output_arg_names}


def changed(step: Step) -> list[str]:
    """What a native operator changes: its results. (Statistics of batch_norm are outputs, too, but stay.)"""
    if step.op.type not in IMPORTERS:
        return step.op.output_arg_names
    slots = RESULTS.get(step.op.type, (step.info.outputs[0].name,))
    return [name for slot in slots for name in step.op.outputs.get(slot, [])]


def may_be_native(step: Step, around: Surroundings, wanted: frozenset[str]) -> bool:
    """Whether there may be a kernel: the operator is known, and nobody needs its further outputs."""
    op, results = step.op, changed(step)
    if op.type not in IMPORTERS or op.sub_blocks() or not results or (len(results) > 1 and op.type not in RESULTS):
        return False
    further = [name for name in op.output_arg_names if name not in results and name not in op.input_arg_names]
    if any(name in around.persistable or name in around.banned for name in results):
        return False
    return not any(name in wanted for name in further)


class BoundRegion:
    """A region whose names are looked up."""

    __slots__ = ("_at_work", "_bind", "_bound", "_parts", "constants", "inputs", "outputs", "region", "release")

    def __init__(
        self,
        region: Region,
        lookup: Lookup,
        bind: Callable[[Any], Any],
        release: tuple[Any, ...],
        bindings: Bindings,
    ) -> None:
        self.region, self.release = region, release
        self._bind = bind
        self._at_work: Any = None
        self._bound: list[Any] | None = None
        self._parts: dict[Division, list[Any]] = {}
        self.inputs = [lookup(name) for name in region.inputs]
        self.constants = bindings.constants_of(region)
        self.outputs = {name: lookup(name) for name in region.outputs}

    @property
    def steps(self) -> Sequence[Any]:
        """The steps one by one, for numpy and for those who watch every operator."""
        if self._bound is None:
            self._bound = [self._bind(step) for step in self.region.steps]
        return self._bound

    def parts(self, division: Division | None) -> Sequence[Any]:
        """The steps, with those put together that are native in spite of one between them."""
        if division is None:
            return self.steps
        found = self._parts.get(division)
        if found is None:
            found = self._parts[division] = [self._bind(part) for part in division.parts]
        return found

    @property
    def context(self) -> Any:
        """The operator that is at work, for messages."""
        return (self._at_work or self.steps[0]).context

    def run(self, watch: Watch | None = None) -> None:
        """In one call, or one by one where there is no kernel for these inputs; `watch` times what is done."""
        arrays = [array_of(holder) for holder in self.inputs]
        lods = [lod_of(holder) for holder in self.inputs]
        constants = self.constants.arrays()
        found: Runner | Division | None = None
        if constants is not None and all([array is not None for array in arrays]):
            with self.region.lock:
                found = self.region.found(arrays, lods, constants)
        if found is None or isinstance(found, Division):
            for step in self.parts(found):
                self._at_work = step
                if watch is None:
                    step.run()
                else:
                    watch(step, 0)
            return
        self._at_work = None
        given = dict(zip(self.region.inputs, arrays, strict=True))
        results = found.run(given, watch, dict(zip(self.region.inputs, lods, strict=True)))
        for name, holder in self.outputs.items():
            if holder is not None:
                holder.pending_lod = None
                holder.set_tensor(results[name], [list(level) for level in found.lods[name]])


def lod_of(holder: Any) -> Lod:
    """The LoD of a variable's tensor."""
    return lod_of_value(holder.value if holder is not None else None)


def lod_of_value(value: Any) -> Lod:
    """The LoD of a tensor; none for everything else."""
    return tuple(map(tuple, value.offsets)) if type(value) is LoDTensor else ()


def reasons(regions: Iterable[Any]) -> Mapping[str, str]:
    """Why regions, or parts of them, ran on numpy: the first operator's output -> the reason."""
    found: dict[str, str] = {}
    for region in regions:
        if isinstance(region, Region):
            for refusal in region.refused.values():
                found[region.steps[0].op.output_arg_names[0]] = refusal.reason
            for division in region.divisions.values():
                found |= {name: why for name, why in reasons(division.parts).items() if name not in found}
    return found
