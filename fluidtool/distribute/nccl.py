"""NCCL mode: every trainer optimizes by itself, ParallelExecutor sums gradients; only the startup program changes."""

from __future__ import annotations

from fluidtool.distribute.analysis import check_untouched
from fluidtool.distribute.appending import append
from fluidtool.errors import UsageError
from fluidtool.ir import Program
from fluidtool.proto.enums import VarType
from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class NcclPlan:
    """Who takes part. inner_ranks: trainers of one machine, for hierarchical sums (0 without).

    Raises UsageError for a trainer that is not one of them, or ranks that do not fit.
    """

    trainer_id: int
    endpoints: tuple[str, ...]
    current_endpoint: str
    communicators: int = 1
    hierarchical: bool = False
    inner_ranks: int = 0

    def __post_init__(self) -> None:
        check_member(self.trainer_id, self.endpoints, self.current_endpoint)
        if self.communicators < 1:
            raise UsageError(f"nccl_comm_num must be at least 1, found {self.communicators}")
        if self.hierarchical:
            self._check_ranks()

    def _check_ranks(self) -> None:
        count, inner = len(self.endpoints), self.inner_ranks
        if inner < 1 or count <= inner or count % inner:
            raise UsageError(
                f"hierarchical_allreduce_inter_nranks is {inner}, which does not divide {count} trainers into several "
                "equal groups; set it to the number of trainers on each machine, or use_hierarchical_allreduce to "
                "False"
            )

    @property
    def others(self) -> list[str]:
        """The endpoints of the other trainers."""
        return [endpoint for endpoint in self.endpoints if endpoint != self.current_endpoint]

    def identifiers(self) -> list[str]:
        """The variables that hold identifiers of communicators; the first is the operator's output."""
        names = ["NCCLID", *(f"NCCLID_{index}" for index in range(1, self.communicators))]
        if self.hierarchical:
            for index in range(self.communicators):
                names += [f"Hierarchical_inter_NCCLID_{index}", f"Hierarchical_exter_NCCLID_{index}"]
        return names


def check_member(trainer_id: object, endpoints: tuple[str, ...], current_endpoint: str) -> None:
    """Raises UsageError unless trainer_id and current_endpoint name one of the endpoints."""
    listed = ", ".join(endpoints)
    if not isinstance(trainer_id, int) or isinstance(trainer_id, bool) or not 0 <= trainer_id < len(endpoints):
        raise UsageError(
            f"trainer_id must be between 0 and {len(endpoints) - 1} for {len(endpoints)} trainers, found {trainer_id!r}"
        )
    if current_endpoint not in endpoints:
        raise UsageError(f"current_endpoint must be one of the trainers, {listed}, found {current_endpoint}")


def transpile_for_nccl(main: Program, startup: Program, plan: NcclPlan) -> None:
    """Add the exchange of identifiers to the startup program, and notes to the main one, in place.

    Raises ProgramError for programs that were transpiled before.
    """
    check_untouched(main, startup)
    block, names = startup.global_block(), plan.identifiers()
    for name in names:
        block.create_var(name=name, persistable=True, type=VarType.RAW)
    attrs = {
        "trainers": list(plan.endpoints),
        "trainer_id": plan.trainer_id,
        "nccl_comm_num": plan.communicators,
        "use_hierarchical_allreduce": plan.hierarchical,
        "hierarchical_allreduce_inter_nranks": plan.inner_ranks,
    }
    append(block, "gen_nccl_id", {}, {"NCCLID": [names[0]]}, attrs)
    main._trainers_endpoints = list(plan.endpoints)
    main._nccl_comm_num = plan.communicators
    main._use_hierarchical_allreduce = plan.hierarchical
    if plan.hierarchical:
        main._hierarchical_allreduce_inter_nranks = plan.inner_ranks
