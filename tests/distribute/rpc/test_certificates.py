"""Certificates of a job: its roles know each other, everybody else is kept out, and errors say what is wrong with which."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from fluidtool.distribute.rpc.certificates import (
    PEER_NAME,
    VARIABLES,
    Certificates,
    certificate_variables,
    make_certificates,
)
from fluidtool.distribute.rpc.handler import Refused
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.distribute.rpc.security import Security
from fluidtool.distribute.rpc.service import serve
from fluidtool.distribute.rpc.tls import peer_fault
from fluidtool.errors import UsageError
from tests.distribute.rpc.support import Keeper, connected, tensor

pytest.importorskip("cryptography", reason="makes certificates: pip install 'fluidtool[dist]'")

DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC)
Placed = Callable[[str, Certificates], Security]


@pytest.fixture
def placed(tmp_path: Path) -> Placed:
    """Writes the certificates of a role, and gives what a process with them uses."""

    def place(name: str, certificates: Certificates) -> Security:
        folder = tmp_path / name / "tls"
        folder.mkdir(parents=True)
        for file, content in certificates.files().items():
            (folder / file).write_bytes(content)
        return Security.from_environment(certificate_variables(folder.parent, {}))

    return place


def options(security: Security) -> TransportOptions:
    return TransportOptions(deadline=1.5, security=security)


def refused(client: Security, server: Security) -> str:
    """What a client is told that the server must not talk to."""
    keeper = Keeper(w=tensor(1))
    with connected(keeper, 0, options(client), options(server)) as talking, pytest.raises(Refused) as caught:
        talking.get("w")
    assert keeper.heard == []
    return str(caught.value)


def test_roles_of_a_job_know_each_other(placed: Placed) -> None:
    made = make_certificates(["pserver_0", "trainer_0"])
    server, client = (placed(name, each) for name, each in made.items())
    with connected(Keeper(w=tensor(3)), 0, options(client), options(server)) as talking:
        assert talking.get("w").shape() == [3]  # type: ignore[union-attr]


def test_no_token_is_needed_off_loopback(placed: Placed) -> None:
    placed("pserver_0", make_certificates(["pserver_0"])["pserver_0"]).check_address("10.0.0.1:6174")


def test_roles_of_another_job_are_kept_out(placed: Placed) -> None:
    server = placed("pserver_0", make_certificates(["pserver_0"])["pserver_0"])
    client = placed("trainer_0", make_certificates(["trainer_0"])["trainer_0"])
    assert "its certificate is not accepted" in refused(client, server)


def test_a_server_keeps_out_what_another_authority_signed(placed: Placed) -> None:
    """The client believes anybody's certificate, the server does not."""
    own, other = (make_certificates(["a"])["a"] for _ in range(2))
    mixed = placed("trainer_0", Certificates(other.certificate, other.key, own.authorities))
    text = refused(mixed, placed("pserver_0", own))
    assert "it does not accept the certificate of this role" in text and "the same job" in text


def test_a_peer_without_certificate_is_told_so(placed: Placed) -> None:
    server = placed("pserver_0", make_certificates(["pserver_0"])["pserver_0"])
    assert "it uses TLS, and this role does not" in refused(Security(), server)
    only_trusts = Security(authorities=server.authorities, peer_name=PEER_NAME)
    assert "takes only peers that have a certificate" in refused(only_trusts, server)


def test_a_server_without_tls_is_named(placed: Placed) -> None:
    client = placed("trainer_0", make_certificates(["trainer_0"])["trainer_0"])
    assert "it does not use TLS, and this role does" in refused(client, Security())


@pytest.mark.parametrize(
    ("made", "fault"), [(-400 * DAY, "certificate has expired"), (5 * DAY, "certificate is not yet valid")]
)
def test_a_certificate_of_another_time_is_not_used(placed: Placed, made: datetime.timedelta, fault: str) -> None:
    security = placed("pserver_0", make_certificates(["pserver_0"], NOW + made)["pserver_0"])
    with pytest.raises(UsageError, match=rf"certificate.pem is not valid: {fault}; write the job again"):
        serve("127.0.0.1:0", Keeper(), options(security))


def test_a_clock_that_is_behind_does_no_harm(placed: Placed) -> None:
    security = placed("pserver_0", make_certificates(["pserver_0"], NOW + DAY / 2)["pserver_0"])
    serve("127.0.0.1:0", Keeper(), options(security)).stop(0)


def test_an_expired_server_is_named_by_its_clients(placed: Placed) -> None:
    """As when the clocks of the two differ: the server believes its own, so here it has another way to start."""
    old = make_certificates(["pserver_0", "trainer_0"], NOW - 400 * DAY)
    fresh = make_certificates(["trainer_0"])["trainer_0"]
    pair = (old["pserver_0"].key, old["pserver_0"].certificate)
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    server.start()
    client = placed("trainer_0", Certificates(fresh.certificate, fresh.key, old["trainer_0"].authorities))
    try:
        assert "its certificate is not accepted (certificate has expired)" in peer_fault(f"127.0.0.1:{port}", client)
    finally:
        server.stop(0)


def test_a_key_of_another_role_is_not_used(placed: Placed) -> None:
    made = make_certificates(["a", "b"])
    mixed = Certificates(made["a"].certificate, made["b"].key, made["a"].authorities)
    with pytest.raises(UsageError, match="are not a certificate and its key"):
        serve("127.0.0.1:0", Keeper(), options(placed("a", mixed)))


def test_what_is_no_certificate_is_named(placed: Placed) -> None:
    with pytest.raises(UsageError, match=r"certificate\.pem and .*key\.pem are not a certificate and its key"):
        serve("127.0.0.1:0", Keeper(), options(placed("a", Certificates(b"x", b"y", b"z"))))


def test_keys_are_not_shown() -> None:
    made = make_certificates(["a"])["a"]
    assert b"PRIVATE KEY" in made.key and "PRIVATE" not in repr(made)


@pytest.mark.parametrize("name", ["FLUIDTOOL_TLS_CERTIFICATE", "FLUIDTOOL_TLS_AUTHORITIES", "FLUIDTOOL_INSECURE"])
def test_what_the_environment_says_comes_first(name: str, placed: Placed, tmp_path: Path) -> None:
    placed("a", make_certificates(["a"])["a"])
    assert set(certificate_variables(tmp_path / "a", {})) == {*VARIABLES, "FLUIDTOOL_TLS_PEER_NAME"}
    assert certificate_variables(tmp_path / "a", {name: "1"}) == {}
    assert certificate_variables(tmp_path / "none", {}) == {}
