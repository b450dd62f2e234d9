"""Operators of a block as instructions of src/loops.c. What they read and write are slots, numbered here."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import field

from fluidtool.ir import Operator
from fluidtool.ir.operator import EMPTY
from fluidtool.records import dataclass
from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.kernels.sequences import HOW

WORDS, MOST_DIMS, MOST_SUMMED = 24, 4, 20  # as in src/loop_values.c
NUMBERS = (
    "read_item", "write_item", "first_rows", "multiply", "multiply_back", "add_product", "expand", "expand_back",
    "combine_two", "combine_back", "apply", "apply_back", "normalize_sequences", "normalize_sequences_back",
    "reshape_value", "reshape_back", "pool_value", "pool_back", "add_values", "scale_value", "assign_value", "hand_on",
    "gru_value", "gru_back", "increment_value", "compare", "normalize_rows", "normalize_rows_back", "largest", "look_up",
    "first_rows_back", "add_first_rows", "keep_value", "carry_value", "hollow_value",
)  # fmt: skip
"""The instructions by number (`loop_instructions`)."""
COMBINED = {"elementwise_add": 0, "elementwise_sub": 1, "elementwise_mul": 2}
COMPARED = {"less_than": 0, "less_equal": 1, "greater_than": 2, "greater_equal": 3}
APPLIED = {
    "tanh": abi.ActivationKind.TANH,
    "sigmoid": abi.ActivationKind.SIGMOID,
    "relu": abi.ActivationKind.RELU,
}
FULL_SIGMOID = 64  # of src/recurrent.c
CELL = (abi.ActivationKind.NONE, FULL_SIGMOID, abi.ActivationKind.TANH, abi.ActivationKind.RELU)


class NoInstructionError(Exception):
    """An operator that there are no instructions for."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A word of an instruction that is an address, known when the loop runs: of what is made of a variable outside."""

    row: int
    word: int
    kind: str  # 'lengths', 'packed', 'transposed', 'gates', 'candidate', their 'gates transposed', …; 'total'
    name: str


@dataclass(slots=True)
class Instructions:
    """The instructions of a block. outer: names whose values go from step to step; totals: sums over all steps, by name.

    matrices: variables outside that have to stay as they are.
    """

    slots: dict[str, int] = field(default_factory=dict)
    rows: list[list[int]] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)
    totals: dict[str, str] = field(default_factory=dict)
    matrices: set[str] = field(default_factory=set)
    kept: Collection[str] = ()
    without: Collection[str] = ()
    gathered: Collection[str] = ()

    def slot(self, name: str) -> int:
        """The slot of a variable; -1 for none."""
        if not name or name == EMPTY or name in self.without:
            return -1
        return self.slots.setdefault(name, len(self.slots))

    def add(self, name: str, *words: int, made: Sequence[str] = ()) -> int:
        """Add an instruction; `made`: its outputs, in the order of their memory. Returns its number."""
        keep = sum(1 << place for place, each in enumerate(made) if each in self.kept)
        row = [NUMBERS.index(name), keep, *words]
        self.rows.append(row + [0] * (WORDS - len(row)))
        return len(self.rows) - 1

    def patch(self, row: int, word: int, kind: str, name: str) -> None:
        """Let a word be an address of something made of a variable outside."""
        self.patches.append(Patch(row, word, kind, name))
        self.matrices.add(name)

    def read(self, op: Operator, slot: str, optional: bool = False) -> int:
        """The slot of the only variable of an input."""
        return self._only(op.input(slot), slot, optional)

    def written(self, op: Operator, slot: str, optional: bool = False) -> int:
        """The slot of the only variable of an output; of one that nobody names, if it is optional, -1."""
        return self._only(op.output(slot), slot, optional)

    def _only(self, names: Sequence[str], slot: str, optional: bool) -> int:
        found = self.slot(names[0]) if len(names) == 1 else -1
        if found < 0 and not optional:
            raise NoInstructionError(slot)
        return found


Builder = Callable[[Instructions, Operator], None]
BUILDERS: dict[str, Builder] = {}


def builds(*types: str) -> Callable[[Builder], Builder]:
    """Register what makes instructions of operators of some types."""

    def register(builder: Builder) -> Builder:
        BUILDERS.update(dict.fromkeys(types, builder))
        return builder

    return register


