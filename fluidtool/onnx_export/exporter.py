"""From a program to an ONNX graph: operator by operator, with the list of all that ONNX cannot say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeVar

import numpy as np

from fluidtool.errors import ArgumentTypeError, FluidError, ProgramError
from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.dataflow import live_operators
from fluidtool.ir.operator import EMPTY
from fluidtool.onnx_export.graph import Blocked, Graph, Shape, Shared, Value
from fluidtool.onnx_export.items import Items
from fluidtool.onnx_export.operation import Operation
from fluidtool.onnx_export.registry import renderings
from fluidtool.ops.inference import TENSOR_KINDS, declared_meta, infer_operator
from fluidtool.ops.registry import OpInfo, get_op
from fluidtool.ops.schema import TensorMeta
from fluidtool.passes.inference.constants import DIMENSIONS_READ, SIZE_LIMIT, evaluate, own_bytes
from fluidtool.passes.inference.queries import is_pure
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.runtime.executor import Executor
from fluidtool.tensor import LoDTensor, numpy_dtype, var_type_of

OPSETS = range(13, 24)
DEFAULT_OPSET = 17
SEVERAL = "--several-sequences"
T = TypeVar("T")
# The axes whose sizes Paddle declares other than they are: the largest number of rows, a longest sequence of 1.
DECLARED_OTHERWISE = {"multiclass_nms": (0,), "multiclass_nms2": (0,), "sequence_pad": (1,)}


@dataclass(frozen=True, slots=True)
class Blocker:
    """An operator that ONNX has no rendering of: where it is, what it computes, and why not."""

    block: int
    operator: int
    type: str
    output: str
    reason: str


@dataclass(frozen=True, slots=True)
class Exported:
    """A graph, or what keeps the program from becoming one; `notes` says what holds of the model beyond its graph.

    counts: the outputs that say how many sequences there were, which is one in a model of one at a time. lengths: of the
    feeds with sequences, the inputs that say how long these are, level by level.
    """

    graph: Graph
    blockers: tuple[Blocker, ...]
    single_sequence: bool
    notes: tuple[str, ...]
    operators: int
    counts: frozenset[str] = frozenset()
    lengths: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Exporter:
    """One export: the values, and what is known of them, by the name that they have at this point of the program.

    several: whether a run takes several sequences. told: the lengths of sequences that the operator at hand has said.
    """

    program: Program
    parameters: Mapping[str, Any]
    shared: Shared
    values: dict[str, Value | Items] = field(default_factory=dict)
    metas: dict[str, TensorMeta] = field(default_factory=dict)
    blockers: list[Blocker] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    read: frozenset[str] = frozenset()
    several: bool = False
    single: bool = False
    told: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    lengths: dict[str, list[str]] = field(default_factory=dict)
    counts: set[str] = field(default_factory=set)
    executor: Executor = field(default_factory=Executor)

    # -- values
    def value(self, graph: Graph, name: str) -> Value:
        """The tensor of a name at this point; raises Blocked for one that has none."""
        found = self.find(graph, name)
        if isinstance(found, Items):
            raise Blocked(f"{name} is an array of tensors")
        return found

    def find(self, graph: Graph, name: str) -> Value | Items:
        """The value of a name at this point."""
        if name in self.values:
            held = self.values[name]
            return held.within(graph) if isinstance(held, Value) else held
        if name in self.parameters:
            stored = self.parameters[name]
            if not isinstance(stored, LoDTensor) or stored.array is None:
                raise Blocked(f"the parameter {name} is not a tensor")
            array = stored.numpy()
            found = self.values[name] = graph.constant(array, name=name)
            self.metas[name] = TensorMeta(tuple(array.shape), var_type_of(array.dtype))
            return found
        raise Blocked(f"{name} has no value at this point")

    def meta(self, block: Block, name: str) -> TensorMeta | None:
        """What is known of a name at this point."""
        if name not in self.metas and name in self.parameters:
            info = self.parameters[name]
            if isinstance(info, LoDTensor) and info.array is not None:
                return TensorMeta(tuple(info.shape()), var_type_of(info.numpy().dtype))
        return self.metas[name] if name in self.metas else declared_meta(block.find_var_recursive(name))

    def reads(self, names: Sequence[str]) -> bool:
        """Whether an operator that counts, or a fetch, reads one of these names."""
        return not self.read.isdisjoint(names)

    def require_single(self) -> None:
        """Note that the model is right for one sequence at a time; raises Blocked where it is to take several."""
        if self.several:
            raise Blocked("its rendering takes one sequence at a time")
        self.single = True

    def tell(self, name: str, levels: Sequence[Value]) -> None:
        """Note how long the sequences are that an operator gives."""
        self.told[name] = tuple(levels)

    # -- blocks
    def block(self, graph: Graph, block: Block, live: Sequence[bool]) -> None:
        """Render the operators of a block that count."""
        for position, op in enumerate(block.ops):
            if live[position] and op.type not in ("feed", "fetch"):
                self.operator(graph, block, position, op)

    def nested(
        self, graph: Graph, block: Block, names: Sequence[str], given: Mapping[str, Value | Items]
    ) -> dict[str, Value | Items]:
        """Render a sub-block in a graph of its own; the values that these names have at its end.

        Nothing else of it is seen outside. Raises Blocked where it has blockers, which are listed.
        """
        outer = self.values, self.metas, self.unknown
        told = self.told
        self.values, self.metas, self.unknown = {**outer[0], **given}, dict(outer[1]), set(outer[2])
        self.metas |= {name: _known_of(value, self.metas.get(name)) for name, value in given.items()}
        known, prefix = len(self.blockers), graph.prefix
        try:
            self.block(graph, block, [True] * len(block.ops))
            blocked = self.blockers[known:]
            found = {name: self.values[name] for name in names if name in self.values}
        finally:
            self.values, self.metas, self.unknown = outer
            self.told, graph.prefix = told, prefix
        if blocked:
            self.blockers[known:] = dict.fromkeys(blocked)
            raise Blocked(f"its block {block.idx} has operators without a rendering")
        return found

    def assign(self, graph: Graph, block: Block, name: str, value: Value | Items) -> None:
        """Give a name a value that a sub-block made."""
        self.bind(graph, block, name, value)
        self.unknown.discard(name)
        if isinstance(value, Value):
            self.tell(name, value.levels)

    def operator(self, graph: Graph, block: Block, position: int, op: Operator) -> None:
        """Render one operator, or note why that is not possible."""
        outputs = [name for name in op.output_arg_names if name != EMPTY]
        graph.prefix = _prefix(outputs[0] if outputs else op.type)
        after_blocked = not self.unknown.isdisjoint(op.input_arg_names)
        try:
            info = get_op(op.type)
            self._infer(block, op)
            self._render(graph, block, op, info)
            self.unknown -= set(outputs)
        except FluidError as error:
            rendering_missing = op.type not in renderings()
            if rendering_missing or not after_blocked:
                self._note_blocked(block, position, op, str(error))
            self._stand_in(graph, block, outputs)

    def _note_blocked(self, block: Block, position: int, op: Operator, reason: str) -> None:
        outputs = [name for name in op.output_arg_names if name != EMPTY]
        self.blockers.append(Blocker(block.idx, position, op.type, outputs[0] if outputs else "", reason))

    def _stand_in(self, graph: Graph, block: Block, outputs: Sequence[str]) -> None:
        """Values to look for further blockers with."""
        for name in outputs:
            self.unknown.add(name)
            self.values.pop(name, None)
            meta = self.meta(block, name)
            if meta is not None:
                self.values[name] = Value(graph, graph.name(name), numpy_dtype(meta.dtype), tuple(meta.shape))

    def _infer(self, block: Block, op: Operator) -> None:
        results = infer_operator(op, lambda name: self.meta(block, name))
        for name in () if op.sub_blocks() else op.output_arg_names:
            self.metas.pop(name, None)
        for name, meta in results.items():
            known = [-1 if axis in DECLARED_OTHERWISE.get(op.type, ()) else n for axis, n in enumerate(meta.shape)]
            self.metas[name] = meta.with_shape(known)

    # -- operators
    def _render(self, graph: Graph, block: Block, op: Operator, info: OpInfo) -> None:
        folded = _called(lambda: self._folded(graph, block, op))
        if folded is not None:
            for name, array in folded.items():
                self._store(name, graph.constant(array))
            return
        self.told = self._shared_levels(op, info)
        rendering = renderings().get(op.type)
        if rendering is None:
            raise Blocked("ONNX export has no rendering of this operator")
        operation = Operation(op, info, graph, self.values, self.metas, self)
        results = _called(lambda: rendering(graph, operation))
        by_slot: Mapping[str, Any]
        by_slot = (
            results if isinstance(results, Mapping) else {} if results is None else {info.outputs[0].name: results}
        )
        by_slot = {**_old_shape(graph, operation), **by_slot}
        for slot, found in by_slot.items():
            items = found if isinstance(found, list) else [found]
            for name, item in zip(op.outputs.get(slot, ()), items, strict=False):
                if item is not None and name != EMPTY:
                    self.bind(graph, block, name, item)
        self._level(op)

    def _shared_levels(self, op: Operator, info: OpInfo) -> dict[str, tuple[Value, ...]]:
        """The lengths of sequences that outputs have from inputs; raises Blocked where the operator joins sequences."""
        shared: dict[str, tuple[Value, ...]] = {}
        for source, target in (*info.share_lod, *_kept_lod(op, info)):
            for index, name in enumerate(op.outputs.get(target, ())):
                origins = op.inputs.get(source, [])
                held = self.values.get(origins[min(index, len(origins) - 1)]) if origins else None
                if isinstance(held, Value) and held.levels:
                    shared.setdefault(name, held.levels)
        return shared

    def _level(self, op: Operator) -> None:
        """Give the outputs the lengths of their sequences, and no other ones."""
        for name in op.output_arg_names:
            held = self.values.get(name)
            if isinstance(held, Value) and (held.levels or name in self.told):
                self.values[name] = held.leveled(self.told.get(name, ()))

    def bind(self, graph: Graph, block: Block, name: str, value: Value | Items) -> None:
        """Give a name a value, of the data type and rank that the program's operators give it."""
        if isinstance(value, Items):
            self.values[name] = value
            return
        meta = self.metas.get(name)
        if meta is not None and meta.kind == VarType.LOD_TENSOR:
            value = _fitted(value, meta)
        self._store(name, value.shaped(meta.shape) if value.shape is None and meta is not None else value)

    def _store(self, name: str, value: Value) -> None:
        meta = self.metas.get(name)
        self.values[name] = value
        if value.shape is not None:
            self.metas[name] = TensorMeta(value.shape, _data_type(value.dtype), 0 if meta is None else meta.lod_level)

    def _folded(self, graph: Graph, block: Block, op: Operator) -> dict[str, Any] | None:
        """The outputs of an operator all of whose inputs are known, unless they are large."""
        if not is_pure(op) or "quantize" in op.type or not op.output_arg_names or op.type in KEPT:
            return None
        feeds = {}
        for slot, names in op.inputs.items():
            wanted = DIMENSIONS_READ.get(op.type, {}).get(slot, ())
            for name in names:
                if name == EMPTY:
                    continue
                found = self.find(graph, name)
                if isinstance(found, Items) or found.counts or found.levels:
                    return None
                array = found.array
                if array is None and wanted != ():
                    array = _dimensions(found, wanted)
                if array is None:
                    return None
                feeds[name] = LoDTensor(array)
        limit = max(SIZE_LIMIT, 4 * sum(own_bytes(value.numpy()) for value in feeds.values()))
        metas = [self.metas.get(name) for name in op.output_arg_names]
        if any(meta is not None and np.prod(np.maximum(meta.shape, 1)) > limit for meta in metas):
            return None
        results = evaluate(op, feeds, self.executor)
        if any(value.offsets for value in results.values()):
            return None
        return {name: value.numpy() for name, value in results.items()}


