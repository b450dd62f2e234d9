"""Who may talk to a server: everybody on this machine; from elsewhere only with a token or a certificate.

Paddle's own peers know neither token nor TLS: they can join on loopback, or where `insecure` says that anybody may.
"""

from __future__ import annotations

import hmac
import ipaddress
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from fluidtool.distribute.endpoints import host_and_port
from fluidtool.distribute.rpc.tls import check_own_certificate
from fluidtool.errors import PolicyError, UnreadableError, UsageError
from fluidtool.records import dataclass

TOKEN_KEY = "fluidtool-token"
SHORTEST_TOKEN = 16
LOCAL_HOSTS = frozenset({"localhost", "ip6-localhost", "localhost.localdomain"})


@dataclass(frozen=True, slots=True)
class Security:
    """token: a secret that both sides know. certificate, key: files (PEM) with which this side shows who it is.
    authorities: file with the certificates that the other side's must descend from. insecure: let anybody in.
    peer_name: what certificates of servers name in place of their hosts ("": the host).
    """

    token: str = field(default="", repr=False)
    certificate: str = ""
    key: str = ""
    authorities: str = ""
    insecure: bool = False
    peer_name: str = ""

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise UsageError("TLS needs a certificate and its key, found only one of them; give both files")
        if self.token and (
            len(self.token) < SHORTEST_TOKEN or not self.token.isascii() or not self.token.isprintable()
        ):
            raise UsageError(
                f"a token must have at least {SHORTEST_TOKEN} ASCII characters, found {len(self.token)}; make one "
                f"with: "
                'python -c "import secrets; print(secrets.token_hex())"'
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Security:
        """As the variables say: FLUIDTOOL_TOKEN or FLUIDTOOL_TOKEN_FILE, FLUIDTOOL_TLS_CERTIFICATE, FLUIDTOOL_TLS_KEY,
        FLUIDTOOL_TLS_AUTHORITIES, FLUIDTOOL_TLS_PEER_NAME, FLUIDTOOL_INSECURE=1. Raises UsageError, UnreadableError.
        """
        found = cls(
            environment.get("FLUIDTOOL_TOKEN", ""),
            environment.get("FLUIDTOOL_TLS_CERTIFICATE", ""),
            environment.get("FLUIDTOOL_TLS_KEY", ""),
            environment.get("FLUIDTOOL_TLS_AUTHORITIES", ""),
            environment.get("FLUIDTOOL_INSECURE", "") not in ("", "0"),
            environment.get("FLUIDTOOL_TLS_PEER_NAME", ""),
        )
        file = environment.get("FLUIDTOOL_TOKEN_FILE", "")
        return replace(found, token=read_token(file)) if file and not found.token else found

    @property
    def encrypted(self) -> bool:
        """Whether connections use TLS."""
        return bool(self.certificate or self.authorities)

    def check_address(self, endpoint: str) -> None:
        """Raise PolicyError when a server there would take messages from anybody; warn where that is wanted."""
        if is_loopback(endpoint) or self.token or (self.certificate and self.authorities):
            return
        if not self.insecure:
            raise PolicyError(
                f"a server at {endpoint} can be reached from other machines, and anyone could change its "
                f"parameters: set FLUIDTOOL_TOKEN (or --token-file) for all roles, or TLS with certificate, key and "
                f"authorities; FLUIDTOOL_INSECURE=1 (--insecure) lets anyone in, including Paddle's own trainers, "
                f"which do not support tokens"
            )
        warnings.warn(
            f"the server at {endpoint} takes messages from anyone who can reach it (FLUIDTOOL_INSECURE)", stacklevel=3
        )

    def admits(self, metadata: Iterable[tuple[str, Any]]) -> bool:
        """Whether a call with this metadata brings the token; takes the same time whatever it brings."""
        if not self.token:
            return True
        brought = next((value for key, value in metadata if key == TOKEN_KEY), "")
        return hmac.compare_digest(str(brought).encode(), self.token.encode())

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What a client's calls bring along."""
        return ((TOKEN_KEY, self.token),) if self.token else ()

    def server_credentials(self, grpc: Any) -> Any:
        """gRPC's credentials of a server, or None without TLS; clients need a certificate where authorities are given."""
        if not self.certificate:
            return None
        pair = (_read(self.key), _read(self.certificate))
        check_own_certificate(self)
        authorities = _read(self.authorities) if self.authorities else None
        return grpc.ssl_server_credentials([pair], authorities, require_client_auth=authorities is not None)

    def channel_options(self) -> tuple[tuple[str, str], ...]:
        """gRPC's options of a client."""
        return (("grpc.ssl_target_name_override", self.peer_name),) if self.encrypted and self.peer_name else ()

    def channel_credentials(self, grpc: Any) -> Any:
        """gRPC's credentials of a client, or None without TLS."""
        if not self.encrypted:
            return None
        authorities, key, certificate = (
            _read(path) if path else None for path in (self.authorities, self.key, self.certificate)
        )
        check_own_certificate(self)
        return grpc.ssl_channel_credentials(authorities, key, certificate)


def is_loopback(endpoint: str) -> bool:
    """Whether only this machine can reach the address."""
    host, _ = host_and_port(endpoint)
    if host in LOCAL_HOSTS:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(path: str) -> str:
    """The token in a file, without the blanks around it; raises UnreadableError."""
    return _read(path).decode("utf-8", "replace").strip()


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UnreadableError(
            f"cannot read {path}: {error.strerror}; it must contain a token, certificate or key"
        ) from error
