"""The environment that a role of a job finds: every name that a script for Paddle may ask for.

Two generations: that of `fluid.Trainer` and the 2018 examples (addresses that share a port), and that of
PaddleCloudRoleMaker, `paddle.distributed.launch_ps` and `launch` (endpoints). `fluidtool.distribute.environment` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping

from fluidtool.distribute.endpoints import host_and_port
from fluidtool.distribute.environment import PSERVER, TRAINER
from fluidtool.distribute.rpc.options import REPLICAS
from fluidtool.records import dataclass

SERVERS, COLLECTIVE = "pserver", "collective"
MODES = (SERVERS, COLLECTIVE)
PROGRESS = "FLUIDTOOL_PROGRESS"
RESUME_STEP = "FLUIDTOOL_RESUME_STEP"
STARTS = "FLUIDTOOL_STARTS"  # how often the role was started, this time included
RESTARTS = "FLUIDTOOL_RESTARTS"  # how often a role that is started alone was restarted before, by what starts it
CHECKPOINT_DIR, CHECKPOINT_EVERY = "FLUIDTOOL_CHECKPOINT_DIR", "FLUIDTOOL_CHECKPOINT_EVERY"
CHECKPOINT_KEEP = "FLUIDTOOL_CHECKPOINT_KEEP"
METRICS = "FLUIDTOOL_METRICS"  # where the role shows metrics
ELASTIC = "FLUIDTOOL_ELASTIC"  # trainers may join and leave; the least number of them
ELASTIC_TRAINERS = "FLUIDTOOL_ELASTIC_TRAINERS"  # how many trainers are started with the job
ELASTIC_SERVERS = (
    "FLUIDTOOL_ELASTIC_SERVERS"  # for servers of such a job: all of them, the one that keeps the roll first
)
STRAGGLERS = "FLUIDTOOL_STRAGGLERS"  # what becomes of trainers that are much slower than the others
REPLICA = "FLUIDTOOL_REPLICA"  # which of the two copies of its server a role is
REPLICAS_DIR = "FLUIDTOOL_REPLICAS_DIR"  # where servers that have two copies find out which of them serves
GENERATION = "FLUIDTOOL_GENERATION"  # how often all roles of such a job were started

ROLE_VARIABLES = (
    "PADDLE_TRAINING_ROLE",
    "TRAINING_ROLE",
    "PADDLE_PSERVERS_IP_PORT_LIST",
    "PADDLE_PSERVER_ENDPOINTS",
    "PADDLE_PSERVER_IPS",
    "PADDLE_PSERVER_PORT",
    "PADDLE_TRAINERS",
    "PADDLE_TRAINERS_NUM",
    "PADDLE_TRAINER_ID",
    "PADDLE_TRAINER_IPS",
    "PADDLE_TRAINER_ENDPOINTS",
    "PADDLE_CURRENT_ENDPOINT",
    "PADDLE_CURRENT_IP",
    "PADDLE_PORT",
    "POD_IP",
    PROGRESS,
    RESUME_STEP,
    STARTS,
    METRICS,
    ELASTIC,
    ELASTIC_TRAINERS,
    ELASTIC_SERVERS,
    STRAGGLERS,
    REPLICAS,
    REPLICA,
    REPLICAS_DIR,
    GENERATION,
)


@dataclass(frozen=True, slots=True)
class Member:
    """One process of a job. endpoint: where it listens; "" for a trainer that works with servers."""

    kind: str
    index: int
    endpoint: str = ""

    @property
    def name(self) -> str:
        """'pserver_0', 'trainer_1': in logs, and as the folder of its programs and checkpoints."""
        return f"{self.kind}_{self.index}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Who takes part: endpoints of the servers, and the trainers (by endpoint where there are no servers)."""

    servers: tuple[str, ...]
    trainers: int
    trainer_endpoints: tuple[str, ...] = ()

    @property
    def mode(self) -> str:
        """Whether servers keep the parameters ("pserver"), or trainers exchange gradients ("collective")."""
        return SERVERS if self.servers else COLLECTIVE

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Wherever somebody listens."""
        return self.servers or self.trainer_endpoints

    def members(self) -> tuple[Member, ...]:
        """The servers, then the trainers."""
        servers = [Member(PSERVER, index, endpoint) for index, endpoint in enumerate(self.servers)]
        own = self.trainer_endpoints or ("",) * self.trainers
        return (*servers, *(Member(TRAINER, index, endpoint) for index, endpoint in enumerate(own)))


def role_environment(cluster: Cluster, member: Member) -> dict[str, str]:
    """The variables of one role, in both generations.

    Addresses without ports (PADDLE_PSERVER_IPS, PADDLE_TRAINER_IPS) are there only where all endpoints share a port.
    """
    count = str(cluster.trainers)
    role = member.kind.upper()
    found = {
        "PADDLE_TRAINING_ROLE": role,
        "TRAINING_ROLE": role,
        "PADDLE_TRAINERS": count,
        "PADDLE_TRAINERS_NUM": count,
    }
    found["PADDLE_TRAINER_ID"] = str(member.index if member.kind == TRAINER else 0)
    listed = ",".join(cluster.endpoints)
    hosts, ports = zip(*(host_and_port(endpoint) for endpoint in cluster.endpoints), strict=True)
    if len(set(ports)) == 1 and len(set(hosts)) == len(hosts):
        name = "PADDLE_PSERVER_IPS" if cluster.servers else "PADDLE_TRAINER_IPS"
        found |= {name: ",".join(hosts), "PADDLE_PSERVER_PORT": str(ports[0])}
    if cluster.servers:
        found |= {"PADDLE_PSERVERS_IP_PORT_LIST": listed, "PADDLE_PSERVER_ENDPOINTS": listed}
    else:
        found["PADDLE_TRAINER_ENDPOINTS"] = listed
    if member.endpoint:
        host, port = host_and_port(member.endpoint)
        found |= {"PADDLE_CURRENT_ENDPOINT": member.endpoint, "PADDLE_CURRENT_IP": host}
        found |= {"POD_IP": host, "PADDLE_PORT": str(port)}
    return found


def without_role(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which nothing speaks of a role."""
    return {name: value for name, value in environment.items() if name not in ROLE_VARIABLES}
