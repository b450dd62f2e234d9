"""Role makers: which worker or server of a job this process is (Paddle 1.8.5 role_maker.py).

Scripts may derive their own from RoleMakerBase.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NoReturn

from fluidtool.errors import ArgumentTypeError, UnsupportedOperatorError, UsageError

__all__ = [
    "GeneralRoleMaker",
    "MPISymetricRoleMaker",
    "PaddleCloudRoleMaker",
    "Role",
    "RoleMakerBase",
    "UserDefinedCollectiveRoleMaker",
    "UserDefinedRoleMaker",
]

WANTED = "'fluidtool launch' sets it for every role that it starts"


class Role:
    """The two roles."""

    WORKER = 1
    SERVER = 2


class RoleMakerBase:
    """What a fleet asks of a role maker. Workers that exchange values by themselves are not offered: see `barrier_worker`."""

    def __init__(self) -> None:
        self._worker_endpoints: list[str] = []
        self._server_endpoints: list[str] = []
        self._role_is_generated = False
        self._role: int | None = None
        self._current_id = -1

    def generate_role(self) -> None:
        """Find out the role; raises NotImplementedError: a derived class does."""
        self._derived("generate_role")

    def is_worker(self) -> bool:
        """Whether this process trains."""
        self._derived("is_worker")

    def is_server(self) -> bool:
        """Whether this process is a parameter server."""
        self._derived("is_server")

    def is_first_worker(self) -> bool:
        """Whether this process is worker 0."""
        self._derived("is_first_worker")

    def worker_num(self) -> int:
        """The number of workers."""
        self._derived("worker_num")

    def worker_index(self) -> int:
        """The number of this worker."""
        self._derived("worker_index")

    def server_index(self) -> int:
        """The number of this server."""
        self._derived("server_index")

    def get_trainer_endpoints(self) -> list[str]:
        """The endpoints of the workers."""
        return self._worker_endpoints

    def get_pserver_endpoints(self) -> list[str]:
        """The endpoints of the servers."""
        return self._server_endpoints

    def to_string(self) -> str:
        """Role, number and endpoints in a line."""
        return (
            f"role: {self._role}, current_id: {self._current_id}, worker_endpoints: {self._worker_endpoints}, "
            f"server_endpoints: {self._server_endpoints}"
        )

    def barrier_worker(self) -> None:
        """Wait for the other workers; raises UnsupportedOperatorError where there are some."""
        self._alone("barrier_worker")

    def barrier_all(self) -> None:
        """Wait for all roles; raises UnsupportedOperatorError where there are others."""
        self._alone("barrier_all")

    def all_gather(self, input: Any) -> list[Any]:
        """The values of all roles, as a list; raises UnsupportedOperatorError where there are others."""
        self._alone("all_gather")
        return [input]

    def all_reduce_worker(self, input: Any, output: Any, mode: str = "sum") -> None:
        """Write the sum, minimum or maximum over all workers to `output`; raises UnsupportedOperatorError for several."""
        self._alone("all_reduce_worker")
        if mode not in ("sum", "min", "max"):
            raise UsageError(f"unknown mode: {mode}; all_reduce_worker takes sum, min and max")
        for index, value in enumerate(input):
            output[index] = value

    def _alone(self, method: str) -> None:
        if self.worker_num() > 1:
            raise UnsupportedOperatorError(
                f"{type(self).__name__}.{method}: role makers of fluidtool do not exchange values between {self.worker_num()} "
                "workers (Paddle's do through MPI or Gloo); let the program do it, with fluid.layers.collective"
            )

    def _derived(self, method: str) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} derives from RoleMakerBase and has no method {method}")


class _AssignedRoleMaker(RoleMakerBase):
    """Answers from `_role`, `_current_id` and `_trainers_num`, which `generate_role` sets once."""

    _trainers_num = 0

    def generate_role(self) -> None:
        """Find out the role, if that was not done before."""
        if not self._role_is_generated:
            self._assign()
            self._role_is_generated = True

    def _assign(self) -> None:
        """Set the fields."""

    def is_worker(self) -> bool:
        self.generate_role()
        return self._role == Role.WORKER

    def is_server(self) -> bool:
        self.generate_role()
        return self._role == Role.SERVER

    def is_first_worker(self) -> bool:
        return self.is_worker() and self._current_id == 0

    def worker_num(self) -> int:
        self.generate_role()
        return self._trainers_num

    def worker_index(self) -> int:
        self.generate_role()
        return self._current_id

    def server_index(self) -> int:
        return self.worker_index()

    def get_trainer_endpoints(self) -> list[str]:
        self.generate_role()
        return self._worker_endpoints

    def get_pserver_endpoints(self) -> list[str]:
        self.generate_role()
        return self._server_endpoints


class UserDefinedRoleMaker(_AssignedRoleMaker):
    """The role that the script says, in a job with parameter servers.

    Raises ArgumentTypeError or UsageError for endpoints and numbers that do not fit together.
    """

    def __init__(
        self,
        current_id: int = 0,
        role: int = Role.WORKER,
        worker_num: int = 0,
        server_endpoints: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._server_endpoints = _distinct("server_endpoints", server_endpoints)
        if role not in (Role.WORKER, Role.SERVER):
            raise ArgumentTypeError(f"role must be Role.WORKER or Role.SERVER, found {role!r}")
        self._role = role
        bound = len(self._server_endpoints) if role == Role.SERVER else None
        self._current_id = _number("current_id", current_id, 0, bound)
        self._trainers_num = _number("worker_num", worker_num, 1)


class UserDefinedCollectiveRoleMaker(_AssignedRoleMaker):
    """The worker that the script says, in a job without servers."""

    def __init__(self, current_id: int = 0, worker_endpoints: Sequence[str] | None = None) -> None:
        super().__init__()
        self._role = Role.WORKER
        self._worker_endpoints = _distinct("worker_endpoints", worker_endpoints)
        self._trainers_num = len(self._worker_endpoints)
        self._current_id = _number("current_id", current_id, 0, self._trainers_num)


class PaddleCloudRoleMaker(_AssignedRoleMaker):
    """The role that environment variables say.

    PADDLE_TRAINER_ENDPOINTS and PADDLE_TRAINER_ID with is_collective; otherwise PADDLE_PSERVERS_IP_PORT_LIST,
    PADDLE_TRAINERS_NUM, TRAINING_ROLE, and PADDLE_TRAINER_ID of a trainer, POD_IP and PADDLE_PORT of a server. As in Paddle, a
    process of a collective job is neither worker nor server to `is_worker` and `is_server`. Raises UsageError.
    """

    def __init__(self, is_collective: bool = False) -> None:
        super().__init__()
        self._is_collective = is_collective

    def _assign(self) -> None:
        if self._is_collective:
            self._worker_endpoints = _variable("PADDLE_TRAINER_ENDPOINTS").split(",")
            self._current_id = _integer("PADDLE_TRAINER_ID", "0")
            self._trainers_num = len(self._worker_endpoints)
            return
        self._server_endpoints = _variable("PADDLE_PSERVERS_IP_PORT_LIST").split(",")
        self._trainers_num = _integer("PADDLE_TRAINERS_NUM")
        self._role = _training_role()
        self._current_id = self._trainer() if self._role == Role.WORKER else self._server()

    def _trainer(self) -> int:
        return _integer("PADDLE_TRAINER_ID")

    def _server(self) -> int:
        endpoint = f"{_variable('POD_IP')}:{_variable('PADDLE_PORT')}"
        if endpoint not in self._server_endpoints:
            raise UsageError(
                f"POD_IP and PADDLE_PORT say {endpoint}, which is not one of {', '.join(self._server_endpoints)}"
            )
        return self._server_endpoints.index(endpoint)


class GeneralRoleMaker(_AssignedRoleMaker):
    """As PaddleCloudRoleMaker; workers are listed in PADDLE_TRAINER_ENDPOINTS, and PADDLE_PSERVER_ID numbers the servers.

    What Paddle's takes for its exchange through HDFS or HTTP has no meaning here.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()

    def _assign(self) -> None:
        self._server_endpoints = _variable("PADDLE_PSERVERS_IP_PORT_LIST").split(",")
        self._worker_endpoints = _variable("PADDLE_TRAINER_ENDPOINTS").split(",")
        self._trainers_num = len(self._worker_endpoints)
        self._role = _training_role()
        self._current_id = _integer("PADDLE_TRAINER_ID" if self._role == Role.WORKER else "PADDLE_PSERVER_ID")


