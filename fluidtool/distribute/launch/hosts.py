"""Endpoints of roles that are spread over machines, and what keeps strangers out of there."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping, Sequence

from fluidtool.distribute.launch.ports import LOOPBACK, free_endpoints

TOKEN = "FLUIDTOOL_TOKEN"
SECURED = (TOKEN, "FLUIDTOOL_TOKEN_FILE", "FLUIDTOOL_TLS_CERTIFICATE", "FLUIDTOOL_INSECURE")


def own_address() -> str:
    """The address of this machine on the network; the loopback address where it has none."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return LOOPBACK


def own_endpoint(addresses: Sequence[str], own: str) -> str:
    """A free endpoint at this machine; at its loopback address when all roles are here."""
    return free_endpoints(1, LOOPBACK if set(addresses) == {own} else own)[0]


def is_one_machine(endpoints: Sequence[str]) -> bool:
    """Whether nobody needs to reach another machine."""
    return all(endpoint.startswith(f"{LOOPBACK}:") for endpoint in endpoints)


def token_for(endpoints: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """A new token for servers that other machines can reach, unless the user has decided how they are guarded."""
    if is_one_machine(endpoints) or any(environment.get(name) for name in SECURED):
        return {}
    return {TOKEN: secrets.token_hex()}
