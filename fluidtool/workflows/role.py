"""`play_role(request)`: plays a role of a distributed job: a server serves, a trainer trains."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from fluidtool.distribute.checkpoints import Schedule
from fluidtool.distribute.environment import PSERVER
from fluidtool.distribute.launch.contract import ELASTIC, ELASTIC_SERVERS, STARTS
from fluidtool.distribute.launch.jobs import endpoints_of
from fluidtool.distribute.launch.progress import Reporter
from fluidtool.distribute.metrics.endpoint import shown_metrics
from fluidtool.distribute.metrics.exposition import Family
from fluidtool.distribute.metrics.roles import of_any_role, of_trainer
from fluidtool.distribute.rpc.certificates import certificate_variables
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.distribute.rpc.security import is_loopback
from fluidtool.environment import environment_variables
from fluidtool.errors import Hint, PolicyError, UsageError
from fluidtool.runtime import Policy
from fluidtool.training import TrainingPrograms, find_loss, open_programs
from fluidtool.training.elastic import ElasticTraining
from fluidtool.training.roles import ENDS_ROUND, RolePlace, RoleTraining, find_place, role_kind, serve
from fluidtool.workflows.train import (
    SilentTraining,
    TrainingRequest,
    TrainingResult,
    TrainingWatcher,
    check_fetches,
    check_outputs,
    order_of,
    run_and_save,
)
from fluidtool.workflows.training_data import read_data


def play_role(
    request: TrainingRequest,
    watcher: TrainingWatcher | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
) -> TrainingResult | None:
    """Serve (None) or train until the end, in the folder of a role that `make_job` wrote.

    The manifest next to the folder says which role it is, or else the environment does. Only trainer 0 writes results.
    Endpoints on this machine are allowed; others, if the policy allows all. Raises UsageError, PolicyError, what
    `train` raises, and RemoteError or CollectiveError for peers that are gone.
    """
    programs = open_programs(request.folder, any_role=True)
    kind = role_kind(programs)
    if kind is None:
        raise UsageError(
            f"{request.folder} has no programs of a distributed job",
            hint=Hint(
                "fluidtool.train trains them in this process alone",
                f"'fluidtool train {request.folder} --data FILE' trains them in this process alone",
            ),
        )
    role = find_place(request.folder, kind, environment)
    request = replace(request, policy=_policy(programs, role, request))
    found = certificate_variables(request.folder, environment)  # where connections look for them
    if environment.get(ELASTIC):
        _check_elastic(role)
        found = {**found, ELASTIC_SERVERS: ",".join(role.servers)}
    with environment_variables(found):
        return _play(programs, kind, role, request, watcher or SilentTraining(), environment)


def _play(
    programs: TrainingPrograms,
    kind: str,
    role: RolePlace,
    request: TrainingRequest,
    watcher: TrainingWatcher,
    environment: Mapping[str, str],
) -> TrainingResult | None:
    if kind == PSERVER:
        if request.data.files:
            hint = Hint("omit the files", "omit --data")
            raise UsageError(f"{request.folder} belongs to a server, which takes no data", hint=hint)
        serve(programs, request.place, request.policy, request.seed)
        return None
    if not request.data.files:
        hint = Hint("give it examples: data=DataFiles([FILE])", "give it examples with --data FILE")
        raise UsageError(f"{request.folder} belongs to a trainer", hint=hint)
    schedule = Schedule.from_environment(environment, role.name)
    request = _as_trainer(request, role, environment)
    return _train(programs, role, schedule, request, watcher, environment)


def _check_elastic(role: RolePlace) -> None:
    if not role.servers:
        raise UsageError(
            f"{ELASTIC} is set, but trainers that work without servers sum their gradients in rings of a fixed size: none can "
            "join or leave",
            hint=Hint("make the job with parameter servers: mode='pserver'", "make the job with --mode pserver"),
        )


def _policy(programs: TrainingPrograms, role: RolePlace, request: TrainingRequest) -> Policy:
    """Endpoints on this machine are allowed to a role, other ones only where the user says so."""
    if request.policy.endpoints is None:
        return request.policy
    found = [*role.servers, *TransportOptions.from_environment(os.environ).replicas.values()]
    found += [name for program in (programs.main, programs.startup) if program for name in endpoints_of(program)]
    far = [endpoint for endpoint in found if not is_loopback(endpoint)]
    if far:
        raise PolicyError(
            f"the programs in {request.folder} connect to {', '.join(dict.fromkeys(far))}, which is not this machine",
            hint=Hint("allow it: policy=Policy(endpoints=None)", "allow it with --allow-network"),
        )
    return replace(request.policy, endpoints=frozenset(found))


def _as_trainer(request: TrainingRequest, role: RolePlace, environment: Mapping[str, str]) -> TrainingRequest:
    """Only trainer 0 writes files; after a restart it replaces what it wrote before. Of an elastic job any trainer may save."""
    first, again = role.member.index == 0, environment.get(STARTS, "1") != "1"
    return replace(
        request,
        save=request.save if first or environment.get(ELASTIC) else None,
        log=request.log if first else None,
        overwrite=request.overwrite or again,
    )


def _train(
    programs: TrainingPrograms,
    role: RolePlace,
    schedule: Schedule | None,
    request: TrainingRequest,
    watcher: TrainingWatcher,
    environment: Mapping[str, str],
) -> TrainingResult:
    loss = find_loss(programs.main, request.loss)
    check_fetches(programs, request.fetch)
    data = read_data(programs, request.data)
    is_elastic = bool(environment.get(ELASTIC))
    order = replace(order_of(programs, data, request), trainer=role.member.index, trainers=role.trainers)
    if is_elastic and any(op.type == ENDS_ROUND for op in programs.main.global_block().ops):
        order = replace(order, whole=True)
    trainer = (ElasticTraining if is_elastic else RoleTraining)(
        programs,
        data,
        order,
        loss,
        role=role,
        schedule=schedule,
        reporter=Reporter.from_environment(environment),
        fetch=request.fetch,
        place=request.place,
        policy=request.policy,
        seed=request.seed,
    )
    check_outputs(trainer, request)
    failed = True

    def collect() -> list[Family]:
        return of_any_role(role.name, environment) + of_trainer(trainer.reporter.last)

    try:
        with shown_metrics(environment, collect), trainer.until_asked():
            trainer.initialize()
            request = replace(request, resume=trainer.position is not None)
            if trainer.position is not None:
                watcher.say(f"resumed after step {trainer.position.step} of epoch {trainer.position.epoch}")
            result = run_and_save(trainer, request, watcher)
        failed = False
    finally:
        trainer.close(failed=failed)
    return result
