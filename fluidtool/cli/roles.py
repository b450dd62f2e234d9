"""The part of `run` that plays a role of a distributed job: a server serves, a trainer trains."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fluidtool.cli import training
from fluidtool.cli.failures import say
from fluidtool.cli.opening import parse_device, policy_of
from fluidtool.distribute.checkpoints import Schedule
from fluidtool.distribute.environment import PSERVER
from fluidtool.distribute.launch.contract import STARTS
from fluidtool.distribute.launch.jobs import endpoints_of
from fluidtool.distribute.launch.progress import Reporter
from fluidtool.distribute.rpc.security import is_loopback
from fluidtool.errors import PolicyError, UsageError
from fluidtool.runtime import Policy
from fluidtool.tensor import Place
from fluidtool.training import TrainingPrograms, find_loss, open_programs
from fluidtool.training.roles import RolePlace, RoleTraining, find_place, role_kind, serve


@dataclass(frozen=True, slots=True)
class Request:
    """The options of `run` that a role knows."""

    folder: Path
    data: Sequence[str]
    lods: Sequence[str]
    inputs: Sequence[str]
    batch_size: int | None
    epochs: int
    shuffle: bool
    drop_last: bool
    loss: str | None
    fetch: Sequence[str]
    save: Path | None
    log: Path | None
    json: bool
    force: bool
    device: str
    seed: int
    allow_files: Sequence[Path]
    allow_network: bool


def play(request: Request) -> None:
    """Serve or train until the end; raises RemoteError and CollectiveError for peers that are gone."""
    place = parse_device(request.device)
    programs = open_programs(request.folder, any_role=True)
    kind = role_kind(programs)
    if kind is None:
        raise UsageError(
            f"{request.folder} has no programs of a distributed job; 'fluidtool train {request.folder} --data FILE' trains "
            "them in this process alone"
        )
    role = find_place(request.folder, kind, os.environ)
    policy = _policy(programs, request)
    if kind == PSERVER:
        if request.data:
            raise UsageError(f"{request.folder} is a server's, which takes no data; leave --data out")
        serve(programs, place, policy, request.seed or 1)
        return
    if not request.data:
        raise UsageError(f"{request.folder} is a trainer's; give it examples, --data FILE")
    _train(programs, role, request, place, policy)


def _policy(programs: TrainingPrograms, request: Request) -> Policy:
    """Endpoints on this machine are allowed to a role, other ones only where the user says so."""
    policy = policy_of(request.allow_files, request.allow_network)
    if request.allow_network:
        return policy
    found = [name for program in (programs.main, programs.startup) if program for name in endpoints_of(program)]
    far = [endpoint for endpoint in found if not is_loopback(endpoint)]
    if far:
        raise PolicyError(
            f"the programs in {request.folder} talk to {', '.join(dict.fromkeys(far))}, which is not this machine; allow it with "
            "--allow-network"
        )
    return replace(policy, endpoints=frozenset(found))


def _train(programs: TrainingPrograms, role: RolePlace, request: Request, place: Place, policy: Policy) -> None:
    schedule = Schedule.from_environment(os.environ, role.name)
    wanted = _training_request(request, role, schedule)
    loss = find_loss(programs.main, request.loss)
    training.check_fetches(programs, request.fetch)
    data = training.read_data(programs, wanted)
    order = replace(training.order_of(programs, data, wanted), trainer=role.member.index, trainers=role.trainers)
    reporter = Reporter.from_environment(os.environ)
    trainer = RoleTraining(
        programs,
        data,
        order,
        loss,
        role=role,
        schedule=schedule,
        reporter=reporter,
        fetch=request.fetch,
        place=place,
        policy=policy,
        seed=wanted.seed,
    )
    training.check_outputs(trainer, wanted)
    failed = True
    try:
        trainer.initialize()
        if trainer.position is not None:
            say(f"resumed after step {trainer.position.step} of epoch {trainer.position.epoch}")
        training.run_steps(trainer, None, wanted)
        training.save_results(trainer, wanted)
        failed = False
    finally:
        trainer.close(failed=failed)


def _training_request(request: Request, role: RolePlace, schedule: Schedule | None) -> training.Request:
    """What `train` would be asked. Only trainer 0 writes files; after a restart it replaces what it wrote before."""
    first, again = role.member.index == 0, os.environ.get(STARTS, "1") != "1"
    return training.Request(
        program_dir=request.folder,
        main=None,
        startup=None,
        data=request.data,
        lods=request.lods,
        inputs=request.inputs,
        batch_size=request.batch_size,
        epochs=request.epochs,
        shuffle=request.shuffle,
        drop_last=request.drop_last,
        loss=request.loss,
        init=None,
        fetch=request.fetch,
        save=request.save if first else None,
        save_inference_model=None,
        targets=[],
        log=request.log if first else None,
        json=request.json,
        log_every=1,
        force=request.force or again,
        checkpoint=None,
        checkpoint_every="1epoch",
        keep=1,
        resume=schedule is not None and schedule.resume_step is not None,
        device=request.device,
        seed=request.seed or 1,
        allow_nan=False,
        allow_files=request.allow_files,
        allow_network=request.allow_network,
    )