# What names the axes that are reduced, joined or cut: rows on axis 0 stay those of the same sequences otherwise.
ROWS_KEPT = {
    "concat": ("axis",),
    "stack": ("axis",),
    "split": ("axis",),
    "unbind": ("axis",),
    "flip": ("axis", "dims"),
    "frobenius_norm": ("dim",),
    **dict.fromkeys((f"reduce_{kind}" for kind in ("all", "any", "max", "mean", "min", "prod", "sum")), ("dim",)),
}
# Inputs whose first axis is a row of an image, whatever their number is.
OF_ONE_IMAGE = dict.fromkeys(("generate_proposals", "generate_proposals_v2"), frozenset({"Anchors", "Variances"}))
# Parameters go through these as they are; what they compute is for the reader of the model to see.
KEPT = frozenset({"batch_norm", "conv2d", "depthwise_conv2d"})


def export(
    program: Program,
    feeds: Sequence[str],
    fetches: Sequence[str],
    parameters: Mapping[str, Any],
    *,
    opset: int = DEFAULT_OPSET,
    several: bool = False,
) -> Exported:
    """Render what `fetches` need of a program; feeds, fetches and parameters keep their names.

    A feed with sequences takes one sequence at a time; with `several`, the rows of any number of them, whose lengths are an
    input NAME.lengths. Outputs with sequences have an output NAME.lengths then. Raises ProgramError for an opset outside of
    13 to 23 and for names that the program lacks.
    """
    if opset not in OPSETS:
        raise ProgramError(f"the opset must be {OPSETS[0]} to {OPSETS[-1]}, found {opset}")
    block = program.global_block()
    for name in (*feeds, *fetches):
        if name not in block.vars:
            raise ProgramError(f"the program has no variable {name!r} in block 0")
    _require_text(program)
    shared = Shared(opset)
    shared.taken.update(fetches)
    shared.taken.update(name for name in parameters)
    live = live_operators(block, set(fetches), set())
    exporter = Exporter(program, parameters, shared, read=_read(program, live) | frozenset(fetches), several=several)
    graph = Graph(shared)
    fed = list(dict.fromkeys(feeds))
    for name in fed:
        _feed(exporter, graph, block, name)
    exporter.block(graph, block, live)
    outputs = _outputs(exporter, graph, block, list(dict.fromkeys(fetches)))
    graph.outputs = outputs
    graph.prune()
    operators = sum(live[i] and op.type not in ("feed", "fetch") for i, op in enumerate(block.ops))
    if exporter.single:
        _one_at_a_time(exporter, graph, _of_one_image(block, live))
    counts = frozenset(exporter.counts)
    blockers, notes = tuple(exporter.blockers), tuple(exporter.notes)
    return Exported(graph, blockers, exporter.single, notes, operators, counts, exporter.lengths)