def require(condition: bool) -> None:
    """Refuse an operator."""
    if not condition:
        raise NoInstructionError


def single(op: Operator, slot: str) -> str:
    """The only variable of an input or an output."""
    names = op.inputs.get(slot) or op.outputs.get(slot) or []
    require(len(names) == 1 and names[0] != EMPTY)
    return names[0]


def bits(code: str, number: float) -> int:
    """The bits of a number as a word."""
    return int.from_bytes(struct.pack(code, number).ljust(8, b"\0"), "little", signed=True)


# ---------------------------------------------------------------- arrays, numbers
@builds("read_from_array")
def _(to: Instructions, op: Operator) -> None:
    written = to.read(op, "X_W", optional=True)
    is_gradient = bool(op.input("X_W")) or "@GRAD" in single(op, "X")
    require(is_gradient or written < 0)
    out = single(op, "Out")
    to.add("read_item", to.read(op, "X"), to.read(op, "I"), to.slot(out), written, int(is_gradient), made=[out])


@builds("write_to_array")
def _(to: Instructions, op: Operator) -> None:
    words = to.read(op, "X"), to.read(op, "I"), to.written(op, "Out"), int(single(op, "Out") in to.gathered)
    to.add("write_item", *words)


@builds("shrink_rnn_memory")
def _(to: Instructions, op: Operator) -> None:
    row = to.add("first_rows", to.read(op, "X"), to.read(op, "I"), to.written(op, "Out"))
    to.patch(row, 5, "lengths", single(op, "RankTable"))


@builds("shrink_rnn_memory_grad")
def _(to: Instructions, op: Operator) -> None:
    name = single(op, "X@GRAD")
    if name in to.without:
        row = to.add("add_first_rows", to.read(op, "Out@GRAD"))
        to.patch(row, 3, "total", name)
        to.totals[name] = single(op, "X")
        return
    grad = to.read(op, "Out@GRAD", optional=True)
    to.add("first_rows_back", to.read(op, "X"), grad, to.slot(name), made=[name])


@builds("increment")
def _(to: Instructions, op: Operator) -> None:
    step = bits("<d", float(op.get_attr("step", 1.0)))
    to.add("increment_value", to.read(op, "X"), to.written(op, "Out"), step, made=op.output("Out"))


@builds(*COMPARED)
def _(to: Instructions, op: Operator) -> None:
    require(int(op.get_attr("axis", -1)) == -1)
    number = COMPARED[op.type]
    to.add("compare", to.read(op, "X"), to.read(op, "Y"), to.written(op, "Out"), number, made=op.output("Out"))


@builds("assign")
def _(to: Instructions, op: Operator) -> None:
    to.add("assign_value", to.read(op, "X"), to.written(op, "Out"))


@builds("scale")
def _(to: Instructions, op: Operator) -> None:
    require(not op.input("ScaleTensor"))
    factor, addend = float(op.get_attr("scale", 1.0)), float(op.get_attr("bias", 0.0))
    if not op.get_attr("bias_after_scale", True):
        addend *= factor
    words = bits("<f", factor), bits("<f", addend)
    to.add("scale_value", to.read(op, "X"), to.written(op, "Out"), *words, made=op.output("Out"))


@builds("sum")
def _(to: Instructions, op: Operator) -> None:
    names = op.input("X")
    require(0 < len(names) <= MOST_SUMMED and EMPTY not in names)
    to.add("add_values", to.written(op, "Out"), len(names), *map(to.slot, names), made=op.output("Out"))


# ---------------------------------------------------------------- between numbers
@builds(*COMBINED)
def _(to: Instructions, op: Operator) -> None:
    words = COMBINED[op.type], int(op.get_attr("axis", -1))
    to.add("combine_two", to.read(op, "X"), to.read(op, "Y"), to.written(op, "Out"), *words, made=op.output("Out"))


@builds(*(f"{type}_grad" for type in COMBINED))
def _(to: Instructions, op: Operator) -> None:
    grads = [(op.output(slot) or [EMPTY])[0] for slot in ("X@GRAD", "Y@GRAD")]
    require(not any(name in to.without for name in grads))
    words = int(op.get_attr("axis", -1)), COMBINED[op.type.removesuffix("_grad")]
    read = (to.read(op, slot) for slot in ("X", "Y", "Out@GRAD"))
    to.add("combine_back", *read, *map(to.slot, grads), *words, made=grads)


