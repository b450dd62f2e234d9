"""The Ray engine: an actor for each role, in one placement group, servers first and all spread over the machines.

An actor is the keeper of one process: it starts it, reads its output and reports, and takes it along when it dies. The
supervisor asks all actors how things stand, and starts roles again from their checkpoints. Actors are made from small
values only (what is large can be lost with the object store), no method is repeated by Ray (steps are not idempotent), and
no tensor goes through Ray. The job, its data and its checkpoints must be at the same paths on all machines.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fluidtool.distribute.launch.blueprint import Blueprint
from fluidtool.distribute.launch.contract import PROGRESS
from fluidtool.distribute.launch.hosts import own_address, own_endpoint, token_for
from fluidtool.distribute.launch.plans import Role, base_environment, role_process
from fluidtool.distribute.launch.processes import Child
from fluidtool.distribute.launch.progress import Note, ProgressFile, Report
from fluidtool.distribute.launch.supervisor import Line
from fluidtool.errors import DeviceError
from fluidtool.records import dataclass

PATIENCE = 60.0  # seconds for an actor to come back, or to answer
LOST = 128 + signal.SIGKILL
REACH = (
    "check the address with 'ray status'; if the cluster asks for a token, as those of Ray 2.60 do by default, set "
    "RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to that token"
)


def load_ray() -> Any:
    """The package ray; raises DeviceError where it is missing."""
    try:
        import ray
    except ImportError as error:
        raise DeviceError("the engine ray needs Ray; install it with: pip install 'fluidtool[ray,dist]'") from error
    return ray


# ---------------------------------------------------------------- on the machine of a role
@dataclass(frozen=True, slots=True)
class News:
    """What became of a process since it was last asked for; plain data. last: nothing follows."""

    lines: tuple[Line, ...]
    reports: tuple[Report | Note, ...]
    exit_code: int | None


class Keeper:
    """The actor of one role."""

    def __init__(self, blueprint: Blueprint, index: int) -> None:
        self.blueprint, self.index = blueprint, index
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._child: Child | None = None
        self._progress: ProgressFile | None = None

    def address(self) -> str:
        """Where this machine is reached."""
        return own_address()

    def endpoint(self, addresses: Sequence[str]) -> str:
        """A free endpoint here, when the roles are at these addresses."""
        return own_endpoint(addresses, own_address())

    def start(self, endpoints: Sequence[str], environment: Mapping[str, str], resources: int) -> tuple[int, int]:
        """Start the process of the role; the numbers of this process and of that one."""
        self.end()
        self._folder = tempfile.TemporaryDirectory(prefix="fluidtool-launch-")
        folder = Path(self._folder.name)
        role = self.blueprint.roles(tuple(endpoints), folder)[self.index]
        self._progress = ProgressFile(folder / "progress.jsonl")
        found = {**base_environment(resources, os.environ), **role.environment, **environment}
        self._child = Child(role_process(role), found | {PROGRESS: str(self._progress.path)})
        return os.getpid(), self._child.process

    def news(self) -> News:
        """What it has written and reported since the last call, and whether it is over."""
        assert self._child is not None and self._progress is not None
        code = self._child.exit_code()
        outputs = enumerate(self._child.outputs)
        lines = [(line, bool(e)) for e, output in outputs if not output.at_end for line in output.read()]
        return News(tuple(lines), tuple(self._progress.read()), code)

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        if self._child is not None:
            self._child.signal(signal.Signals(number))

    def end(self) -> News:
        """Kill what is left of the process; its last words."""
        if self._child is None or self._progress is None or self._folder is None:
            return News((), (), None)
        self._child.signal(signal.SIGKILL)
        outputs = enumerate(self._child.outputs)
        lines = [(line, bool(e)) for e, output in outputs if not output.at_end for line in output.drain()]
        code, reports = self._child.exit_code(), tuple(self._progress.read())
        self._child.close()
        self._folder.cleanup()
        self._child = None
        return News(tuple(lines), reports, code)


# ---------------------------------------------------------------- where the job was launched
class RayProcess:
    """A role as its actor tells of it. An actor that is gone has taken the process along."""

    def __init__(self, actor: Any, process: int) -> None:
        self.actor, self._process = actor, process
        self._lines: list[Line] = []
        self._reports: list[Report | Note] = []
        self._code: int | None = None

    @property
    def process(self) -> int:
        """Its number at its machine."""
        return self._process

    def hear(self, news: News) -> None:
        """What the actor says."""
        self._lines += news.lines
        self._reports += news.reports
        self._code = self._code if news.exit_code is None else news.exit_code

    def lose(self) -> None:
        """The actor is gone."""
        if self._code is None:
            self._code = LOST
            self._lines.append(("the actor of this role is gone", True))

    def lines(self) -> list[Line]:
        """What it has written since the last call."""
        found, self._lines = self._lines, []
        return found

    def reports(self) -> list[Report | Note]:
        """What it has reported since the last call."""
        found, self._reports = self._reports, []
        return found

    def exit_code(self) -> int | None:
        """What it left with; None while it runs."""
        return self._code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        if self._code is None:
            self.actor.signal.remote(int(number))

    def close(self) -> list[Line]:
        """Kill what is left of it; its last words."""
        ray = load_ray()
        try:
            self.hear(ray.get(self.actor.end.remote(), timeout=PATIENCE))
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
            self.lose()
        if self._code is None:
            self._code = LOST
        return self.lines()


class RayEngine:
    """Places and asks actors. restarts: how often Ray brings each of them back by itself.

    address: a cluster ("auto", "ray://head:10001", "10.0.0.1:6379"); None: a new Ray on this machine, for this job alone.
    Raises DeviceError where Ray is missing, is not reached, or has no room for the roles.
    """

    def __init__(self, blueprint: Blueprint, address: str | None, restarts: int) -> None:
        self._ray = load_ray()
        self._blueprint, self._restarts = blueprint, restarts
        self._members = blueprint.cluster(("",) * blueprint.listeners).members()
        self._actors: dict[str, Any] = {}
        self._running: list[RayProcess] = []
        self._endpoints: tuple[str, ...] = ()
        self._token: dict[str, str] = {}
        self._connect(address)
        self._group = self._place()

    def roles(self) -> tuple[Role, ...]:
        """The roles, whose words their actors know."""
        return tuple(Role(member.name, member.kind, ()) for member in self._members)

    def _connect(self, address: str | None) -> None:
        where: dict[str, Any] = {"address": address or "local"}
        if not address:
            where |= {"num_cpus": len(self._members), "include_dashboard": False}
        try:
            self._ray.init(log_to_driver=False, configure_logging=False, **where)
        except (ConnectionError, RuntimeError, ValueError, self._ray.exceptions.RayError) as error:
            text = f"Ray at {address or 'this machine'} cannot be used: {error}"
            raise DeviceError(text, hint=REACH if address else "") from error

    def _place(self) -> Any:
        from ray.util.placement_group import placement_group

        group = placement_group([{"CPU": 1}] * len(self._members), strategy="SPREAD")
        if not group.wait(timeout_seconds=PATIENCE):
            have = self._ray.available_resources().get("CPU", 0)
            raise DeviceError(
                f"the job has {len(self._members)} roles, which need one CPU each, but Ray has {have:g} free; add "
                "machines, or use fewer roles"
            )
        return group

    def _actor(self, index: int) -> Any:
        """A new actor of a role, in its place."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        place = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=index)
        path = {"PYTHONPATH": found} if (found := base_environment(1).get("PYTHONPATH")) else {}
        keeper = self._ray.remote(Keeper).options(
            num_cpus=1,
            max_restarts=self._restarts,
            max_task_retries=0,
            scheduling_strategy=place,
            runtime_env={"env_vars": path},
        )
        return keeper.remote(self._blueprint, index)

    # ------------------------------------------------------------ the engine of a supervisor
    def prepare(self, roles: Sequence[Role], *, all_roles: bool) -> None:
        """Have an actor for each of these roles, and endpoints: new ones when the whole job starts."""
        self._running = [process for process in self._running if process.exit_code() is None]
        addresses = {member.name: self._address(index) for index, member in enumerate(self._members)}
        if all_roles:
            listeners = self._members[: self._blueprint.listeners]
            listed = list(addresses.values())
            asked = [self._actors[member.name].endpoint.remote(listed) for member in listeners]
            self._endpoints = tuple(self._ray.get(asked, timeout=PATIENCE))
            self._token = self._token or token_for(self._endpoints, os.environ)

    def _address(self, index: int) -> str:
        """The address of a role's machine; waits for an actor that Ray brings back, and makes a new one when it does not."""
        name, due = self._members[index].name, time.monotonic() + PATIENCE
        while True:
            if name not in self._actors:
                self._actors[name] = self._actor(index)
            try:
                return str(self._ray.get(self._actors[name].address.remote(), timeout=PATIENCE))
            except self._ray.exceptions.ActorUnavailableError as error:
                if time.monotonic() > due:
                    raise DeviceError(f"the actor of {name} was not restored: {error}") from error
                time.sleep(0.2)
            except self._ray.exceptions.RayActorError as error:
                del self._actors[name]
                if time.monotonic() > due:
                    raise DeviceError(f"the actor of {name} cannot be started: {error}") from error

    def start(self, role: Role, environment: dict[str, str]) -> RayProcess:
        """Start the process of a role; raises DeviceError when its actor is gone."""
        actor = self._actors[role.name]
        started = actor.start.remote(self._endpoints, environment | self._token, len(self._members))
        try:
            _, process = self._ray.get(started, timeout=PATIENCE)
        except self._ray.exceptions.RayActorError as error:
            raise DeviceError(f"the actor of {role.name} died at the start: {error}") from error
        found = RayProcess(actor, process)
        self._running.append(found)
        return found

    def wait(self, seconds: float) -> None:
        """Ask all actors at once."""
        time.sleep(seconds)
        live = [process for process in self._running if process.exit_code() is None]
        asked = [(process, process.actor.news.remote()) for process in live]
        for process, answer in asked:
            try:
                process.hear(self._ray.get(answer, timeout=PATIENCE))
            except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError):
                process.lose()

    def close(self) -> None:
        """Take actors and placement group away, and leave Ray."""
        from ray.util.placement_group import remove_placement_group

        for actor in self._actors.values():
            self._ray.kill(actor)
        remove_placement_group(self._group)
        self._ray.shutdown()