def _read(program: Program, live: Sequence[bool]) -> frozenset[str]:
    """The names that operators read, those of block 0 that do not count aside."""
    first, *others = program.blocks
    ops = [op for op, counts in zip(first.ops, live, strict=True) if counts]
    ops += [op for block in others for op in block.ops]
    return frozenset(name for op in ops for name in op.input_arg_names)


def _old_shape(graph: Graph, op: Operation) -> dict[str, Value]:
    """XShape: no numbers (of float32, whatever the input), in the shape of the input behind a size of 0."""
    if not op.exporter.reads(op.op.outputs.get("XShape", ())):
        return {}
    x = op["X"]
    return {"XShape": graph.full(graph.vector([0, *x.sizes()]), 0, np.float32)}


def _known_of(value: Value | Items, meta: TensorMeta | None) -> TensorMeta:
    if isinstance(value, Items) or value.shape is None:
        return meta or TensorMeta((), VarType.FP32)
    return TensorMeta(value.shape, _data_type(value.dtype), 0 if meta is None else meta.lod_level)


def _require_text(program: Program) -> None:
    """Names must be Unicode text: ONNX stores nothing else."""
    for var in program.list_vars():
        try:
            var.name.encode()
        except UnicodeEncodeError:
            raise ProgramError(
                f"the name {var.name!r} is not text; ONNX cannot store it: rename the variable"
            ) from None


