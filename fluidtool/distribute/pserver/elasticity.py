"""What the environment says of an elastic job: FLUIDTOOL_ELASTIC, which `fluidtool launch --elastic` sets for every role."""

from __future__ import annotations

from collections.abc import Mapping

from fluidtool.distribute.endpoints import parse_endpoints
from fluidtool.distribute.launch.contract import ELASTIC, ELASTIC_SERVERS, ELASTIC_TRAINERS
from fluidtool.errors import Hint, UsageError
from fluidtool.records import dataclass


@dataclass(frozen=True, slots=True)
class Elasticity:
    """least: trainers without which no round opens. starting: how many are started with the job (None: all of them)."""

    least: int
    starting: int | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Elasticity | None:
        """None where the job is not elastic; raises UsageError for values that are no numbers."""
        if not environment.get(ELASTIC):
            return None
        starting = _number(environment, ELASTIC_TRAINERS) if environment.get(ELASTIC_TRAINERS) else None
        return cls(_number(environment, ELASTIC), starting)

    def check(self, trainers: int) -> None:
        """Raise UsageError where a job whose programs are for so many trainers cannot be like this."""
        if trainers < 2:
            raise UsageError(
                "the programs of this job are for one trainer, so none can join or leave",
                hint=Hint(
                    "make the job for as many trainers as there may be at a time: trainers='4'",
                    "make the job for as many trainers as there may be at a time: transpile --trainers 4",
                ),
            )
        for what, number in ((ELASTIC, self.least), (ELASTIC_TRAINERS, self.starting)):
            if number is not None and number > trainers:
                raise UsageError(f"{what} is {number}, but the programs of this job are for {trainers} trainers")


def servers_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The endpoints of the job's servers, the one that keeps the roll first; raises UsageError where nothing says them."""
    text = environment.get(ELASTIC_SERVERS)
    if not text:
        raise UsageError(
            "nothing says which servers the job has, so that this one cannot ask the first of them who takes part; set "
            f"{ELASTIC_SERVERS}=HOST:PORT,… (fluidtool run and fluidtool launch do that for roles of a job folder)"
        )
    return parse_endpoints(text, ELASTIC_SERVERS)


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment[name]
    if not text.isdecimal() or not int(text):
        raise UsageError(f"{name} must be a number of trainers, at least 1, found {text!r}")
    return int(text)
