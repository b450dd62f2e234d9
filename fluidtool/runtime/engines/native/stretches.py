"""Which steps of a plan make a stretch, and the stretch at run time: compiled for what it is given, kept by signature."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from fluidtool.runtime.bindings import Bindings, array_of
from fluidtool.runtime.engines.native.graph import NotNativeError
from fluidtool.runtime.engines.native.packed import PackedConstants
from fluidtool.runtime.engines.native.pooling import pooled_inputs
from fluidtool.runtime.engines.native.reading.refusals import Attributes, every_attribute
from fluidtool.runtime.engines.native.reading.registry import READERS, RESULTS, Lod
from fluidtool.runtime.engines.native.stretch import Compiler, Runner, Watch
from fluidtool.tensor import LoDTensor

if TYPE_CHECKING:
    from fluidtool.ir import Operator
    from fluidtool.runtime.plan import Step
    from fluidtool.runtime.scope import ScopeVariable

MOST_KEPT = 64  # compiled forms of one stretch, by the shapes of its inputs
ROOM = 1 << 27  # bytes that the forms beyond the first few may take together
ALWAYS_KEPT = 8
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
    """What a stretch must know of its block: what persists, what some step writes, what is needed after it."""

    persistable: frozenset[str]
    written: frozenset[str]
    wanted: frozenset[str]
    banned: frozenset[str] = frozenset()  # results of operators that turned out to have no kernel


@dataclass(eq=False, slots=True)
class Stretch:
    """Steps that the library may run in one call. `why` says what kept it from doing so, by signature of the inputs."""

    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    outputs: tuple[str, ...]
    release: tuple[str, ...]
    library: Compiler
    surroundings: Surroundings
    pooled: frozenset[str] = frozenset()  # inputs of which a form takes any number of rows
    parts: tuple[Step | Stretch, ...] = ()
    cut: tuple[Step, str] | None = None  # the operator that the parts lie around, and what it lacks
    forms: OrderedDict[Any, Runner] = field(default_factory=OrderedDict)
    packed: PackedConstants = field(default_factory=PackedConstants)  # of the constants that were met last
    why: dict[Any, str] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)  # of forms, why and parts: several threads may run one plan
    _operators: list[tuple[Operator, Attributes]] = field(default_factory=list)

    def operators(self) -> list[tuple[Operator, Attributes]]:
        """The operators with their attributes, read once; raises NotNativeError for attributes that cannot be read."""
        if not self._operators:
            self._operators = [(step.op, every_attribute(step.op, step.info)) for step in self.steps]
        return self._operators

    def signature(self, arrays: Iterable[Any], lods: Iterable[Lod]) -> Any:
        """What a form compiled for these inputs is kept by: their shapes and LoDs; of those that are pooled how many sequences
        there are.
        """
        return tuple(
            (array.shape[1:], array.dtype.char, len(lod[0]))
            if name in self.pooled and len(lod) == 1 and array.size == len(array) == lod[0][-1] > 0
            else (array.shape, array.dtype.char, lod)
            for name, array, lod in zip(self.inputs, arrays, lods, strict=True)
        )

    def form(self, key: Any, constants: tuple[Any, ...]) -> Runner | None:
        """The form compiled for inputs of this signature and these constants, or None; the caller holds the lock."""
        form = self.forms.get(key)
        if form is None or not self.packed.are_from(constants):
            return None
        self.forms.move_to_end(key)
        return form

    def trim(self) -> None:
        """Forget the forms that were used the longest time ago, where there are too many."""
        memory = sum(form.memory for form in self.forms.values())
        while len(self.forms) > (MOST_KEPT if memory <= ROOM else ALWAYS_KEPT):
            _, oldest = self.forms.popitem(last=False)
            memory -= oldest.memory


def find_stretches(
    steps: Sequence[Step], persistable: frozenset[str], fetched: Iterable[str], library: Compiler
) -> list[Step | Stretch]:
    """The steps with every run of native ones, that is worth it, put together."""
    written = frozenset(name for step in steps for name in changed(step))
    return group(steps, Surroundings(persistable, written, frozenset(fetched)), library)


def group(steps: Sequence[Step], around: Surroundings, library: Compiler) -> list[Step | Stretch]:
    """The same within given surroundings."""
    found: list[Step | Stretch] = []
    run: list[int] = []
    later: list[frozenset[str]] = [around.wanted for _ in steps]
    for number in range(len(steps) - 2, -1, -1):
        later[number] = later[number + 1] | names(steps[number + 1])

    def close() -> None:
        part = [steps[i] for i in run]
        if any(step.op.type in WORTH for step in part):
            found.append(stretch_of(part, replace(around, wanted=later[run[-1]]), library))
        else:
            found.extend(part)
        run.clear()

    for number, step in enumerate(steps):
        if may_be_native(step, around, later[number]):
            run.append(number)
        else:
            if run:
                close()
            found.append(step)
    if run:
        close()
    return found


def stretch_of(part: Sequence[Step], around: Surroundings, library: Compiler) -> Stretch:
    """One stretch: what it reads from outside, what it must leave behind."""
    made: dict[str, None] = {}
    read: dict[str, None] = {}
    for step in part:
        read |= dict.fromkeys(name for name in step.op.input_arg_names if name not in made)
        made |= dict.fromkeys(changed(step))
    constants = [name for name in read if name in around.persistable and name not in around.written]
    inputs = [name for name in read if name not in constants]
    outputs = [name for name in made if name in around.wanted or name in around.persistable]
    release = dict.fromkeys(name for step in part for name in step.release if name not in outputs)
    pooled = pooled_inputs((step.op for step in part), inputs, outputs) if library.any_rows else frozenset()
    named = tuple(inputs), tuple(constants), tuple(outputs), tuple(release)
    return Stretch(tuple(part), *named, library, around, pooled)


def divide(stretch: Stretch, error: NotNativeError) -> None:
    """Cut a stretch at the operator that has no kernel after all; what is left on both sides may be native."""
    culprits = [
        step for step in stretch.steps
        if error.result in step.op.output_arg_names or error.reader in step.op.input_arg_names
    ]  # fmt: skip
    if culprits:
        banned = stretch.surroundings.banned | set(changed(culprits[0]))
        stretch.cut = (culprits[0], str(error))
        stretch.parts = tuple(group(stretch.steps, replace(stretch.surroundings, banned=banned), stretch.library))


def names(step: Step) -> set[str]:
    """What an operator mentions."""
    return {*step.op.input_arg_names, *step.op.output_arg_names}


def changed(step: Step) -> list[str]:
    """What a native operator changes: its results. (Statistics of batch_norm are outputs, too, but stay.)"""
    if step.op.type not in READERS:
        return step.op.output_arg_names
    slots = RESULTS.get(step.op.type, (step.info.outputs[0].name,))
    return [name for slot in slots for name in step.op.outputs.get(slot, [])]


def may_be_native(step: Step, around: Surroundings, wanted: frozenset[str]) -> bool:
    """Whether there may be a kernel: the operator is known, and nobody needs its further outputs."""
    op, results = step.op, changed(step)
    if op.type not in READERS or op.sub_blocks() or not results or (len(results) > 1 and op.type not in RESULTS):
        return False
    further = [name for name in op.output_arg_names if name not in results and name not in op.input_arg_names]
    if any(name in around.persistable or name in around.banned for name in results):
        return False
    return not any(name in wanted for name in further)


class BoundStretch:
    """A stretch whose names are looked up."""

    __slots__ = ("_bind", "_bound", "_current", "_parts", "constants", "inputs", "outputs", "release", "stretch")

    def __init__(
        self,
        stretch: Stretch,
        lookup: Lookup,
        bind: Callable[[Any], Any],
        release: tuple[Any, ...],
        bindings: Bindings,
    ) -> None:
        self.stretch, self.release = stretch, release
        self._bind, self._current = bind, 0
        self._bound: list[Any] | None = None
        self._parts: list[Any] | None = None
        self.inputs = [lookup(name) for name in stretch.inputs]
        self.constants = bindings.constants_of(stretch)
        self.outputs = {name: lookup(name) for name in stretch.outputs}

    @property
    def steps(self) -> Sequence[Any]:
        """The steps one by one, for numpy and for those who watch every operator."""
        if self._bound is None:
            self._bound = [self._bind(step) for step in self.stretch.steps]
        return self._bound

    @property
    def parts(self) -> Sequence[Any]:
        """The steps, with those put together that are native in spite of one between them."""
        if not self.stretch.parts:
            return self.steps
        if self._parts is None:
            self._parts = [self._bind(part) for part in self.stretch.parts]
        return self._parts

    @property
    def context(self) -> Any:
        """The operator that is at work, for messages."""
        return self.parts[self._current].context

    def run(self, watch: Watch | None = None) -> None:
        """In one call, or one by one where there is no kernel for these inputs; `watch` times what is done."""
        arrays = [array_of(holder) for holder in self.inputs]
        lods = [lod_of(holder) for holder in self.inputs]
        constants = self.constants.arrays()
        form = None
        if constants is not None and all([array is not None for array in arrays]):
            with self.stretch.lock:
                form = self._form(arrays, lods, constants)
        if form is None:
            for number, step in enumerate(self.parts):
                self._current = number
                if watch is None:
                    step.run()
                else:
                    watch(step, 0)
            return
        given = dict(zip(self.stretch.inputs, arrays, strict=True))
        results = form.run(given, watch, dict(zip(self.stretch.inputs, lods, strict=True)))
        for name, holder in self.outputs.items():
            if holder is not None:
                holder.pending_lod = None
                holder.set_tensor(results[name], [list(level) for level in form.lods[name]])

    def _form(self, arrays: list[Any], lods: list[Lod], constants: tuple[Any, ...]) -> Runner | None:
        stretch = self.stretch
        key = stretch.signature(arrays, lods)
        form = stretch.form(key, constants)
        if form is not None:
            return form
        if stretch.parts or key in stretch.why:
            return None
        if not stretch.packed.are_from(constants):  # what was packed from others is of no use
            stretch.packed = PackedConstants(constants)
            stretch.forms.clear()
        try:
            form = stretch.library.compile(
                stretch.operators(),
                dict(zip(stretch.inputs, arrays, strict=True)),
                dict(zip(stretch.constants, constants, strict=True)),
                stretch.outputs,
                dict(zip(stretch.inputs, lods, strict=True)),
                stretch.packed,
                stretch.pooled,
            )
        except NotNativeError as error:
            stretch.why[key] = str(error)
            divide(stretch, error)
            return None
        stretch.forms[key] = form
        stretch.trim()
        return form


def lod_of(holder: Any) -> Lod:
    """The LoD of a variable's tensor."""
    return lod_of_value(holder.value if holder is not None else None)


def lod_of_value(value: Any) -> Lod:
    """The LoD of a tensor; none for everything else."""
    return tuple(map(tuple, value.offsets)) if type(value) is LoDTensor else ()


def reasons(stretches: Iterable[Any]) -> Mapping[str, str]:
    """Why stretches, or parts of them, ran on numpy: the first operator's output -> the reason."""
    found: dict[str, str] = {}
    for stretch in stretches:
        if isinstance(stretch, Stretch):
            for reason in stretch.why.values():
                found[stretch.steps[0].op.output_arg_names[0]] = reason
            found |= {name: why for name, why in reasons(stretch.parts).items() if name not in found}
    return found
