"""The verifier: what is wrong with a program, or with a model and its parameters, found without running it.

A finding has a stable code; docs/check.md explains each. Nothing is reported that a program saved by Paddle may
rightly have: whatever is read first in programs without feed operators, variables that several operators write, sizes
that only a run can tell, what the owner of a sub-block puts into it.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Collection, Iterator

from fluidtool.errors import ParameterFileError, UnsupportedOperatorError
from fluidtool.io.layout import ModelFiles
from fluidtool.io.parameters import persistables
from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.operator import EMPTY
from fluidtool.ops.gradient import GRAD
from fluidtool.ops.registry import find_op, get_op, traits_of
from fluidtool.ops.validation import Broken, schema_faults
from fluidtool.passes.findings import Finding, at
from fluidtool.passes.security import not_allowed
from fluidtool.passes.verify_shapes import Place, Shapes
from fluidtool.passes.verify_weights import faulty_values, unused_parameters
from fluidtool.proto.enums import AttrType, VarType
from fluidtool.runtime.policy import NOTHING_ALLOWED, Policy

FEED_FETCH = frozenset({"feed", "fetch"})
HOLDERS = frozenset({VarType.FEED_MINIBATCH, VarType.FETCH_LIST, VarType.READER, VarType.STEP_SCOPES, VarType.RAW})
Defined = ChainMap[str, None]  # the names that hold a value, those of each block around in a part of their own
INJECTED = ("ex_states", "states")  # attributes of `recurrent` that name what it puts into its steps


def verify_model(files: ModelFiles, policy: Policy = NOTHING_ALLOWED, *, parameters: bool = True) -> list[Finding]:
    """Everything that `verify` finds in the program, what a run under this policy would refuse to do, and, unless
    `parameters` is False, what is wrong with the parameters, whose values are read.
    """
    refused = (found.finding() for found in not_allowed(files.program, policy))
    found = in_order([*verify(files.program), *refused])
    return [*found, *_parameters(files), *unused_parameters(files.program)] if parameters else found


def verify(program: Program) -> list[Finding]:
    """The faults of a program: operators, data flow, feeds and fetches, shapes; in the order of the operators."""
    malformed = list(_operators(program))
    known = frozenset((finding.block, finding.operator) for finding in malformed)
    shapes = Shapes(program, known).findings()
    found = [*malformed, *_Flow(program).findings(), *_columns(program, known), *shapes]
    return in_order(found)


def in_order(findings: list[Finding]) -> list[Finding]:
    """Findings by the positions of their operators."""
    return sorted(findings, key=lambda item: (item.block or 0, -1 if item.operator is None else item.operator))


# ---------------------------------------------------------------- operators
def _operators(program: Program) -> Iterator[Finding]:
    """FC401 to FC406: operators that do not run, or are not what their schemas say."""
    for block in program.blocks:
        for position, op in enumerate(block.ops):
            try:
                info = get_op(op.type)
            except UnsupportedOperatorError as error:
                yield at("FC401", op, position, str(error))
                continue
            for fault in schema_faults(op, info):
                yield at(_SCHEMA_CODES[fault.broken], op, position, fault.text)


_SCHEMA_CODES = {
    Broken.NEEDED_ATTRIBUTE: "FC402",
    Broken.NEEDED_INPUT: "FC403",
    Broken.ATTRIBUTE_TYPE: "FC404",
    Broken.SINGLE_VARIABLE: "FC405",
    Broken.NEEDED_OUTPUT: "FC406",
}


# ---------------------------------------------------------------- data flow
class _Flow:
    """FC101 to FC103: follows the operators in order and keeps which names hold a value."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.found: list[Finding] = []
        self.read: set[str] = set()
        self.reported: set[tuple[str, str]] = set()
        self.writes = [
            {name: position for position, op in enumerate(block.ops) for name in op.output_arg_names}
            for block in program.blocks
        ]  # by block, where each name is written last
        self.left_behind: dict[int, dict[str, None]] = {}
        has_feeds = any(op.type == "feed" for op in program.global_block().ops)
        self.inputs = set() if has_feeds else set(program.global_block().vars)  # whatever is read first may be fed

    def findings(self) -> list[Finding]:
        """What is wrong with the order and the names of all operators."""
        block = self.program.global_block()
        self._follow(block, ChainMap(dict.fromkeys(self.inputs)), lenient=False)
        if any(op.type == "fetch" for op in block.ops):
            self.found += self._dangling(block)
        return self.found

    def _follow(self, block: Block, defined: Defined, lenient: bool) -> None:
        for position, op in enumerate(block.ops):
            held = op.inputs.get(traits_of(op.type).held, [])
            for name in dict.fromkeys(name for name in op.input_arg_names if name not in held):
                self._read(op, position, name, defined, lenient)
            for index in op.sub_blocks():
                if index > block.idx:
                    self._follow(self.program.block(index), self._inside(op, defined), lenient or not _plain(op))
                    defined.update(self._left_behind(index))
            for name in op.output_arg_names:
                self._declared(op, position, name)
            defined.update(dict.fromkeys(op.output_arg_names))

    def _inside(self, op: Operator, defined: Defined) -> Defined:
        lists = [attr for attr in INJECTED if op.has_attr(attr) and op.attr_type(attr) == AttrType.STRINGS]
        given = (name for attr in lists for name in op.attr(attr))
        return defined.new_child(dict.fromkeys((*op.input_arg_names, *given)))

    def _left_behind(self, index: int) -> dict[str, None]:
        """What the operators of a block and of those within write to names from outside it."""
        if index not in self.left_behind:
            names: dict[str, None] = {}
            block = self.program.block(index)
            for op in block.ops:
                names |= dict.fromkeys(op.output_arg_names)
                for inner in op.sub_blocks():
                    names |= self._left_behind(inner) if inner > index else {}
            self.left_behind[index] = {name: None for name in names if name not in block.vars}
        return self.left_behind[index]

    def _read(self, op: Operator, position: int, name: str, defined: Defined, lenient: bool) -> None:
        self.read.add(name)
        if not self._declared(op, position, name) or name in defined or lenient:
            return
        var = op.block.find_var_recursive(name)
        if var is None or var.persistable or var.type in HOLDERS:
            return
        if var.type == VarType.LOD_TENSOR_ARRAY and name in op.output_arg_names:
            return  # a loop that fills an array finds an empty one
        if ("FC101", name) in self.reported:
            return
        self.reported.add(("FC101", name))
        later = self.writes[op.block.idx].get(name, -1) >= position
        fault = "before any operator writes it" if later else "which no operator writes"
        self.found.append(at("FC101", op, position, f"reads {name} {fault}; it is neither fed nor a parameter", name))

    def _declared(self, op: Operator, position: int, name: str) -> bool:
        """Whether a block around declares the name; FC102 otherwise, once for each name."""
        if name in (EMPTY, "") or _declares(op.block, name):
            return name not in (EMPTY, "")
        if ("FC102", name) not in self.reported:
            self.reported.add(("FC102", name))
            self.found.append(
                at("FC102", op, position, f"names the variable {name}, which no enclosing block declares", name)
            )
        return False

    def _dangling(self, block: Block) -> Iterator[Finding]:
        """FC103: operators of block 0 that compute nothing which is read, fetched or kept."""
        for position, op in enumerate(block.ops):
            info = find_op(op.type)
            outputs = set(op.output_arg_names) - {EMPTY, ""}
            if op.type in FEED_FETCH or info is None or info.side_effects or info.raw or not outputs or op.is_target:
                continue
            variables = [op.block.find_var_recursive(name) for name in outputs]
            if not outputs & self.read and not any(var is not None and var.persistable for var in variables):
                names = ", ".join(sorted(outputs))
                yield at("FC103", op, position, f"computes {names}, which is never read or fetched", min(outputs))