class MPISymetricRoleMaker(RoleMakerBase):
    """Not offered: raises UnsupportedOperatorError."""

    def __init__(self) -> None:
        raise UnsupportedOperatorError(
            "MPISymetricRoleMaker takes roles from ranks of MPI, two for each machine; start the job with "
            "'fluidtool launch --engine mpi SCRIPT' and use PaddleCloudRoleMaker"
        )


def _distinct(what: str, endpoints: Any) -> list[str]:
    if not isinstance(endpoints, list) or not all(isinstance(each, str) for each in endpoints):
        raise ArgumentTypeError(f"{what} must be a list of strings, found {endpoints!r}")
    if not endpoints or len(set(endpoints)) < len(endpoints):
        raise UsageError(f"{what} must name at least one endpoint, and none of them twice; found {endpoints}")
    return endpoints


def _number(what: str, value: Any, least: int, bound: int | None = None) -> int:
    if not isinstance(value, int):
        raise ArgumentTypeError(f"{what} must be an int, found {value!r}")
    if value < least or (bound is not None and value >= bound):
        raise UsageError(
            f"{what} must be at least {least}{'' if bound is None else f' and less than {bound}'}, found {value}"
        )
    return value


def _variable(name: str, default: str | None = None) -> str:
    value = os.environ.get(name, default)
    if value is None:
        raise UsageError(
            f"the environment variable {name} is not set, which says what role this process plays; {WANTED}"
        )
    return value


def _integer(name: str, default: str | None = None) -> int:
    text = _variable(name, default)
    if not text.isdecimal():
        raise UsageError(f"the environment variable {name} must be a number, found {text!r}")
    return int(text)


def _training_role() -> int:
    text = _variable("TRAINING_ROLE")
    roles = {"TRAINER": Role.WORKER, "PSERVER": Role.SERVER}
    if text not in roles:
        raise UsageError(f"TRAINING_ROLE must be PSERVER or TRAINER, found {text!r}")
    return roles[text]