def _feed(exporter: Exporter, graph: Graph, block: Block, name: str) -> None:
    var = block.vars[name]
    if var.type not in TENSOR_KINDS or var.type != VarType.LOD_TENSOR or var.dtype is None:
        exporter.blockers.append(Blocker(0, -1, "feed", name, "it is not fed with a tensor"))
        exporter.unknown.add(name)
        return
    shape: Shape | None = tuple(var.shape) if var.has_shape else None
    level = var.lod_level
    if level:
        shape = (-1, *shape[1:]) if shape else shape
        if not exporter.several:
            exporter.require_single()
    shared = graph.shared
    shared.taken.discard(name)
    value = graph.input(name, numpy_dtype(var.dtype), shape)
    exporter.values[name] = value.leveled(_fed_levels(exporter, graph, name, level))
    if shape is not None:
        exporter.metas[name] = TensorMeta(shape, VarType(var.dtype), level)


def _fed_levels(exporter: Exporter, graph: Graph, name: str, level: int) -> tuple[Value, ...]:
    """The lengths of a feed's sequences, as inputs; of the only outermost sequence nothing has to be said."""
    given = range(0 if exporter.several else 1, level)
    names = [f"{name}.lengths" if len(given) == 1 else f"{name}.lengths.{number}" for number in given]
    found = [graph.input(wanted, np.int64, (-1,)) for wanted in names]
    exporter.lengths |= {name: [value.name for value in found]} if found else {}
    return tuple(found) if exporter.several or not found else (found[0].dim_value(0), *found)


