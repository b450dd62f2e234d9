"""Which variables of a program live on which server, as programs carry it for saving and loading.

The questions have Paddle 1.8.5's names (transpiler/details/vars_distributed.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field, replace

from fluidtool.distribute.analysis import cut_inputs, is_update
from fluidtool.distribute.plan import DistributePlan, ParameterPlan, Placement
from fluidtool.ir import Operator, Program, Variable
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass
from fluidtool.shapes import shape_text

PARAMETER, OPTIMIZER, REMOTE = "Param", "Optimizer", "RemotePrefetch"
NOT_STATE = ("Param", "Grad", "LearningRate", "Beta1Tensor", "Beta2Tensor")


@dataclass(frozen=True, slots=True)
class VarStruct:
    """What a declaration says of a variable."""

    name: str
    shape: tuple[int, ...]
    dtype: VarType | None
    type: VarType | int
    lod_level: int = 0
    persistable: bool = False


@dataclass(frozen=True, slots=True)
class VarDistributed:
    """A variable (`origin`), and the part of it (`slice`) that the server `endpoint` has; offset in elements."""

    origin: VarStruct
    slice: VarStruct
    is_slice: bool
    block_id: int
    offset: int
    vtype: str
    endpoint: str

    def __str__(self) -> str:
        origin, part = self.origin, self.slice
        return (
            f"{self.vtype} {origin.name} {shape_text(origin.shape)} on {self.endpoint}: {part.name} {shape_text(part.shape)}, "
            f"shard {self.block_id} from element {self.offset}"
        )


@dataclass(slots=True)
class VarsDistributed:
    """All variables that live on servers."""

    distributed_vars: list[VarDistributed] = field(default_factory=list)

    def add_distributed_var(
        self,
        origin_var: Variable | VarStruct,
        slice_var: Variable | VarStruct,
        is_slice: bool | None = None,
        block_id: int = 0,
        offset: int = 0,
        vtype: str = "",
        endpoint: str = "",
    ) -> None:
        """Add one; is_slice: None means that the two declarations differ."""
        origin, part = (described(var) if isinstance(var, Variable) else var for var in (origin_var, slice_var))
        cut = origin != part if is_slice is None else is_slice
        self.distributed_vars.append(VarDistributed(origin, part, cut, block_id, offset, vtype, endpoint))

    def get_distributed_var_by_slice(self, var_name: str) -> VarDistributed | None:
        """The first whose slice has this name."""
        return next((var for var in self.distributed_vars if var.slice.name == var_name), None)

    def get_distributed_var_by_origin_and_ep(self, origin_var_name: str, endpoint: str) -> VarDistributed | None:
        """The first part of a variable on a server."""
        found = (var for var in self.get_distributed_vars_by_ep(endpoint) if var.origin.name == origin_var_name)
        return next(found, None)

    def get_distributed_vars_by_vtypes(
        self, vtypes: Iterable[str], groupby: bool = False
    ) -> list[VarDistributed] | dict[str, list[VarDistributed]]:
        """Those of some kinds: "Param", "Optimizer", "RemotePrefetch"; groupby gives lists by the original's name."""
        kinds = set(vtypes)
        found = [var for var in self.distributed_vars if var.vtype in kinds]
        if not groupby:
            return found
        groups: dict[str, list[VarDistributed]] = {}
        for var in found:
            groups.setdefault(var.origin.name, []).append(var)
        return groups

    def get_distributed_vars_by_ep(self, endpoint: str, vtype: str | None = None) -> list[VarDistributed]:
        """Those on a server, of one kind if asked for."""
        return [v for v in self.distributed_vars if v.endpoint == endpoint and vtype in (None, "", v.vtype)]

    def overview(self) -> str:
        """A line each."""
        return "\n".join(str(var) for var in self.distributed_vars)


def remote_variables(plan: DistributePlan, source: Program) -> VarsDistributed:
    """Parameters and optimizer state on the servers. source: the main program from before it was transpiled."""
    found = list(remote_parameters(plan, source))
    for endpoint in plan.settings.servers:
        found += _states(plan, source, endpoint)
    return VarsDistributed(found)


def remote_parameters(plan: DistributePlan, source: Program) -> Iterator[VarDistributed]:
    """The shards of parameters alone."""
    for parameter in plan.parameters:
        for placement in parameter.placements:
            yield _parameter(source.global_block().var(parameter.name), parameter, placement)


def described(var: Variable) -> VarStruct:
    """The declaration of a variable."""
    return VarStruct(var.name, var.shape, var.dtype, var.type, var.lod_level, var.persistable)


def _parameter(var: Variable, parameter: ParameterPlan, placement: Placement) -> VarDistributed:
    origin, shard = described(var), placement.parameter
    part = replace(origin, name=shard.name, shape=shard.shape, persistable=not shard.cut and origin.persistable)
    kind = REMOTE if parameter.remote else PARAMETER
    return VarDistributed(origin, part, shard.cut, shard.index, shard.offset, kind, placement.endpoint)


def _states(plan: DistributePlan, source: Program, endpoint: str) -> Iterator[VarDistributed]:
    ops, placements = source.global_block().ops, plan.placement_of_each(endpoint)
    for op in (ops[position] for position in plan.analysis.optimizers):
        placement = placements.get(op.input("Param")[0]) if is_update(op) else None
        if placement is not None:
            yield from _states_of(source, op, placement)


def _states_of(source: Program, op: Operator, placement: Placement) -> Iterator[VarDistributed]:
    for slot, names in op.inputs.items():
        if slot in NOT_STATE or not names:
            continue
        origin, shard = described(source.global_block().var(names[0])), placement.parameter
        shape = shard.shape if slot in cut_inputs(op) else origin.shape
        if shape == shard.shape:
            part = replace(origin, shape=shape)
            yield VarDistributed(origin, part, shard.cut, shard.index, shard.offset, OPTIMIZER, placement.endpoint)
        else:
            yield VarDistributed(origin, origin, False, 0, 0, OPTIMIZER, placement.endpoint)
