"""The lines of `launch --json`, by event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypedDict

from fluidtool.report.common import Number

Schema = Annotated[Literal["fluidtool.launch/1"], "the kind of this line"]
Text = Annotated[str, "the event as a sentence"]
Role = Annotated[str, "the name of the role, such as trainer_0"]


class StartedLine(TypedDict):
    """Roles were started."""

    schema: Schema
    event: Annotated[Literal["start"], "what happened"]
    text: Text
    processes: Annotated[Mapping[str, int | None], "the process of each role by the role's name; null if it is remote"]
    step: Annotated[
        int | None, "the step that all resume from; null at the beginning, or if they differ (`text` names them)"
    ]


class RoleLine(TypedDict):
    """A role is done, or was killed because it did not end."""

    schema: Schema
    event: Annotated[Literal["done", "kill"], "what happened"]
    text: Text
    role: Role


class FailureLine(TypedDict):
    """A role failed, and so does the job."""

    schema: Schema
    event: Annotated[Literal["failure"], "what happened"]
    text: Text
    role: Role
    exit_code: Annotated[int, "the exit code of the job"]


class RestartLine(TypedDict):
    """A role failed, and roles are restarted."""

    schema: Schema
    event: Annotated[Literal["restart"], "what happened"]
    text: Text
    role: Role
    exit_code: Annotated[int, "the exit code of the role"]
    restart: Annotated[int, "the number of this restart"]


class WithoutLine(TypedDict):
    """A trainer of an elastic job failed, and the job continues without it."""

    schema: Schema
    event: Annotated[Literal["without"], "what happened"]
    text: Text
    role: Role
    exit_code: Annotated[int, "the exit code of the role"]


class TrainerLine(TypedDict):
    """A trainer joined or left an elastic job, was left out of a round, or came late."""

    schema: Schema
    event: Annotated[Literal["join", "leave", "left_out", "late"], "what happened"]
    text: Text
    role: Role
    round: Annotated[int, "the round; 0 in an asynchronous job, which has none"]


class CopyLine(TypedDict):
    """Both copies of a server have everything, one of them continues alone, or the backup took over."""

    schema: Schema
    event: Annotated[Literal["paired", "alone", "succeeded"], "what happened"]
    text: Text
    role: Role
    term: Annotated[int, "the number of the configuration of the two copies"]


class InterruptLine(TypedDict):
    """The job was asked to end."""

    schema: Schema
    event: Annotated[Literal["interrupt"], "what happened"]
    text: Text
    signal: Annotated[str, "the name of the signal"]


class RoleStatus(TypedDict):
    """Where a role stands."""

    role: Role
    state: Annotated[Literal["waiting", "running", "done", "failed", "stopped"], "what it does"]
    starts: Annotated[int, "how many times it was started"]
    process: Annotated[int | None, "its process; null if there is none on this machine"]
    step: Annotated[int | None, "the last step that it reported"]
    loss: Annotated[Number | None, "the last loss that it reported"]
    steps_per_second: Annotated[float | None, "its speed over the last seconds"]
    examples_per_second: Annotated[float | None, "the examples that it trains on, over the last seconds"]
    bytes_sent: Annotated[int, "what it sent to other roles"]
    bytes_received: Annotated[int, "what it received from other roles"]
    exit_code: Annotated[int | None, "its exit code; null while it runs"]
    last_error: Annotated[str | None, "how it failed last, and what it wrote last to stderr; null if it never failed"]
    late: Annotated[int, "the rounds in which others waited for it; counted with --stragglers or --elastic"]


class StatusLine(TypedDict):
    """Where the roles stand, every 10 seconds."""

    schema: Schema
    event: Annotated[Literal["status"], "what happened"]
    roles: Annotated[Sequence[RoleStatus], "the roles in order"]


class EndLine(TypedDict):
    """The job is over: the last line."""

    schema: Schema
    event: Annotated[Literal["end"], "what happened"]
    text: Text
    exit_code: Annotated[int, "the exit code of the command"]
    reason: Annotated[str | None, "why it failed; null if all trainers are done"]
    seconds: Annotated[float, "how long it took"]
    restarts: Annotated[int, "how many times roles were restarted"]
    roles: Annotated[Sequence[RoleStatus], "the roles in order"]


LaunchReport = (  # by `event`
    StartedLine
    | RoleLine
    | FailureLine
    | RestartLine
    | WithoutLine
    | TrainerLine
    | CopyLine
    | InterruptLine
    | StatusLine
    | EndLine
)
