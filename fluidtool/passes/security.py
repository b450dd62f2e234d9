"""What a program could do beyond computing its outputs: read and write files, talk to others, call Python, never end.

Found by reading the program; nothing is run. What a run refuses is decided by its policy (fluidtool/runtime/policy.py),
which is asked here with the same questions. Memory is what a program declares; it may ask for more when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from math import prod

from fluidtool.errors import FluidError, PolicyError
from fluidtool.io.parameters import persistables
from fluidtool.ir import Block, Operator, Program, Variable
from fluidtool.ir.dataflow import operator_effects
from fluidtool.ops.registry import find_op
from fluidtool.passes.findings import Finding, at
from fluidtool.passes.peak import estimate
from fluidtool.records import dataclass
from fluidtool.runtime.policy import NOTHING_ALLOWED, Policy
from fluidtool.tensor import numpy_dtype


class Reach(StrEnum):
    """What a program reaches for, and the code of a finding about it."""

    FILES = "FC501"
    NETWORK = "FC502"
    PYTHON = "FC503"
    ENDLESS = "FC504"

    @property
    def named(self) -> str:
        """As a list of what is reached calls it."""
        return {"FC501": "files", "FC502": "network", "FC503": "Python functions", "FC504": "endless loops"}[self]


@dataclass(frozen=True, slots=True)
class Capability:
    """One operator that reaches beyond its outputs; `targets` are the files or endpoints that it names."""

    reach: Reach
    op: Operator
    position: int
    text: str
    targets: tuple[str, ...] = ()

    def finding(self) -> Finding:
        """The same as a finding of `check`."""
        return at(self.reach, self.op, self.position, self.text)


@dataclass(frozen=True, slots=True)
class DeclaredMemory:
    """Bytes that a program declares: parameters, activations alive at once for a batch, and the largest variable.

    `unknown`: variables whose size only a run can tell.
    """

    parameters: int
    activations: int
    largest_variable: str
    largest: int
    unknown: tuple[str, ...]


def capabilities(program: Program) -> list[Capability]:
    """Everything that the operators of a program could do, block by block."""
    return [
        found
        for block in program.blocks
        for position, op in enumerate(block.ops)
        for look in (_files, _network, _python, _endless)
        for found in look(op, position)
    ]


def not_allowed(program: Program, policy: Policy = NOTHING_ALLOWED) -> list[Capability]:
    """The capabilities that a run under this policy would refuse, and the loops that never end."""
    return [found for found in capabilities(program) if not _allows(policy, found)]


def _allows(policy: Policy, found: Capability) -> bool:
    ask: Callable[[str, str], object]
    if found.reach is Reach.FILES:
        ask = policy.path
    elif found.reach is Reach.NETWORK:
        ask = policy.endpoint
    else:
        return False
    try:
        for target in found.targets:
            ask(target, found.op.type)
    except (PolicyError, OSError, ValueError):  # a path that no file can have is not allowed either
        return False
    return bool(found.targets) or policy.endpoints is None  # whom a collective operator talks to, only the job knows


# ---------------------------------------------------------------- files
WRITES = frozenset({"save", "save_combine", "recv_save"})
READS = frozenset({"load", "load_combine"})


def _files(op: Operator, position: int) -> Iterator[Capability]:
    """FC501: operators that save or load."""
    if op.type not in WRITES | READS:
        return
    path = op.get_attr("file_path", "")
    path = path if isinstance(path, str) else ""
    verb = "writes" if op.type in WRITES else "reads"
    yield Capability(Reach.FILES, op, position, f"{verb} the file {path!r}", (path,))


# ---------------------------------------------------------------- network
DISTRIBUTED = "fluidtool.ops.distributed."
GRADIENT = "_grad"  # those of tables stay here: their rows are sent by `send`
STAY_HERE = frozenset({"fake_init", "c_sync_calc_stream"})  # operators of that folder that talk to nobody
ENDPOINTS = ("endpoint", "endpoints", "epmap", "pserver_endpoints", "trainers", "endpoint_list", "other_endpoints")


def _network(op: Operator, position: int) -> Iterator[Capability]:
    """FC502: operators that talk to parameter servers or to other trainers, or listen."""
    info = find_op(op.type)
    by_table = bool(op.get_attr("remote_prefetch") and op.get_attr("epmap")) and not op.type.endswith(GRADIENT)
    if not by_table and (info is None or not info.module.startswith(DISTRIBUTED) or op.type in STAY_HERE):
        return
    named = tuple(dict.fromkeys(_endpoints(op)))
    verb = "listens for connections" if op.type.endswith("listen_and_serv") else "connects to other processes"
    where = f": {', '.join(named)}" if named else ""
    yield Capability(Reach.NETWORK, op, position, verb + where, named)


def _endpoints(op: Operator) -> Iterator[str]:
    for name in ENDPOINTS:
        value = op.get_attr(name)
        texts = value if isinstance(value, list) else [value]
        yield from (text for text in texts if isinstance(text, str) and text)


# ---------------------------------------------------------------- Python
def _python(op: Operator, position: int) -> Iterator[Capability]:
    """FC503: operators that call functions of this process; a file can name one by number only."""
    if op.type == "py_func":
        number = op.get_attr("forward_callable_id", 0)
        yield Capability(Reach.PYTHON, op, position, f"calls the Python function registered under number {number}")


# ---------------------------------------------------------------- loops
def _endless(op: Operator, position: int) -> Iterator[Capability]:
    """FC504: loops whose condition stays true once it is."""
    names = op.input("Condition")
    if op.type != "while" or not names or not op.sub_blocks():
        return
    body = op.block.program.block(op.sub_blocks()[0])
    if names[0] in body.vars:
        reason = "redeclares its condition inside, so the one that it checks"
    elif _last_writer(body, names[0], len(body.ops)) is None:
        reason = "has a condition that its body"
    elif _computed_alike(op, position, body, names[0]):
        reason = "computes its condition from values that its body"
    else:
        return
    text = f"{reason} never changes: once it has started, it does not end"
    yield Capability(Reach.ENDLESS, op, position, text)


def _last_writer(block: Block, name: str, end: int) -> Operator | None:
    """The last operator before `end` that writes a name, with what its sub-blocks write."""
    for op in reversed(block.ops[:end]):
        if name in operator_effects(block.program, op).writes:
            return op
    return None


def _computed_alike(loop: Operator, position: int, body: Block, name: str) -> bool:
    """Whether the body computes the condition as it was computed before the loop, from values that stay the same."""
    before, again = _last_writer(loop.block, name, position), _last_writer(body, name, len(body.ops))
    if before is None or again is None or again.block is not body or again.sub_blocks():
        return False
    info = find_op(again.type)
    same = (before.type, before.inputs, _meaning(before)) == (again.type, again.inputs, _meaning(again))
    if not same or info is None or info.random or info.side_effects or info.raw:
        return False
    return not any(_last_writer(body, read, len(body.ops)) for read in again.input_arg_names)


def _meaning(op: Operator) -> dict[str, object]:
    """The attributes except those of the framework."""
    return {name: op.attr(name) for name in op.attr_names if not name.startswith("op_")}


# ---------------------------------------------------------------- memory
def declared_memory(program: Program, batch: int = 1) -> DeclaredMemory:
    """What a program declares for a batch of this size."""
    sizes = {var.name: _nbytes(var, batch) for var in program.list_vars()}
    name = max(sizes, key=lambda name: sizes[name], default="")
    use = estimate(program, batch=batch)
    parameters = sum(_nbytes(var, batch) for var in persistables(program))
    return DeclaredMemory(parameters, use.at_once, name, sizes.get(name, 0), use.unknown)


def _nbytes(var: Variable, batch: int) -> int:
    if var.dtype is None or not var.has_shape:
        return 0
    try:
        item = numpy_dtype(var.dtype).itemsize
    except FluidError:  # a kind of variable that holds no numbers
        return 0
    return prod(batch if size < 0 else size for size in var.shape) * item
