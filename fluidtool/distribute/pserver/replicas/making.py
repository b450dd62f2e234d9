"""What the environment says of the two copies of a server, and making one of them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fluidtool.distribute.launch.contract import GENERATION, REPLICA, REPLICAS_DIR
from fluidtool.distribute.pserver.attendance import Tell
from fluidtool.distribute.pserver.description import ServerDescription
from fluidtool.distribute.pserver.replicas.copied import Copied
from fluidtool.distribute.pserver.replicas.copies import Copies
from fluidtool.distribute.pserver.replicas.register import Register
from fluidtool.distribute.pserver.replicas.replica import Replica
from fluidtool.distribute.pserver.replicas.succession import Copy
from fluidtool.distribute.rpc.client import Client
from fluidtool.distribute.rpc.options import REPLICAS, TransportOptions
from fluidtool.distribute.settings import DistributedMode
from fluidtool.errors import UsageError
from fluidtool.records import dataclass

PATIENCE = 10.0  # seconds that a call from one copy to the other may take


@dataclass(frozen=True, slots=True)
class Replication:
    """Which copy this is: 0 or 1, where the two listen, and the folder that says which of them serves."""

    place: int
    places: tuple[str, str]
    folder: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], description: ServerDescription) -> Replication | None:
        """None where a server has one copy; raises UsageError for what cannot be."""
        options = TransportOptions.from_environment(environment)
        if not options.replicas:
            return None
        other = options.replicas.get(description.endpoint)
        place, folder = environment.get(REPLICA, ""), environment.get(REPLICAS_DIR, "")
        if other is None or place not in ("0", "1") or not folder:
            raise UsageError(
                f"{REPLICAS} is set, so {REPLICA} must be 0 or 1, {REPLICAS_DIR} a folder that all servers reach, and "
                f"{description.endpoint} one of the servers that have a second copy; found {place!r}, {folder!r} and "
                f"{', '.join(options.replicas)} (fluidtool launch --replicas 2 sets them)"
            )
        if description.mode == DistributedMode.GEO or description.dc_asgd:
            what = "geo-SGD" if description.mode == DistributedMode.GEO else "delay compensation (DC-ASGD)"
            raise UsageError(
                f"servers of {what} remember what each trainer has read, which is not copied; launch the job without --replicas"
            )
        register = Path(folder) / environment.get(GENERATION, "0")
        return cls(int(place), (description.endpoint, other), register)

    @property
    def endpoint(self) -> str:
        """Where this copy listens."""
        return self.places[self.place]

    def copies(self, name: str, environment: Mapping[str, str], tell: Tell) -> Copies:
        """The copies of server `name` as this process sees them."""
        me = Copy(self.place, secrets.token_hex(7))
        return Copies(Register(self.folder / name), me, name, self._connect(environment), tell)

    def replica(
        self, server: Copied, environment: Mapping[str, str], begins: Callable[[], object] = lambda: None
    ) -> Replica:
        """This copy of a server."""
        return Replica(server, server.copies, self.places, self._connect(environment), begins)

    def _connect(self, environment: Mapping[str, str]) -> Callable[[str, int], Any]:
        options = replace(TransportOptions.from_environment(environment), deadline=PATIENCE, retry_times=1, replicas={})
        return lambda endpoint, number: Client(endpoint, number, options)
