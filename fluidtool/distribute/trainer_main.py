"""The trainer's main program: gradients are sent where they are computed, parameters are fetched at the end of a step."""

from __future__ import annotations

from collections.abc import Iterator

from fluidtool.distribute.appending import DIST, RPC, append, control_variable, declare_shard, make
from fluidtool.distribute.counters import sum_counters
from fluidtool.distribute.plan import DistributePlan, ParameterPlan
from fluidtool.distribute.remote_lookup import look_up_remotely
from fluidtool.distribute.trainer_table import send_table, use_table
from fluidtool.ir import Block, Operator, Program
from fluidtool.ir.roles import ROLE_ATTR, ROLE_VAR_ATTR, OpRole
from fluidtool.proto.enums import VarType


def build_trainer_main(program: Program, plan: DistributePlan) -> None:
    """Rewrite the main program in place. Its optimizer operators stay until `finish_trainer`."""
    block = program.global_block()
    keep_clips(program, plan)
    _declare_shards(block, plan)
    dummies = _send_gradients(block, plan)
    barrier = control_variable(block)
    if plan.table:
        dummies[plan.table.name] = control_variable(block)
    waits = list(dummies.values())
    if plan.counters:
        waits.append(_send_counter(program, plan))
    _send_barrier(block, plan, waits, barrier)
    received = list(_receive(block, plan, dummies, barrier))
    for parameter in plan.parameters:
        if parameter.remote:
            look_up_remotely(program, parameter, plan.settings.trainer_id)
    if plan.settings.sync:
        _fetch_barrier(block, plan, [barrier], received)
    if not plan.settings.runtime_split:
        join_shards(block, [parameter for parameter in plan.parameters if not parameter.remote], role=DIST)
    if plan.table:
        use_table(program, plan.table, plan.settings.servers)
        send_table(block, plan, dummies[plan.table.name] if plan.settings.sync else None)


def keep_clips(program: Program, plan: DistributePlan) -> None:
    """Clipping is the trainer's work: it becomes part of the backward pass."""
    ops = program.global_block().ops
    for position in plan.analysis.clips:
        ops[position].set_attr(ROLE_ATTR, int(OpRole.Backward))


def _declare_shards(block: Block, plan: DistributePlan) -> None:
    for parameter in plan.parameters:
        for placement in parameter.placements if parameter.is_cut else ():
            declare_shard(block, placement.parameter)
            declare_shard(block, placement.gradient)
    _rename(block.program, plan.sent_names)
    if plan.table:
        gradient = block.var(plan.table.gradient)
        for name in plan.table.sends:
            block.create_var(name=name, type=gradient.type, shape=gradient.shape, dtype=gradient.dtype)


def _rename(program: Program, names: dict[str, str]) -> None:
    """Rename gradients of block 0 wherever they are meant, in op_role_var too."""
    block = program.global_block()
    block.vars = {names.get(name, name): var for name, var in block.vars.items()}
    for new_name in names.values():
        block.vars[new_name].name = new_name
    for around in program.blocks:
        hidden = [inner.vars for inner in around.ancestry() if inner.idx]
        for op in around.ops:
            mentioned = (*op.input_arg_names, *op.output_arg_names, *op.get_attr(ROLE_VAR_ATTR, []))
            meant = {n: names[n] for n in mentioned if n in names and not any(n in inner for inner in hidden)}
            if meant:
                _rename_in(op, meant)


def _rename_in(op: Operator, names: dict[str, str]) -> None:
    for slots, put in ((op.inputs, op.set_input), (op.outputs, op.set_output)):
        for slot, given in list(slots.items()):
            if any(name in names for name in given):
                put(slot, [names.get(name, name) for name in given])
    given = op.get_attr(ROLE_VAR_ATTR, [])
    if any(name in names for name in given):
        op.set_attr(ROLE_VAR_ATTR, [names.get(name, name) for name in given])


# ---------------------------------------------------------------- gradients out
def _send_gradients(block: Block, plan: DistributePlan) -> dict[str, str]:
    """Put `send` behind the last writer of each gradient; the control variable of each, by parameter."""
    groups: dict[int, list[list[Operator]]] = {}
    writers = {name: op for op in block.ops for name in op.output_arg_names}
    dummies = {}
    for parameter in plan.in_sending_order():
        dummies[parameter.name] = control_variable(block)
        group = list(_sending(block, plan, parameter, dummies[parameter.name]))
        writer = writers.get(parameter.sent_as)
        groups.setdefault(id(writer) if writer else 0, []).append(group)
    before, after = list(block.ops), []
    for key, op in [(0, None), *((id(op), op) for op in before)]:
        after += [op] if op else []
        after += [each for group in reversed(groups.get(key, [])) for each in group]
    block.ops[:] = after
    block.program.touch()
    return dummies


