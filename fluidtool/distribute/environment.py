"""The role of this process in a distributed job, as environment variables tell it.

Three contracts of Paddle: that of Trainer and the 2018 examples (PADDLE_TRAINING_ROLE, PADDLE_PSERVER_IPS, PADDLE_TRAINER_IPS
…), that of PaddleCloudRoleMaker and `launch_ps` (TRAINING_ROLE, PADDLE_PSERVERS_IP_PORT_LIST …), and that of the
collective `launch` (PADDLE_TRAINER_ENDPOINTS, PADDLE_CURRENT_ENDPOINT).
"""

from __future__ import annotations

from collections.abc import Mapping

from fluidtool.distribute.endpoints import parse_endpoints
from fluidtool.errors import UsageError
from fluidtool.records import dataclass

LOCAL, TRAINER, PSERVER = "local", "trainer", "pserver"
ROLES = {"TRAINER": TRAINER, "PSERVER": PSERVER}
PORT = "6174"


@dataclass(frozen=True, slots=True)
class Role:
    """What this process is: "local" (no distributed job), "trainer" or "pserver".

    servers: endpoints of the parameter servers; none where trainers work without. trainer_endpoints: known only then.
    current_endpoint: of this process; "" where nothing says it.
    """

    kind: str = LOCAL
    trainer_id: int = 0
    trainers: int = 1
    servers: tuple[str, ...] = ()
    trainer_endpoints: tuple[str, ...] = ()
    current_endpoint: str = ""

    @property
    def is_collective(self) -> bool:
        """Whether trainers work together without servers."""
        return bool(self.trainer_endpoints) and not self.servers


def role_from_environment(environment: Mapping[str, str]) -> Role:
    """The role that the variables describe; Role() when they describe none.

    Raises UsageError for values that cannot work, or that lack another variable; the variable is named.
    """
    if environment.get("PADDLE_TRAINER_IPS"):
        return _nccl_role(environment)
    kind = _kind(environment)
    if kind is not None:
        servers = _servers(environment)
        if servers:
            return _server_role(environment, kind, servers)
        if kind == PSERVER:
            raise UsageError(
                "this process is to be a parameter server, but the servers are not known; set "
                "PADDLE_PSERVERS_IP_PORT_LIST=host:port,… or PADDLE_PSERVER_IPS"
            )
    if environment.get("PADDLE_TRAINER_ENDPOINTS"):
        return _collective_role(environment)
    if kind == TRAINER:
        raise UsageError(
            "this process is to be a trainer, but its job is not known; set PADDLE_PSERVERS_IP_PORT_LIST, "
            "PADDLE_PSERVER_IPS or PADDLE_TRAINER_ENDPOINTS, or unset the role to train alone"
        )
    return Role()


def _kind(environment: Mapping[str, str]) -> str | None:
    for name in ("PADDLE_TRAINING_ROLE", "TRAINING_ROLE"):
        text = environment.get(name)
        if text is not None:
            if text not in ROLES:
                raise UsageError(f"{name} must be TRAINER or PSERVER, found {text!r}")
            return ROLES[text]
    return None


def _servers(environment: Mapping[str, str]) -> tuple[str, ...]:
    for name in ("PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_PSERVER_ENDPOINTS"):
        if environment.get(name):
            return parse_endpoints(environment[name], name)
    ips = environment.get("PADDLE_PSERVER_IPS")
    if ips:
        port = environment.get("PADDLE_PSERVER_PORT", PORT)
        return parse_endpoints([f"{ip.strip()}:{port}" for ip in ips.split(",")], "PADDLE_PSERVER_IPS")
    return ()


def _server_role(environment: Mapping[str, str], kind: str, servers: tuple[str, ...]) -> Role:
    trainers = _number(environment, ("PADDLE_TRAINERS_NUM", "PADDLE_TRAINERS"), least=1)
    if kind == TRAINER:
        return Role(kind, _trainer_id(environment, trainers), trainers, servers)
    current = _current_server(environment)
    if current not in servers:
        raise UsageError(
            f"this server is {current or 'not named'}, which is not one of {', '.join(servers)}; set POD_IP and "
            "PADDLE_PORT (or PADDLE_CURRENT_IP and PADDLE_PSERVER_PORT) to one of them"
        )
    return Role(kind, 0, trainers, servers, (), current)


def _current_server(environment: Mapping[str, str]) -> str:
    if environment.get("POD_IP") and environment.get("PADDLE_PORT"):
        return f"{environment['POD_IP']}:{environment['PADDLE_PORT']}"
    if environment.get("PADDLE_CURRENT_IP"):
        return f"{environment['PADDLE_CURRENT_IP']}:{environment.get('PADDLE_PSERVER_PORT', PORT)}"
    return environment.get("PADDLE_CURRENT_ENDPOINT", "")


def _nccl_role(environment: Mapping[str, str]) -> Role:
    """PADDLE_TRAINER_IPS is what chooses this mode."""
    port = environment.get("PADDLE_PSERVER_PORT", PORT)
    ips = environment["PADDLE_TRAINER_IPS"].split(",")
    endpoints = parse_endpoints([f"{ip.strip()}:{port}" for ip in ips], "PADDLE_TRAINER_IPS")
    current = f"{environment.get('PADDLE_CURRENT_IP', '')}:{port}"
    return _among_trainers(environment, endpoints, current, "PADDLE_CURRENT_IP")


def _collective_role(environment: Mapping[str, str]) -> Role:
    endpoints = parse_endpoints(environment["PADDLE_TRAINER_ENDPOINTS"], "PADDLE_TRAINER_ENDPOINTS")
    trainer_id = _trainer_id(environment, len(endpoints))
    current = environment.get("PADDLE_CURRENT_ENDPOINT") or endpoints[trainer_id]
    return _among_trainers(environment, endpoints, current, "PADDLE_CURRENT_ENDPOINT")


def _among_trainers(environment: Mapping[str, str], endpoints: tuple[str, ...], current: str, name: str) -> Role:
    if current not in endpoints:
        raise UsageError(f"{name} says that this trainer is {current}, which is not one of {', '.join(endpoints)}")
    trainer_id = _trainer_id(environment, len(endpoints), endpoints.index(current))
    return Role(TRAINER, trainer_id, len(endpoints), (), endpoints, current)


def _trainer_id(environment: Mapping[str, str], trainers: int, default: int = 0) -> int:
    trainer_id = _number(environment, ("PADDLE_TRAINER_ID",), default=default)
    if trainer_id >= trainers:
        raise UsageError(
            f"PADDLE_TRAINER_ID must be between 0 and {trainers - 1} for {trainers} trainers, found {trainer_id}"
        )
    return trainer_id


def _number(
    environment: Mapping[str, str], names: tuple[str, ...], *, least: int = 0, default: int | None = None
) -> int:
    """The first of the variables that is set; raises UsageError when none is and there is no default."""
    for name in names:
        text = environment.get(name)
        if text is not None:
            if not text.isdecimal() or int(text) < least:
                raise UsageError(f"{name} must be a number of at least {least}, found {text!r}")
            return int(text)
    if default is None:
        raise UsageError(
            f"the role of this process is set, but {' or '.join(names)} is not; set the number of trainers"
        )
    return default
