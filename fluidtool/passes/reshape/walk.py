"""`reshape_inputs(program, shapes)`: new shapes of inputs, and the operators that contradict them.

Every operator is inferred twice, with the old sizes and with the new ones. One that only the old sizes fit contains one of
them, or reads a constant that does. A repair is kept if it means the same for the old sizes and fits the new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from fluidtool.errors import FluidError
from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.callstack import written_in
from fluidtool.ops.inference import declared_meta, infer_operator, infer_program
from fluidtool.ops.registry import find_op
from fluidtool.ops.schema import TensorMeta
from fluidtool.passes.reshape.axes import Axis, Baked, Shape, changed_axes, tried_shape
from fluidtool.passes.reshape.editing import apply
from fluidtool.passes.reshape.repairs import SIZES, Case, Edit, edits, has_old_size, silently_baked
from fluidtool.records import dataclass

Metas = dict[tuple[int, str], TensorMeta]
DEPTH = 64  # operators between a constant and the operator that it does not fit


@dataclass(frozen=True, slots=True)
class Reshaped:
    """What contains an old size, and the operators whose outputs cannot be inferred (block, operator, type)."""

    baked: tuple[Baked, ...]
    unknown: tuple[tuple[int, int, str], ...]


def reshape_inputs(program: Program, shapes: Mapping[str, Shape]) -> Reshaped:
    """Give inputs new shapes, repair operators that contain old sizes, and declare what follows; changes `program`.

    shapes: by input; the rank is that of the declaration, -1 is a size known only at run time.
    """
    walk = _Walk(program, changed_axes(program, shapes))
    walk.block(program.global_block())
    _declare(program, shapes, walk)
    return Reshaped(tuple(walk.found.values()), tuple(walk.unknown))


@dataclass(slots=True)
class _Walk:
    """One pass over a program: what is known of every name with the old and with the new sizes."""

    program: Program
    axes: tuple[Axis, ...]
    old: Metas = field(init=False)
    new: Metas = field(init=False)
    places: dict[int, tuple[int, int]] = field(init=False)
    types: dict[int, str] = field(init=False)
    writers: dict[str, Operator] = field(default_factory=dict)
    relaxed: dict[tuple[int, str], Shape] = field(default_factory=dict)
    found: dict[tuple[int, int], Baked] = field(default_factory=dict)
    unknown: list[tuple[int, int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.old = {
            (block.idx, var.name): meta
            for block in self.program.blocks
            for var in block.vars.values()
            if (meta := declared_meta(var)) is not None
        }
        self.new = dict(self.old)
        for name in {axis.name for axis in self.axes}:
            meta = self.old[0, name]
            self.new[0, name] = meta.with_shape(tried_shape(meta.shape, self.axes, name))
        self.places = {id(op): (b.idx, at) for b in self.program.blocks for at, op in enumerate(b.ops)}
        self.types = {id(op): op.type for b in self.program.blocks for op in b.ops}

    # -- what is known
    def find(self, metas: Metas, block: Block, name: str) -> TensorMeta | None:
        for around in block.ancestry():
            if (around.idx, name) in metas:
                return metas[around.idx, name]
        return None

    def infer(self, metas: Metas, op: Operator) -> dict[str, TensorMeta]:
        return infer_operator(op, lambda name: self.find(metas, op.block, name))

    def store(self, metas: Metas, op: Operator, results: Mapping[str, TensorMeta]) -> None:
        for name, meta in results.items():
            owner = next((around for around in op.block.ancestry() if name in around.vars), op.block)
            metas[owner.idx, name] = meta

    def changed(self, block: Block, name: str) -> bool:
        old, new = self.find(self.old, block, name), self.find(self.new, block, name)
        return old is not None and new is not None and old.shape != new.shape

    def case(self, op: Operator) -> Case:
        slots = [op.input(slot) for slot in ("X", "Input") if op.input(slot)]
        outs = op.output("Out")
        old, new = ((self.find(metas, op.block, slots[0][0]) if slots else None) for metas in (self.old, self.new))
        out = self.find(self.old, op.block, outs[0]) if outs else None
        return Case(op, old, new, out, self.axes, self._sources())

    def _sources(self) -> list[Axis]:
        """Axes of inputs that keep their value and whose first size counts rows, not sequences."""
        variables = self.program.global_block().vars
        steady = [axis for axis in self.axes if self.writers.get(axis.name) is None]
        return [axis for axis in steady if not (axis.index == 0 and variables[axis.name].lod_level)]

    # -- the walk
    def block(self, block: Block) -> None:
        for op in list(block.ops):
            for index in op.sub_blocks():
                if index > block.idx:
                    self.block(self.program.block(index))
            if op.type not in ("feed", "fetch"):
                self.operator(op)
                self.writers.update(dict.fromkeys(op.output_arg_names, op))

    def operator(self, op: Operator) -> None:
        if find_op(op.type) is None:
            self.open_outputs(op)
            return
        try:
            before = self.infer(self.old, op)
        except FluidError:  # it does not fit as it is; `check` tells why
            self.open_outputs(op)
            return
        self.store(self.old, op, before)
        fault = self.fault(op)
        if fault:
            self.repair(op, before, fault)
        else:
            after = self.infer(self.new, op)
            self.store(self.new, op, after)
            if not after and not set(op.output_arg_names) <= set(self.writers):  # a block's operators wrote the others
                self.open_outputs(op)

    def fault(self, op: Operator) -> str:
        """Why an operator cannot stay as it is, or ''."""
        try:
            self.infer(self.new, op)
        except FluidError as error:
            return str(error).removeprefix(f"operator {op.type}: ")
        if silently_baked(self.case(op)):
            return "contains the old size, and the new one would go to another axis or be cut off"
        stale = self.stale_input(op)
        return f"{stale} keeps the old size, which other inputs of {op.type} no longer have" if stale else ""

    def stale_input(self, op: Operator) -> str:
        """An input whose rows are constant where those of another have changed, or ''."""
        names = [name for name in op.input_arg_names if self.find(self.old, op.block, name) is not None]
        rows = {
            old.shape[0]
            for name in names
            if (old := self.find(self.old, op.block, name)) and old.shape and self.changed(op.block, name)
        } & {axis.old for axis in self.axes if axis.index == 0 and axis.old > 1}
        for name in names:
            meta = self.find(self.old, op.block, name)
            stale = meta and meta.shape and meta.shape[0] in rows and not self.changed(op.block, name)
            if stale and self.constants(op, [name]):
                return name
        return ""

    def constants(self, op: Operator, names: Sequence[str]) -> list[Operator]:
        """The operators that unchanged inputs come from and that contain an old size, in order."""
        found: dict[int, Operator] = {}
        seen: set[int] = set()
        wanted = [name for name in names if not self.changed(op.block, name)]
        for _ in range(DEPTH):
            writers = [self.writers[name] for name in wanted if name in self.writers]
            writers = [each for each in writers if id(each) not in seen]
            seen |= {id(each) for each in writers}
            found |= {id(each): each for each in writers if has_old_size(self.case(each))}
            wanted = [name for each in writers for name in each.input_arg_names]
        return list(reversed(found.values()))

    # -- repairs
    def repair(self, op: Operator, before: Mapping[str, TensorMeta], fault: str) -> None:
        edit = self.own_repair(op, before)
        if edit is not None:
            self.learn(op, edit)
            self.store(self.new, op, self.infer(self.new, op))
            return self.report(op, fault, edit[1].text, edit[0])
        constants = self.constants(op, op.input_arg_names)
        repaired = self.repair_constants(op, constants)
        if repaired:
            for each, value, text in repaired:
                self.report(each, f"does not fit operator {op.type}: {fault}", text, value)
            self.store(self.new, op, self.infer(self.new, op))
            return None
        for blamed in constants:
            self.report(blamed, f"does not fit operator {op.type}: {fault}", "", self.case(blamed).sizes)
        if not constants:
            self.report(op, self.with_hint(op, fault), "", self.case(op).sizes)
        return self.store(self.new, op, {name: self.guessed(meta) for name, meta in before.items()})

    def own_repair(self, op: Operator, before: Mapping[str, TensorMeta]) -> tuple[list[int], Edit] | None:
        """The first edit of an operator that keeps its meaning and fits; it is applied."""
        case = self.case(op)
        sizes = case.sizes
        for edit in list(edits(case)):
            undo = apply(op, edit, case.out)
            if (edit.fixed or self.keeps(op, before)) and not self.fault(op):
                return sizes, edit
            undo()
        return None

    def keeps(self, op: Operator, before: Mapping[str, TensorMeta]) -> bool:
        """Whether the old sizes still give the old shapes."""
        try:
            after = self.infer(self.old, op)
        except FluidError:
            return False
        return all(_agree(after[name], meta) for name, meta in before.items() if name in after and "XShape" not in name)

    def repair_constants(self, op: Operator, constants: Sequence[Operator]) -> list[tuple[Operator, list[int], str]]:
        """Repair the constants that an operator reads, if it fits then: (operator, value before, repair)."""
        undone: list[Callable[[], None]] = []
        done: list[tuple[Operator, list[int], str]] = []
        for each in constants:
            case = self.case(each)
            value = case.sizes
            for edit in list(edits(case)):
                undo = apply(each, edit, case.out)
                if self.refreshed(op):
                    undone.append(undo)
                    done.append((each, value, edit.text))
                    break
                undo()
        if done and not self.fault(op):
            return done
        for undo in reversed(undone):
            undo()
        self.refreshed(op)
        return []

    def refreshed(self, op: Operator) -> bool:
        """Infer again what an operator's inputs come from; False if something there does not fit."""
        chain: list[Operator] = []
        wanted = list(op.input_arg_names)
        while wanted and len(chain) < DEPTH:
            writer = self.writers.get(wanted.pop())
            if writer is not None and writer not in chain:
                chain.append(writer)
                wanted += writer.input_arg_names
        try:
            for each in sorted(chain, key=lambda item: self.places.get(id(item), (0, 0))):
                for helper in self.helpers(each):
                    self.store(self.new, helper, self.infer(self.new, helper))
                self.store(self.new, each, self.infer(self.new, each))
        except FluidError:
            return False
        return True

    def helpers(self, op: Operator) -> list[Operator]:
        """The operator that an edit has put before another one."""
        names = op.input("target_tensor")
        known = (each for each in op.block.ops if id(each) not in self.places)
        return [each for each in known if set(each.output_arg_names) & set(names)] if names else []

    def learn(self, op: Operator, edit: tuple[list[int], Edit]) -> None:
        """A batch that only a reshape knew is an old size from here on."""
        attr = SIZES[op.type][0]
        now: Sequence[int] = edit[1].attrs.get(attr, ([], None))[0]
        sizes = [before for before, after in zip(edit[0], now, strict=False) if before > 0 and after <= 0]
        unknown = [axis for axis in self.axes if axis.index == 0 and axis.old < 0]
        self.axes += tuple(replace(axis, old=size) for axis in unknown for size in sizes[:1])

    # -- what is said
    def report(self, op: Operator, reason: str, repair: str, value: Sequence[int]) -> None:
        block, at = self.places.get(id(op), (op.block.idx, -1))
        kind = self.types[id(op)]
        attr = SIZES.get(kind, ("",))[0] if value else ""
        output = next(iter(op.output_arg_names), "")
        one = Baked(block, at, kind, output, attr, str(list(value)) if value else "", reason, repair, written_in(op))
        self.found.setdefault((block, at), one)

    def with_hint(self, op: Operator, fault: str) -> str:
        """The fault, and the input that should change, too."""
        variables = self.program.global_block().vars
        named = {axis.name for axis in self.axes}
        others = [
            name
            for name in self.origins(op)
            if name in variables
            and not variables[name].persistable
            and name not in self.writers
            and name not in named
            and not self.changed(op.block, name)
        ]
        return f"{fault}; name the shape of the input {others[0]}, too" if others else fault

    def origins(self, op: Operator) -> list[str]:
        """The names that the unchanged inputs of an operator are computed from, the nearest first."""
        wanted = [name for name in op.input_arg_names if not self.changed(op.block, name)]
        names = dict.fromkeys(wanted)
        for _ in range(DEPTH):
            read = [each for name in wanted if name in self.writers for each in self.writers[name].input_arg_names]
            wanted = [name for name in dict.fromkeys(read) if name not in names]
            names |= dict.fromkeys(wanted)
        return list(names)

    def open_outputs(self, op: Operator) -> None:
        """Sizes of what cannot be inferred that may follow the inputs are open."""
        self.unknown.append((*self.places.get(id(op), (op.block.idx, -1)), op.type))
        if not any(self.changed(op.block, name) for name in op.input_arg_names):
            return
        for name in op.output_arg_names:
            meta = self.find(self.old, op.block, name)
            if meta is not None:
                opened = meta.with_shape(tuple(-1 if self.may_follow(size) else size for size in meta.shape))
                self.store(self.new, op, {name: opened})
                owner = next((each for each in op.block.ancestry() if name in each.vars), op.block)
                self.relaxed[owner.idx, name] = opened.shape

    def may_follow(self, size: int) -> bool:
        return any(axis.old == size for axis in self.axes)

    def guessed(self, meta: TensorMeta) -> TensorMeta:
        """What an operator without a repair would give, if it followed its inputs."""
        tried = {axis.old: axis.tried for axis in reversed(self.axes)}
        return meta.with_shape(tuple(tried.get(size, size) for size in meta.shape))


def _agree(after: TensorMeta, before: TensorMeta) -> bool:
    pairs = zip(after.shape, before.shape, strict=False)
    return after.rank == before.rank and all(a == b or -1 in (a, b) for a, b in pairs)


def _declare(program: Program, shapes: Mapping[str, Shape], walk: _Walk) -> None:
    """Write the new shapes of the inputs and of all that follows from them."""
    before = infer_program(program)
    variables = program.global_block().vars
    for (index, name), shape in walk.relaxed.items():
        program.block(index).vars[name].shape = shape
    for name, shape in shapes.items():
        variables[name].shape = shape
    after = infer_program(program)
    for (index, name), meta in after.metas.items():
        var = program.block(index).vars.get(name)
        old = before.metas.get((index, name))
        if var is not None and not var.persistable and var.has_shape and (old is None or old.shape != meta.shape):
            var.shape = meta.shape
