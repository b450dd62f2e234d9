"""The plan of a job with parameter servers: which shard of which parameter lives where. Data only, and questions to it."""

from __future__ import annotations

from collections.abc import Iterator

from fluidtool.distribute.analysis import Analysis, ParamGrad
from fluidtool.distribute.settings import Settings
from fluidtool.distribute.sharding import Shard
from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class Placement:
    """A shard of a parameter on its server.

    gradient: the shard as this trainer names it. merged: its name on the server, without a trainer's number. endpoint:
    the server of the parameter. target: where the gradient is sent (the same server, unless a dispatcher of the user's
    own says otherwise).
    """

    parameter: Shard
    gradient: Shard
    merged: str
    endpoint: str
    target: str


@dataclass(frozen=True, slots=True)
class ParameterPlan:
    """A parameter and its gradient, and their shards.

    sent_as: the gradient's name in the trainer's program. remote: trainers ask for single rows of it.
    """

    pair: ParamGrad
    sent_as: str
    placements: tuple[Placement, ...]
    remote: bool = False

    @property
    def name(self) -> str:
        """The parameter's name."""
        return self.pair.parameter

    @property
    def is_cut(self) -> bool:
        """Whether it lives in more than one shard."""
        return len(self.placements) > 1

    @property
    def heights(self) -> list[int]:
        """Rows of each shard."""
        return [placement.gradient.shape[0] for placement in self.placements]

    @property
    def endpoints(self) -> list[str]:
        """The server of each shard."""
        return [placement.endpoint for placement in self.placements]


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The table of `embedding(is_distributed=True)`: row i lives on server i modulo their number.

    sends: the names under which this trainer sends each server its part of the gradient.
    """

    name: str
    gradient: str
    sends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DistributePlan:
    """Everything that builders need beside the programs themselves.

    parameters: in the order of the program. sent: positions in `parameters`, in the order in which gradients are dealt
    out. counters: step counters that learning rates are computed from, where servers sum the trainers' (asynchronous).
    sparse_tables: parameters that trainers do not fill at the start. server_only: variables that only servers need.
    """

    settings: Settings
    analysis: Analysis
    parameters: tuple[ParameterPlan, ...]
    sent: tuple[int, ...]
    table: TablePlan | None
    counters: tuple[str, ...]
    sparse_tables: tuple[str, ...]
    server_only: tuple[str, ...]

    @property
    def sent_names(self) -> dict[str, str]:
        """Gradients that have another name in the trainer's program: name -> name there."""
        return {plan.pair.gradient: plan.sent_as for plan in self.parameters if plan.sent_as != plan.pair.gradient}

    def in_sending_order(self) -> list[ParameterPlan]:
        """The parameters in the order in which their gradients are dealt out."""
        return [self.parameters[position] for position in self.sent]

    def parameter(self, name: str) -> ParameterPlan | None:
        """The plan of the parameter of this name."""
        return next((plan for plan in self.parameters if plan.name == name), None)

    def placements(self) -> Iterator[Placement]:
        """Every shard, in sending order."""
        for plan in self.in_sending_order():
            yield from plan.placements

    def placements_on(self, endpoint: str) -> list[Placement]:
        """The shards of one server, in sending order."""
        return [placement for placement in self.placements() if placement.endpoint == endpoint]

    def placement_of_each(self, endpoint: str) -> dict[str, Placement]:
        """The (first) shard of each parameter on a server, by the parameter's name."""
        found: dict[str, Placement] = {}
        for placement in self.placements_on(endpoint):
            found.setdefault(placement.parameter.parameter, placement)
        return found

    def trainer_counter(self) -> str | None:
        """The counter that this trainer sends: its own copy of the last one."""
        return counter_name(self.counters[-1], self.settings.trainer_id) if self.counters else None


def counter_name(counter: str, trainer_id: int) -> str:
    """What trainers call their own copy of a step counter."""
    return f"{counter}.trainer_{trainer_id}"
