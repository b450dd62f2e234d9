"""Collective mode: every process optimizes by itself; operators in the programs sum gradients or parameters.

Paddle 1.8.5 transpiler/collective.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from fluidtool.distribute.analysis import check_startup, check_untouched, param_grad_of, role_of, role_vars
from fluidtool.distribute.appending import append, insert, make
from fluidtool.distribute.nccl import check_member
from fluidtool.errors import ProgramError, UsageError
from fluidtool.ir import Block, Operator, Parameter, Program, unique_name
from fluidtool.ir.roles import OpRole
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass

GRAD_ALLREDUCE, LOCAL_SGD, THREADS = "grad_allreduce", "local_sgd", "single_process_multi_thread"
KINDS = (GRAD_ALLREDUCE, LOCAL_SGD, THREADS)
BACKWARD, OPTIMIZE, LOSS = int(OpRole.Backward), int(OpRole.Optimize), int(OpRole.Loss)


@dataclass(frozen=True, slots=True)
class CollectivePlan:
    """Who takes part and how. parameters: what all processes start alike with and keep alike, in the startup program's
    order. Raises UsageError for an unknown kind, a process that is not one of the endpoints, or a single one.
    """

    kind: str
    rank: int
    endpoints: tuple[str, ...]
    current_endpoint: str
    rings: int = 1
    parameters: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"invalid collective_mode: {self.kind}; expected one of {', '.join(KINDS)}")
        if len(self.endpoints) == 1 and self.kind != THREADS:
            raise UsageError(
                "invalid trainer number in distributed: 1; the number of endpoints must be > 1: give all trainers "
                "(trainers=), or run the program as it is"
            )
        check_member(self.rank, self.endpoints, self.current_endpoint)
        if self.rings < 1 or (self.rings > 1 and self.kind == THREADS):
            raise UsageError(
                f"nccl_comm_num must be at least 1, and exactly 1 in the mode {THREADS}, found {self.rings}"
            )

    @property
    def others(self) -> list[str]:
        """The endpoints of the other processes."""
        return [endpoint for endpoint in self.endpoints if endpoint != self.current_endpoint]

    def ring_of(self, position: int) -> int:
        """Rings take turns."""
        return position % self.rings


def transpile_collective(main: Program, startup: Program, plan: CollectivePlan) -> None:
    """Rewrite both programs in place.

    Raises ProgramError for programs that were transpiled before, or that optimize nothing.
    """
    check_untouched(main, startup)
    _check_trained(main, startup, plan)
    if plan.kind == THREADS:
        append(startup.global_block(), "c_comm_init_all", {}, {}, {"ring_id": 0})
    else:
        _join_rings(startup.global_block(), plan)
        _start_alike(startup.global_block(), plan)
    if plan.kind == LOCAL_SGD:
        _keep_snapshots(startup.global_block(), plan)
        _average_parameters(main.global_block(), plan)
    else:
        _sum_gradients(main.global_block(), plan)


def _check_trained(main: Program, startup: Program, plan: CollectivePlan) -> None:
    ops = [op for op in main.global_block().ops if role_of(op) & (OPTIMIZE | BACKWARD)]
    pairs = [pair for pair in map(param_grad_of, ops) if pair is not None]
    if not pairs:
        raise ProgramError(
            f"{plan.kind} has nothing to do: the program has no gradients of parameters; call minimize(loss) of "
            "an optimizer before transpile()"
        )
    check_startup(startup, dict.fromkeys(pair.parameter for pair in pairs))


def shared_parameters(main: Program, startup: Program) -> tuple[str, ...]:
    """Names of the parameters that all processes hold, in the order in which the startup program made them.

    Files do not say which variables are parameters: then those count that the main program optimizes, in the order of
    their initializers, which are prepended.
    """
    made = startup.global_block().all_parameters()
    if made:
        return tuple(parameter.name for parameter in made if not parameter.is_distributed)
    pairs = [param_grad_of(op) for op in main.global_block().ops if role_of(op) & OPTIMIZE]
    names = dict.fromkeys(pair.parameter for pair in pairs if pair is not None)
    order = [name for op in startup.global_block().ops for name in op.output_arg_names][::-1]
    known = [name for name in names if name in order]
    return tuple(sorted(known, key=order.index))


# ---------------------------------------------------------------- the startup program
def _join_rings(block: Block, plan: CollectivePlan) -> None:
    for ring in range(plan.rings):
        name = unique_name.generate("nccl_id")
        block.create_var(name=name, persistable=True, type=VarType.RAW)
        attrs = {"rank": plan.rank, "endpoint": plan.current_endpoint, "other_endpoints": plan.others}
        append(block, "c_gen_nccl_id", {}, {"Out": [name]}, attrs)
        append(
            block, "c_comm_init", {"X": [name]}, {}, {"nranks": len(plan.endpoints), "rank": plan.rank, "ring_id": ring}
        )


def _start_alike(block: Block, plan: CollectivePlan) -> None:
    for position, name in enumerate(plan.parameters):
        _in_place(block, "c_broadcast", name, {"ring_id": plan.ring_of(position), "root": 0})
    for ring in range(plan.rings) if plan.parameters else ():
        _in_place(block, "c_sync_comm_stream", plan.parameters[-1], {"ring_id": ring})


def _in_place(block: Block, kind: str, name: str, attrs: dict[str, int], role: int = 0) -> None:
    append(block, kind, {"X": [name]}, {"Out": [name]}, attrs, role=role)


def snapshot_name(parameter: str) -> str:
    """What a parameter was when processes last agreed."""
    return f"{parameter}@SNAPSHOT"


def _declare_snapshot(block: Block, parameter: str, *, is_assigned: bool) -> str:
    """Declare it without a data type. In a main program, where nothing tells it, Paddle 1.8.5 then writes BOOL for the
    snapshot and, by inference, for the parameter; values keep their own type. We write the same.
    """
    name = snapshot_name(parameter)
    kind = None if is_assigned else VarType.BOOL
    block.create_var(name=name, shape=block.var(parameter).shape, dtype=kind, persistable=True, stop_gradient=True)
    return name


def _keep_snapshots(block: Block, plan: CollectivePlan) -> None:
    for name in plan.parameters:
        append(block, "assign", {"X": [name]}, {"Out": [_declare_snapshot(block, name, is_assigned=True)]})


# ---------------------------------------------------------------- grad_allreduce
def _sum_gradients(block: Block, plan: CollectivePlan) -> None:
    """Scale the loss's gradient by 1/processes, sum every parameter's gradient, and wait before the first optimizer."""
    last, turn, out = "", 0, []
    for op in reversed(_scaled_losses(block, plan)):
        added: list[Operator] = []
        for gradient in _gradients(block, op):
            last = gradient
            if not added:
                added.append(_make_in_place(block, "c_sync_calc_stream", gradient, {}, BACKWARD))
            added.insert(
                1, _make_in_place(block, "c_allreduce_sum", gradient, {"ring_id": plan.ring_of(turn)}, BACKWARD)
            )
            turn += 1
        out += [*reversed(added), op]
    block.ops[:] = out[::-1]
    block.program.touch()
    place = next((index for index, op in enumerate(block.ops) if role_of(op) & OPTIMIZE), None)
    for ring in range(plan.rings) if place is not None and last else ():
        insert(
            block, (place or 0) + ring, _make_in_place(block, "c_sync_comm_stream", last, {"ring_id": ring}, BACKWARD)
        )


def _make_in_place(block: Block, kind: str, name: str, attrs: dict[str, int], role: int) -> Operator:
    return make(block, kind, {"X": [name]}, {"Out": [name]}, attrs, role=role)


def _scaled_losses(block: Block, plan: CollectivePlan) -> list[Operator]:
    ops = []
    for op in block.ops:
        ops.append(op)
        if role_of(op) & BACKWARD and role_of(op) & LOSS:
            name, attrs = op.output_arg_names[0], {"scale": 1.0 / len(plan.endpoints)}
            ops.append(make(block, "scale", {"X": [name]}, {"Out": [name]}, attrs, role=BACKWARD))
    return ops


def _gradients(block: Block, op: Operator) -> Iterator[str]:
    """The gradients of shared parameters that a backward operator completes."""
    names = role_vars(op) if role_of(op) & BACKWARD else []
    for parameter, gradient in zip(names[0::2], names[1::2], strict=False):
        if not _is_distributed(block, parameter):
            yield gradient


def _is_distributed(block: Block, name: str) -> bool:
    var = block.var(name)
    return isinstance(var, Parameter) and var.is_distributed


# ---------------------------------------------------------------- local_sgd
def _average_parameters(block: Block, plan: CollectivePlan) -> None:
    """After each step: parameter = snapshot - mean over processes of (snapshot - parameter)."""
    updated: list[str] = []
    for op in reversed(list(block.ops)):
        if op.input("Param") and op.input("Grad") and op.input("LearningRate"):
            name = op.input("Param")[0]
            if not _is_distributed(block, name):
                _sum_change(block, op, name, plan.ring_of(len(updated)))
                updated.append(name)
    if not updated:
        return
    for ring in range(plan.rings):
        _in_place(block, "c_sync_comm_stream", updated[-1], {"ring_id": ring}, OPTIMIZE)
    for name in reversed(updated):
        snapshot = snapshot_name(name)
        attrs = {"scale": 1.0 / len(plan.endpoints)}
        append(block, "scale", {"X": [name]}, {"Out": [name]}, attrs, role=OPTIMIZE)
        append(block, "elementwise_sub", {"X": [snapshot], "Y": [name]}, {"Out": [name]}, role=OPTIMIZE)
        append(block, "assign", {"X": [name]}, {"Out": [snapshot]}, role=OPTIMIZE)


def _sum_change(block: Block, update: Operator, name: str, ring: int) -> None:
    """Behind an update: parameter = sum over processes of (snapshot - parameter)."""
    snapshot = _declare_snapshot(block, name, is_assigned=False)
    place = next(index for index, op in enumerate(block.ops) if op is update) + 1
    inputs = {"X": [snapshot], "Y": [name]}
    added = (
        make(block, "elementwise_sub", inputs, {"Out": [name]}, role=OPTIMIZE),
        _make_in_place(block, "c_sync_calc_stream", name, {}, OPTIMIZE),
        _make_in_place(block, "c_allreduce_sum", name, {"ring_id": ring}, OPTIMIZE),
    )
    for offset, op in enumerate(added):
        insert(block, place + offset, op)
