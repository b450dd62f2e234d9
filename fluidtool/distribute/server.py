"""A server's program while it is built."""

from __future__ import annotations

from dataclasses import dataclass, field

from fluidtool.distribute.plan import DistributePlan, Share
from fluidtool.ir import Block, Program, Variable


@dataclass(slots=True)
class Server:
    """A server's program while it is built. `source` is a copy of the main program from before it was transpiled."""

    plan: DistributePlan
    source: Program
    endpoint: str
    program: Program = field(default_factory=Program)
    blocks: list[Block] = field(default_factory=list)
    gradient_blocks: list[str] = field(default_factory=list)
    sparse_gradients: list[str] = field(default_factory=list)

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

    def local_name(self, name: str, work: Share | None = None) -> str:
        """What a variable of the source is called here; it is declared if it is not yet.

        work: the piece that the operator in question works for. What has the shape of the whole parameter is cut like it.
        """
        for share in self.plan.shares_on(self.endpoint):
            pair = self._pair_of(share)
            if name == pair[0]:
                return share.parameter.name
            if name == pair[1]:
                return share.merged
        if name not in self.globals.vars:
            var = self.globals.clone_variable(self.origin(name))
            if work is not None and var.shape == self.origin(work.parameter.parameter).shape:
                var.shape = work.parameter.shape
        return name

    def _pair_of(self, share: Share) -> tuple[str, str]:
        parameter = self.plan.parameter(share.parameter.parameter)
        assert parameter is not None
        return parameter.name, parameter.pair.gradient