def _sending(block: Block, plan: DistributePlan, parameter: ParameterPlan, dummy: str) -> Iterator[Operator]:
    """The operators that cut a gradient and send it."""
    settings, names = plan.settings, [placement.gradient.name for placement in parameter.placements]
    sections: list[int] = []
    varnames: list[str] = []
    if settings.runtime_split:
        suffix = f".trainer_{settings.trainer_id}" if settings.merges else ""
        sections, varnames = parameter.heights, [name + suffix for name in names]
        names = [parameter.sent_as]
    elif parameter.is_cut:
        yield _cut(block, parameter, names)
    yield make(
        block,
        "send",
        {"X": names},
        {"Out": [dummy]},
        {
            "epmap": [placement.target for placement in parameter.placements],
            "sections": sections,
            "send_varnames": varnames,
        },
        role=RPC,
        role_var=[parameter.name, parameter.sent_as],
    )


def _cut(block: Block, parameter: ParameterPlan, names: list[str]) -> Operator:
    sparse = parameter.placements[0].gradient.type == VarType.SELECTED_ROWS
    kind, attr = ("split_selected_rows", "height_sections") if sparse else ("split_byref", "sections")
    return make(block, kind, {"X": [parameter.sent_as]}, {"Out": names}, {attr: parameter.heights}, role=DIST)


def _send_counter(program: Program, plan: DistributePlan) -> str:
    """Send this trainer's step counter to every server, which adds them up for the learning rate."""
    block, settings = program.global_block(), plan.settings
    sum_counters(program, plan)
    counter, dummy = str(plan.trainer_counter()), control_variable(block)
    attrs = {
        "epmap": list(settings.servers),
        "sections": [],
        "send_varnames": [counter] if settings.runtime_split else [],
        "merge_add": True,
        "use_send_handler": False,
    }
    append(block, "send", {"X": [counter]}, {"Out": [dummy]}, attrs, role=RPC, role_var=[counter, counter])
    return dummy


def _send_barrier(block: Block, plan: DistributePlan, waits: list[str], barrier: str) -> None:
    settings = plan.settings
    half_async = settings.runtime_split and settings.half_async and not settings.sync
    if settings.sync or half_async:
        attrs = {"endpoints": list(settings.servers), "trainer_id": settings.trainer_id, "half_async": half_async}
        append(block, "send_barrier", {"X": waits}, {"Out": [barrier]}, attrs, role=RPC)


# ---------------------------------------------------------------- parameters in
def _receive(block: Block, plan: DistributePlan, dummies: dict[str, str], barrier: str) -> Iterator[str]:
    """Append `recv` for each parameter that trainers hold whole; what they receive."""
    settings = plan.settings
    for parameter in plan.parameters:
        if parameter.remote:
            continue
        shards = [placement.parameter.name for placement in parameter.placements]
        outputs = [parameter.name] if settings.runtime_split else shards
        attrs = {
            "epmap": parameter.endpoints,
            "recv_varnames": shards if settings.runtime_split else [],
            "trainer_id": settings.trainer_id,
        }
        wait = barrier if settings.sync else dummies[parameter.name]
        names = [parameter.name, parameter.sent_as]
        append(block, "recv", {"X": [wait]}, {"Out": outputs}, attrs, role=RPC, role_var=names)
        yield from outputs


def _fetch_barrier(block: Block, plan: DistributePlan, waits: list[str], received: list[str]) -> None:
    attrs = {"endpoints": list(plan.settings.servers), "trainer_id": plan.settings.trainer_id}
    append(block, "fetch_barrier", {"X": waits}, {"Out": received}, attrs, role=RPC)


def join_shards(block: Block, parameters: list[ParameterPlan], *, role: int) -> None:
    """Put parameters that came in shards together again."""
    for parameter in parameters:
        if parameter.is_cut:
            shards = [placement.parameter.name for placement in parameter.placements]
            append(block, "concat", {"X": shards}, {"Out": [parameter.name]}, {"axis": 0}, role=role)