def _declares(block: Block, name: str) -> bool:
    """Whether a block, one around it, or one that any of these is the gradient of, declares a name.

    Gradients need no declaration: Paddle takes one that is not there for zero.
    """
    return GRAD in name or any(
        name in around.vars
        or (
            around.idx > around.forward_block_idx >= 0
            and _declares(around.program.block(around.forward_block_idx), name)
        )
        for around in block.ancestry()
    )


def _plain(op: Operator) -> bool:
    """Whether the blocks below an operator start with what stands around it (gradient blocks get more from it)."""
    return op.type in ("while", "conditional_block", "recurrent")


# ---------------------------------------------------------------- feeds and fetches
def _columns(program: Program, malformed: Collection[Place]) -> Iterator[Finding]:
    """FC104: the columns of feed and fetch operators are 0, 1, 2 … each once."""
    for kind in ("feed", "fetch"):
        ops = [(position, op) for position, op in enumerate(program.global_block().ops) if op.type == kind]
        sound = [(position, op) for position, op in ops if (0, position) not in malformed]
        counts = Counter(int(op.attr("col")) for _, op in sound)
        for position, op in sound:
            column = int(op.attr("col"))
            if counts[column] > 1 or not 0 <= column < len(ops):
                fault = "is used twice" if counts[column] > 1 else f"is not one of 0 to {len(ops) - 1}"
                yield at("FC104", op, position, f"column {column} of the {len(ops)} {kind} operators {fault}")


# ---------------------------------------------------------------- parameters
def _parameters(files: ModelFiles) -> Iterator[Finding]:
    """FC301 to FC308: parameters that are missing, of another shape or data type, cannot be read, or have faulty values."""
    if files.fault is None:
        yield from faulty_values(files.program, files.parameters)
        return
    made = _made(files.program)
    faults = files.fault.faults or (files.fault,)
    faults = tuple(each for each in faults if each.kind != ParameterFileError.MISSING or each.variable not in made)
    wanted = len(persistables(files.program))
    if wanted > 1 and [fault.kind for fault in faults] == [ParameterFileError.MISSING] * wanted:
        yield Finding("FC301", files.fault.message)
        return
    for fault in sorted(faults, key=lambda fault: fault.variable):
        yield Finding(_PARAMETER_CODES.get(fault.kind, "FC304"), fault.message, variable=fault.variable)


def _made(program: Program) -> set[str]:
    """What a program writes before it reads it, as a startup program does with every parameter.

    None if it has feed or fetch operators: `load_inference_model` wants a file for whatever is persistable.
    """
    made: set[str] = set()
    read: set[str] = set()
    for op in program.global_block().ops:
        if op.type in FEED_FETCH:
            return set()
        read.update(op.input_arg_names)
        made.update(name for name in op.output_arg_names if name not in read)
    return made


_PARAMETER_CODES = {
    ParameterFileError.MISSING: "FC301",
    ParameterFileError.SHAPE: "FC302",
    ParameterFileError.DATA_TYPE: "FC303",
}