@builds(*APPLIED)
def _(to: Instructions, op: Operator) -> None:
    to.add("apply", to.read(op, "X"), to.written(op, "Out"), APPLIED[op.type], made=op.output("Out"))


@builds(*(f"{type}_grad" for type in APPLIED))
def _(to: Instructions, op: Operator) -> None:
    kind, out = APPLIED[op.type.removesuffix("_grad")], single(op, "X@GRAD")
    to.add("apply_back", to.read(op, "Out"), to.read(op, "Out@GRAD"), to.slot(out), kind, made=[out])


@builds("softmax")
def _(to: Instructions, op: Operator) -> None:
    require(int(op.get_attr("axis", -1)) == -1)
    to.add("normalize_rows", to.read(op, "X"), to.written(op, "Out"), made=op.output("Out"))


@builds("softmax_grad")
def _(to: Instructions, op: Operator) -> None:
    require(int(op.get_attr("axis", -1)) == -1)
    out = single(op, "X@GRAD")
    to.add("normalize_rows_back", to.read(op, "Out"), to.read(op, "Out@GRAD"), to.slot(out), made=[out])


@builds("top_k")
def _(to: Instructions, op: Operator) -> None:
    require(int(op.get_attr("k", 1)) == 1 and not op.input("K"))
    made = [single(op, "Out"), single(op, "Indices")]
    to.add("largest", to.read(op, "X"), *map(to.slot, made), made=made)


@builds("reshape2")
def _(to: Instructions, op: Operator) -> None:
    require(not op.input("Shape") and not op.input("ShapeTensor"))
    shape = [int(size) for size in op.get_attr("shape", [])]
    require(0 < len(shape) <= MOST_DIMS and shape.count(-1) <= 1 and min(shape) >= -1)
    to.add("reshape_value", to.read(op, "X"), to.written(op, "Out"), to.written(op, "XShape", True), len(shape), *shape)


@builds("reshape2_grad")
def _(to: Instructions, op: Operator) -> None:
    to.add("reshape_back", to.read(op, "XShape"), to.read(op, "Out@GRAD"), to.written(op, "X@GRAD"))


# ---------------------------------------------------------------- sequences
@builds("sequence_expand")
def _(to: Instructions, op: Operator) -> None:
    require(int(op.get_attr("ref_level", -1)) in (-1, 0))
    to.add("expand", to.read(op, "X"), to.read(op, "Y"), to.written(op, "Out"), made=op.output("Out"))


@builds("sequence_expand_grad")
def _(to: Instructions, op: Operator) -> None:
    require(int(op.get_attr("ref_level", -1)) in (-1, 0))
    out = single(op, "X@GRAD")
    to.add("expand_back", to.read(op, "X"), to.read(op, "Y"), to.read(op, "Out@GRAD"), to.slot(out), made=[out])


@builds("sequence_softmax")
def _(to: Instructions, op: Operator) -> None:
    to.add("normalize_sequences", to.read(op, "X"), to.written(op, "Out"), made=op.output("Out"))


@builds("sequence_softmax_grad")
def _(to: Instructions, op: Operator) -> None:
    out = single(op, "X@GRAD")
    read = (to.read(op, slot) for slot in ("X", "Out", "Out@GRAD"))
    to.add("normalize_sequences_back", *read, to.slot(out), made=[out])


@builds("sequence_pool")
def _(to: Instructions, op: Operator) -> None:
    how = HOW.get(op.get_attr("pooltype", "AVERAGE"))
    require(how is not None and float(op.get_attr("pad_value", 0.0)) == 0)
    assert how is not None
    to.add("pool_value", to.read(op, "X"), to.written(op, "Out"), how, made=op.output("Out"))


@builds("sequence_pool_grad")
def _(to: Instructions, op: Operator) -> None:
    how = HOW.get(op.get_attr("pooltype", "AVERAGE"), -1)
    require(0 <= how <= HOW["SQRT"])
    out = single(op, "X@GRAD")
    to.add("pool_back", to.read(op, "X"), to.read(op, "Out@GRAD"), to.slot(out), how, made=[out])


@builds("lookup_table")
def _(to: Instructions, op: Operator) -> None:
    require(not op.get_attr("is_distributed", False) and not op.get_attr("remote_prefetch", False))
    words = to.read(op, "W"), to.read(op, "Ids"), to.written(op, "Out"), int(op.get_attr("padding_idx", -1))
    to.add("look_up", *words, made=op.output("Out"))


