"""A server's program while it is built."""

from __future__ import annotations

from dataclasses import field

from fluidtool.distribute.analysis import param_grad_of
from fluidtool.distribute.plan import DistributePlan, Placement
from fluidtool.ir import Block, Operator, Program, Variable
from fluidtool.records import dataclass


@dataclass(slots=True)
class Server:
    """A server's program while it is built. `source` is a copy of the main program from before it was transpiled.

    placements: the shard of each parameter that lives here. names: what parameters and gradients are called here. work: the
    optimizer operators of each parameter.
    """

    plan: DistributePlan
    source: Program
    endpoint: str
    program: Program = field(default_factory=Program)
    blocks: list[Block] = field(default_factory=list)
    gradient_blocks: list[str] = field(default_factory=list)
    sparse_gradients: list[str] = field(default_factory=list)
    placements: dict[str, Placement] = field(init=False)
    names: dict[str, str] = field(init=False)
    sent_names: dict[str, str] = field(init=False)
    work: dict[str, list[Operator]] = field(init=False)

    def __post_init__(self) -> None:
        self.placements = self.plan.placement_of_each(self.endpoint)
        self.sent_names = self.plan.sent_names
        self.names, self.work = {}, {}
        for parameter in self.plan.parameters:
            placement = self.placements.get(parameter.name)
            if placement is not None:
                self.names |= {parameter.pair.gradient: placement.merged, parameter.name: placement.parameter.name}
        ops = self.source.global_block().ops
        for op in (ops[position] for position in self.plan.analysis.optimizers):
            pair = param_grad_of(op)
            if pair is not None:
                self.work.setdefault(pair.parameter, []).append(op)

    @property
    def index(self) -> int:
        """Which server this is."""
        return self.plan.settings.servers.index(self.endpoint)

    @property
    def globals(self) -> Block:
        """Block 0, which declares the variables."""
        return self.program.global_block()

    def origin(self, name: str) -> Variable:
        """A variable of the source."""
        return self.source.global_block().var(name)

    def new_block(self, parent: int) -> Block:
        """A block that `listen_and_serv` runs."""
        block = self.program.create_block(parent)
        self.blocks.append(block)
        return block

    def local_name(self, name: str, work: Placement | None = None) -> str:
        """What a variable of the source is called here; it is declared if it is not yet.

        work: the shard that the operator in question works for. What has the shape of the whole parameter is cut like it.
        """
        if name in self.names:
            return self.names[name]
        if name not in self.globals.vars:
            var = self.globals.clone_variable(self.origin(name))
            if work is not None and var.shape == self.origin(work.parameter.parameter).shape:
                var.shape = work.parameter.shape
        return name