def _kept_lod(op: Operator, info: OpInfo) -> Sequence[tuple[str, str]]:
    """The slots whose sequences operators keep by what their attributes say: those that leave the rows alone."""
    axes = ROWS_KEPT.get(op.type)
    if axes is None:
        return ()
    given = next((op.attr(name) for name in axes if op.has_attr(name)), None)
    if given is None:
        given = info.attrs[axes[-1]].default
    touched = 0 in (given if isinstance(given, (list, tuple)) else [given])
    everything = op.has_attr("reduce_all") and op.attr("reduce_all")
    return () if touched or everything else [("X", info.outputs[0].name)]


def _outputs(exporter: Exporter, graph: Graph, block: Block, fetches: Sequence[str]) -> list[Value]:
    """The values of the fetches, under their names."""
    found, given = [], set()
    inside = {output for node in graph.nodes for output in node.outputs}
    for name in fetches:
        if name in exporter.unknown:
            continue
        graph.prefix = _prefix(name)
        try:
            value = exporter.find(graph, name)
        except Blocked as error:
            exporter.blockers.append(Blocker(0, len(block.ops), "fetch", name, str(error)))
            continue
        if isinstance(value, Items):
            exporter.blockers.append(Blocker(0, len(block.ops), "fetch", name, "it is an array of tensors"))
            continue
        if value.counts:
            exporter.counts.add(name)
        if name in (value.name, value.wanted):  # an input or a parameter that is fetched
            found.append(replace(value, name=graph.reference(value)))
            continue
        if value.array is not None or value.name in given or value.name not in inside:
            plain = value if value.array is None else graph.constant(value.array)
            value = graph.same("Identity", plain).leveled(value.levels)
        given.add(value.name)
        found.append(graph.rename(value, name))
    return [*found, *_lengths_of_outputs(exporter, graph, found, list(fetches))]


