"""Program: a tree of blocks. Block 0 is where a run starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from fluidtool.errors import ArgumentTypeError, NoBlockError, WrongKindError
from fluidtool.html_table import html_table
from fluidtool.ir.block import Block
from fluidtool.ir.operator import Operator
from fluidtool.ir.original import Original
from fluidtool.ir.roles import OpRole
from fluidtool.ir.variable import Parameter, Variable

if TYPE_CHECKING:
    from typing import Self

    from fluidtool.ir.descriptions import BlockDesc

MADE_HERE = 1_008_005  # Paddle 1.8.5, whose programs these are
S = TypeVar("S")
T = TypeVar("T")
DISTRIBUTED = (
    "_is_distributed",
    "_is_chief",
    "_parameters_on_pservers",
    "_endpoints",
    "_ps_endpoint",
    "_distributed_lookup_table",
)


class _Functions:
    """What methods call that stands in files which import this one; `fluidtool.ir` fills it when it is imported."""

    clone: Callable[[Program, bool], Program]
    prune: Callable[[Program, Sequence[str], Any], Program]
    inference_optimize: Callable[[Program, bool], Program]
    decode: Callable[[bytes, Program], Program]
    encode: Callable[[Program], bytes]
    to_string: Callable[[Program | Block | Operator | Variable, bool, bool], str]
    to_bytes: Callable[[Block | Operator | Variable], bytes]


functions = _Functions


class Program:
    """Blocks of operators and variables, equal in meaning to a ProgramDesc file.

    `version` is the number that the file carries (None for files that carry none). `mutation` grows with every change,
    so that compiled plans know when they are out of date.
    """

    _first_seed: ClassVar[int] = 0

    def __init__(self) -> None:
        self.blocks: list[Block] = [Block(self, 0)]
        self.current_block_idx = 0
        self.version: int | None = None
        self.version_field = 4
        self.op_compatible_map: bytes | None = None
        self.op_version_map: bytes | None = None
        self.extra: bytes = b""
        self.original: Original | None = None
        self.mutation = 0
        self._known: dict[Any, Any] = {}
        self._seed = Program._first_seed
        self._op_role: int = OpRole.Forward
        self._op_role_var: list[str] = []
        self._is_distributed = False
        self._is_chief = False
        self._parameters_on_pservers: Any = None
        self._endpoints: list[str] = []
        self._ps_endpoint: str | None = None
        self._trainers_endpoints: list[str] = []
        self._distributed_lookup_table: str | None = None
        self._nccl_comm_num = 1
        self._use_hierarchical_allreduce = False
        self._hierarchical_allreduce_inter_nranks = 0
        self._is_startup = False
        self._appending_grad_times = 0
        self._fleet_opt: Any = None
        self._pipeline_opt: Any = None

    def touch(self) -> None:
        """Note a change."""
        self.mutation += 1
        self.forget()

    def known(self, find: Callable[[S], T], subject: S) -> T:
        """What `find` says of the program or of a block of it, kept until the next change."""
        key = find, subject
        if key not in self._known:
            self._known[key] = find(subject)
        found: T = self._known[key]
        return found

    def forget(self) -> None:
        """Release what is `known`, which may be as large as the program."""
        self._known.clear()

    # -- blocks
    @property
    def num_blocks(self) -> int:
        """The number of blocks."""
        return len(self.blocks)

    def global_block(self) -> Block:
        """Block 0."""
        return self.blocks[0]

    def block(self, index: int) -> Block:
        """The block of this index; raises NoBlockError when there is none."""
        if not 0 <= index < len(self.blocks):
            raise NoBlockError(
                f"the program has no block {index}: it has {len(self.blocks)} (0 to {len(self.blocks) - 1})"
            )
        return self.blocks[index]

    def current_block(self) -> Block:
        """The block that operators are being appended to."""
        return self.block(self.current_block_idx)

    def create_block(self, parent_idx: int | None = None) -> Block:
        """Create a block within `parent_idx` (the current block without it) and make it the current one."""
        parent = self.current_block_idx if parent_idx is None else self.block(parent_idx).idx
        block = Block(self, len(self.blocks), parent)
        self.blocks.append(block)
        self.current_block_idx = block.idx
        self.touch()
        return block

    def rollback(self) -> None:
        """Make the parent of the current block the current one."""
        self.current_block_idx = max(self.current_block().parent_idx, 0)

    # -- fields
    @property
    def random_seed(self) -> int:
        """The seed of random operators; with 0, every process draws different numbers."""
        return self._seed

    @random_seed.setter
    def random_seed(self, seed: int) -> None:
        if not isinstance(seed, int):
            raise WrongKindError("Program.random_seed's input seed must be an integer, but received " + str(type(seed)))
        self._seed = seed
        self.touch()

    def global_seed(self, seed: int = 0) -> None:
        """Set the seed of this program and of every program made from now on (Paddle 1.8.5)."""
        self.random_seed = seed
        Program._first_seed = seed

    def list_vars(self) -> Iterator[Variable]:
        """Every variable of every block."""
        for block in self.blocks:
            yield from block.vars.values()

    def all_parameters(self) -> list[Parameter]:
        """Every parameter."""
        return [var for var in self.list_vars() if isinstance(var, Parameter)]

    def copy_param_info_from(self, other: Program) -> None:
        """Turn variables of block 0 into the Parameters that `other` has under the same names."""
        _must_be_program(other, "copy_param_info_from")
        self.global_block().copy_param_info_from(other.global_block())

    def _copy_param_info_from(self, other: Program) -> None:
        """The same, but parameters that were pruned away here are left out."""
        _must_be_program(other, "copy_param_info_from")
        self.global_block()._copy_param_info_from(other.global_block())

    def _copy_dist_param_info_from(self, other: Program) -> None:
        """Take over what `other` says of a distributed job."""
        _must_be_program(other, "_copy_dist_param_info_from")
        for name in DISTRIBUTED:
            setattr(self, name, getattr(other, name))

    def copy_data_info_from(self, other: Program, pruned_origin_block_id_map: dict[int, int] | None = None) -> None:
        """Take over which variables of block 0 are fed (is_data, stop_gradient) from `other`."""
        _must_be_program(other, "copy_data_info_from")
        mapping = pruned_origin_block_id_map or {block.idx: block.idx for block in self.blocks}
        for block in self.blocks:
            origin = other.blocks[mapping.get(block.idx, block.idx)]
            for var in block.vars.values():
                theirs = origin.vars.get(var.name)
                if theirs is not None:
                    var.is_data = theirs.is_data
                    var.need_check_feed = theirs.need_check_feed
                    var.stop_gradient = theirs.stop_gradient

    # -- operator roles: every operator appended takes the current ones
    @property
    def op_role(self) -> int:
        """The role that appended operators get: forward, backward, optimize …"""
        return self._op_role

    @op_role.setter
    def op_role(self, role: int) -> None:
        self._op_role = role

    _current_role = op_role

    @property
    def op_role_var(self) -> list[str]:
        """The (parameter, gradient) names that appended operators get."""
        return self._op_role_var

    @op_role_var.setter
    def op_role_var(self, names: list[str]) -> None:
        self._op_role_var = [names] if isinstance(names, str) else list(names)

    def set_op_role(self, role: int) -> None:
        """Set the role of operators appended from now on."""
        self._op_role = role

    def set_op_role_var(self, names: list[str]) -> None:
        """Set the (parameter, gradient) names of operators appended from now on."""
        self.op_role_var = names

    @contextmanager
    def optimized_guard(self, param_and_grads: Any) -> Iterator[None]:
        """Operators appended within are optimizer operators of these variables."""
        items = param_and_grads if isinstance(param_and_grads, (list, tuple)) else [param_and_grads]
        names = [str(getattr(item, "name", item)) for item in items]
        with self.role_guard(OpRole.Optimize, names):
            yield

    @contextmanager
    def lr_schedule_guard(self, is_with_opt: bool = False) -> Iterator[None]:
        """Operators appended within compute the learning rate."""
        role = int(OpRole.LRSched) | (int(OpRole.Optimize) if is_with_opt else 0)
        with self.role_guard(role, []):
            yield

    @contextmanager
    def backward_role_guard(self) -> Iterator[None]:
        """Operators appended within belong to the backward pass."""
        with self.role_guard(OpRole.Backward, None):
            yield

    @contextmanager
    def role_guard(self, role: int, names: list[str] | None) -> Iterator[None]:
        """Operators appended within have this role and these role variables (None keeps them)."""
        before = self._op_role, self._op_role_var
        self._op_role = int(role)
        if names is not None:
            self._op_role_var = names
        try:
            yield
        finally:
            self._op_role, self._op_role_var = before

    # -- copies and cuts (fluidtool.ir.surgery)
    def _repr_html_(self) -> str:
        """A table of the operators, for notebooks."""
        rows = [
            (block.idx, position, op.type, ", ".join(op.input_arg_names), ", ".join(op.output_arg_names))
            for block in self.blocks
            for position, op in enumerate(block.ops)
        ]
        title = f"Program: {len(rows)} operators in {self.num_blocks} blocks"
        return html_table(title, ("block", "operator", "type", "inputs", "outputs"), rows)

    def clone(self, for_test: bool = False) -> Program:
        """A copy; for_test drops backward and optimizer operators and sets `is_test`."""
        return functions.clone(self, for_test)

    def prune(self, targets: Any) -> Program:
        """A copy with only what computes `targets` (variables, names or operators)."""
        return functions.prune(self, [], targets)

    def prune_with_input(self, feeded_var_names: list[str], targets: Any) -> Program:
        """A copy with only what computes `targets` from these inputs."""
        return functions.prune(self, feeded_var_names, targets)

    def inference_optimize(self, prune_read_op: bool = True) -> Program:
        """A copy for inference: `is_test` set, readers dropped."""
        return functions.inference_optimize(self, prune_read_op)

    # -- bytes and text (fluidtool.ir.codec, fluidtool.ir.text)
    @classmethod
    def parse_from_string(cls, binary_str: bytes) -> Self:
        """A program from ProgramDesc bytes; raises UnreadableError when they are not one."""
        program = cls()
        functions.decode(binary_str, program)
        return program

    def serialize_to_string(self) -> bytes:
        """ProgramDesc bytes: those that it was parsed from, if nothing has changed since.

        What was changed since or built here is written in a fixed order, so the same program always gives the same bytes.
        """
        return functions.encode(self)

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """The program as protobuf text; with_details adds what the format does not keep of variables."""
        return self.text_of(self, throw_on_error, with_details)

    def text_of(
        self, part: Program | Block | Operator | Variable, throw_on_error: bool = False, with_details: bool = False
    ) -> str:
        """A part of the program, or all of it, as protobuf text."""
        return functions.to_string(part, throw_on_error, with_details)

    def bytes_of(self, part: Block | Operator | Variable) -> bytes:
        """A part of the program as the message that a file has of it."""
        return functions.to_bytes(part)

    def version_number(self) -> int:
        """The number that a file says it was written by; of a program made here that of Paddle 1.8.5; 0 if a file says none."""
        if self.version is not None:
            return self.version
        return MADE_HERE if self.original is None else 0

    def set_version(self, version: int = MADE_HERE) -> None:
        """Let a file say that it was written by this version."""
        self.version = int(version)
        self.touch()

    @property
    def desc(self) -> ProgramDesc:
        """What scripts use as `program.desc`."""
        return ProgramDesc(self)

    def get_desc(self) -> ProgramDesc:
        """The same as `desc`."""
        return self.desc

    def sync_with_cpp(self) -> None:
        """Kept for scripts: there is no second copy of the program to synchronize with."""

    def __str__(self) -> str:
        return self.to_string()

    def __repr__(self) -> str:
        ops = sum(len(block.ops) for block in self.blocks)
        return f"<Program: {len(self.blocks)} blocks, {ops} ops>"

    _create_block = create_block
    _rollback = rollback
    _copy_data_info_from = copy_data_info_from
    _optimized_guard = optimized_guard
    _lr_schedule_guard = lr_schedule_guard
    _backward_role_guard = backward_role_guard
    _prune = prune
    _prune_with_input = prune_with_input
    _inference_optimize = inference_optimize
    _get_desc = get_desc
    _sync_with_cpp = sync_with_cpp
    _version = version_number


class ProgramDesc:
    """The few methods of Paddle's C++ ProgramDesc that scripts call on `program.desc`."""

    __slots__ = ("program",)

    def __init__(self, program: Program) -> None:
        self.program = program

    def serialize_to_string(self) -> bytes:
        """ProgramDesc bytes."""
        return self.program.serialize_to_string()

    def num_blocks(self) -> int:
        """The number of blocks."""
        return self.program.num_blocks

    def block(self, index: int) -> BlockDesc:
        """The block of this index."""
        return self.program.block(index).desc

    def append_block(self, parent: BlockDesc) -> BlockDesc:
        """A new block within another."""
        current = self.program.current_block_idx
        made = self.program.create_block(parent.id)
        self.program.current_block_idx = current
        return made.desc

    def flush(self) -> None:
        """Kept for scripts: there is nothing that was not written."""

    def get_feed_target_names(self) -> list[str]:
        """What the feed operators of block 0 write."""
        return [op.output("Out")[0] for op in self.program.global_block().ops if op.type == "feed"]

    def get_fetch_target_names(self) -> list[str]:
        """What the fetch operators of block 0 read."""
        return [op.input("X")[0] for op in self.program.global_block().ops if op.type == "fetch"]

    def _version(self) -> int:
        """The version that the program says it was written by."""
        return self.program.version_number()

    def _set_version(self, version: int = MADE_HERE) -> None:
        """Let the program say that it was written by this version."""
        self.program.set_version(version)


def _must_be_program(other: Any, method: str) -> None:
    if not isinstance(other, Program):
        raise ArgumentTypeError(f"{method} takes a Program, found {type(other).__name__}")


__all__ = ["Block", "Operator", "Parameter", "Program", "ProgramDesc", "Variable"]