# ---------------------------------------------------------------- products
def _require_floats(op: Operator) -> None:
    """mul of numbers of 8 bits has more attributes, whose values are these otherwise."""
    plain = op.get_attr("scale_x", 1.0) == 1 and op.get_attr("scale_out", 1.0) == 1
    require(plain and int(op.get_attr("y_num_col_dims", 1)) == 1)


@builds("mul")
def _(to: Instructions, op: Operator) -> None:
    _require_floats(op)
    columns, matrix, out = int(op.get_attr("x_num_col_dims", 1)), single(op, "Y"), single(op, "Out")
    require(0 < columns < MOST_DIMS)
    row = to.add("multiply", to.read(op, "X"), to.slot(matrix), 0, to.slot(out), columns, made=[out])
    to.patch(row, 4, "packed", matrix)


@builds("mul_grad")
def _(to: Instructions, op: Operator) -> None:
    _require_floats(op)
    matrix, grad = single(op, "Y"), to.read(op, "Out@GRAD")
    for name in op.output("X@GRAD"):
        require(name not in to.without)
        if name != EMPTY:
            row = to.add("multiply_back", grad, to.read(op, "X"), to.slot(matrix), 0, to.slot(name), made=[name])
            to.patch(row, 5, "transposed", matrix)
    for name in op.output("Y@GRAD"):
        if name == EMPTY:
            continue
        require(name in to.without)
        if has_one_column(op, matrix):
            row = to.add("add_product", to.read(op, "X"), grad)
            to.patch(row, 4, "total", name)
            to.totals[name] = matrix


def has_one_column(op: Operator, matrix: str) -> bool:
    """Whether the program declares a matrix of one column."""
    declared = op.block.find_var_recursive(matrix)
    return declared is not None and declared.has_shape and len(declared.shape) == 2 and declared.shape[1] == 1


def _cell(op: Operator) -> tuple[int, int, int]:
    """The activations of the gates and of the candidate, and whether in origin mode."""
    numbers = int(op.get_attr("gate_activation", 1)), int(op.get_attr("activation", 2))
    require(all(0 <= number < len(CELL) for number in numbers))
    return CELL[numbers[0]], CELL[numbers[1]], int(bool(op.get_attr("origin_mode", False)))


@builds("gru_unit")
def _(to: Instructions, op: Operator) -> None:
    matrix, made = single(op, "Weight"), [single(op, slot) for slot in ("Gate", "ResetHiddenPrev", "Hidden")]
    read = to.read(op, "Input"), to.read(op, "HiddenPrev"), to.slot(matrix), to.read(op, "Bias", optional=True)
    row = to.add("gru_value", *read, 0, 0, *map(to.slot, made), *_cell(op), made=made)
    to.patch(row, 6, "gates", matrix)
    to.patch(row, 7, "candidate", matrix)


@builds("gru_unit_grad")
def _(to: Instructions, op: Operator) -> None:
    require(
        all(name in to.without or name == EMPTY for slot in ("Weight", "Bias") for name in op.output(f"{slot}@GRAD"))
    )
    matrix, before = single(op, "Weight"), (op.output("HiddenPrev@GRAD") or [EMPTY])[0]
    made = [single(op, "Input@GRAD"), before]
    read = to.read(op, "HiddenPrev"), to.slot(matrix), to.read(op, "Gate"), to.read(op, "Hidden@GRAD")
    row = to.add("gru_back", *read, 0, 0, *map(to.slot, made), *_cell(op), made=made)
    to.patch(row, 6, "gates transposed", matrix)
    to.patch(row, 7, "candidate transposed", matrix)


def instructions_of(
    ops: Sequence[Operator], kept: Collection[str], without: Collection[str] = (), gathered: Collection[str] = ()
) -> Instructions:
    """The instructions of operators, in order; raises NoInstructionError for one that there are none for.

    kept: names whose values stay after their step. without: names of results that are wanted as sums over all steps only.
    gathered: arrays of which each step writes items of its own.
    """
    found = Instructions(kept=kept, without=without, gathered=gathered)
    for op in ops:
        builder = BUILDERS.get(op.type)
        require(builder is not None and not op.sub_blocks() and not op.variable_attrs())
        assert builder is not None
        builder(found, op)
    return found