def _lengths_of_outputs(
    exporter: Exporter, graph: Graph, outputs: Sequence[Value], fetches: Sequence[str]
) -> list[Value]:
    """How long the sequences of the outputs are; of an only outermost one nothing has to be said."""
    found = []
    for value, name in zip(outputs, fetches, strict=False):
        levels = value.levels if exporter.several or len(value.levels) == 1 else value.levels[1:]
        for number, level in enumerate(levels):
            wanted = f"{name}.lengths" if len(levels) == 1 else f"{name}.lengths.{number}"
            copy = graph.same("Identity", level if level.array is None else graph.constant(level.array))
            found.append(graph.rename(copy, graph.name(wanted)))
    return found


def _of_one_image(block: Block, live: Sequence[bool]) -> set[str]:
    """The variables that operators read only as inputs without a batch."""
    read: dict[bool, set[str]] = {True: set(), False: set()}
    for op in (op for op, needed in zip(block.ops, live, strict=True) if needed):
        for slot, names in op.inputs.items():
            read[slot in OF_ONE_IMAGE.get(op.type, ())].update(names)
    return read[True] - read[False]


def _one_at_a_time(exporter: Exporter, graph: Graph, without_batch: Collection[str]) -> None:
    """What is not a sequence has a batch of one then; nobody knows whether a fixed size is one."""
    for index, value in enumerate(graph.inputs):
        meta = exporter.metas.get(value.name)
        if meta is None or meta.lod_level or not value.shape or value.name in without_batch:
            continue
        if value.shape[0] < 0:
            graph.inputs[index] = value.shaped((1, *value.shape[1:]))
        elif value.shape[0] > 1:
            rows = (
                f"it has {value.shape[0]} rows in every run, which may belong to as many sequences; the model takes one"
            )
            exporter.blockers.append(Blocker(0, -1, "feed", value.name, f"{rows} ({SEVERAL} takes them together)"))


def _fitted(value: Value, meta: TensorMeta) -> Value:
    dtype = numpy_dtype(meta.dtype)
    if (dtype.kind == "f") == (value.dtype.kind == "f"):  # else the declaration is at fault, which some kernels ignore
        value = value.cast(dtype)
    if value.shape is None:
        return value.shaped(meta.shape)
    if len(value.shape) != len(meta.shape):
        if min((*meta.shape, *value.shape), default=0) >= 0:
            return value.reshape(list(meta.shape))
        return value
    return value.shaped([max(a, b) if min(a, b) < 0 else a for a, b in zip(value.shape, meta.shape, strict=True)])


def _dimensions(value: Value, wanted: tuple[int, ...] | None) -> Any:
    if value.shape is None:
        return None
    axes = range(len(value.shape)) if wanted is None else wanted
    if any(axis >= len(value.shape) or value.shape[axis] < 0 for axis in axes):
        return None
    shape = tuple(max(size, 1) for size in value.shape) if wanted is not None else value.shape
    return np.broadcast_to(np.zeros((), value.dtype), shape)


def _called(render: Callable[[], T]) -> T:
    """What a rendering gives; attributes that it cannot work with raise Blocked like everything else."""
    try:
        return render()
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        if isinstance(error, FluidError):
            raise
        raise Blocked(f"its attributes or shapes are not as expected: {error}") from error


def _data_type(dtype: Any) -> VarType:
    try:
        return var_type_of(dtype)
    except ArgumentTypeError as error:
        raise Blocked(str(error)) from error


def _prefix(name: str) -> str:
    return name if len(name) <= 64 else name[:64]


__all__ = ["Blocker", "Exported", "Exporter", "export"]
