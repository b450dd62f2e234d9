"""Who may talk to a server, and what protects it."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from fluidtool.distribute.rpc.client import connect
from fluidtool.distribute.rpc.handler import Refused
from fluidtool.distribute.rpc.options import TransportOptions
from fluidtool.distribute.rpc.security import Security, is_loopback
from fluidtool.distribute.rpc.service import serve
from fluidtool.errors import PolicyError, UnreadableError, UsageError
from tests.distribute.rpc.certificates import CERTIFICATE, KEY, OTHER_CERTIFICATE, OTHER_KEY
from tests.distribute.rpc.support import WAYS, Keeper, by, connected, served, tensor

TOKEN = "0123456789abcdef"


def options(way: str = "socket", **security: str | bool) -> TransportOptions:
    return by(way, deadline=5.0, security=Security(**security))  # type: ignore[arg-type]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Paths of the certificates and keys."""
    texts = {"certificate": CERTIFICATE, "key": KEY, "other": OTHER_CERTIFICATE, "other_key": OTHER_KEY}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return {name: str(tmp_path / name) for name in texts}


class TestAddresses:
    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.1.2.3"])
    def test_this_machine_alone_reaches_loopback(self, host: str) -> None:
        assert is_loopback(f"{host}:6174")
        Security().check_address(f"{host}:6174")

    @pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.168.1.5", "server.example"])
    def test_other_addresses_need_protection(self, host: str) -> None:
        assert not is_loopback(f"{host}:6174")
        with pytest.raises(PolicyError, match=r"can be reached from other machines.*FLUIDTOOL_TOKEN.*--insecure"):
            serve(f"{host}:6174", Keeper())

    def test_a_token_protects(self) -> None:
        Security(token=TOKEN).check_address("0.0.0.0:6174")

    def test_a_certificate_alone_does_not_say_who_may_come(self) -> None:
        with pytest.raises(PolicyError):
            Security(certificate="c", key="k").check_address("0.0.0.0:6174")
        Security(certificate="c", key="k", authorities="a").check_address("0.0.0.0:6174")

    def test_anybody_may_come_where_that_is_wanted(self) -> None:
        with pytest.warns(UserWarning, match="takes messages from anyone"):
            Security(insecure=True).check_address("0.0.0.0:6174")


@WAYS
class TestTokens:
    def test_the_right_token_is_let_in(self, way: str) -> None:
        keeper = Keeper(w=tensor(1))
        with connected(keeper, 0, options(way, token=TOKEN), options(token=TOKEN)) as client:
            client.send("g", tensor(1))
            client.get("w")
        assert len(keeper.heard) == 2

    @pytest.mark.parametrize("token", ["", "0123456789abcdeX", TOKEN + "0"])
    def test_no_other_is(self, way: str, token: str) -> None:
        keeper = Keeper(w=tensor(1))
        with (
            connected(keeper, 0, options(way, token=token), options(token=TOKEN)) as client,
            pytest.raises(Refused, match="only calls that bring its token"),
        ):
            client.get("w")
        assert keeper.heard == []

    def test_a_client_with_a_token_may_go_where_none_is_needed(self, way: str) -> None:
        with connected(Keeper(w=tensor(1)), 0, options(way, token=TOKEN)) as client:
            client.get("w")


def test_every_method_asks_for_the_token() -> None:
    keeper = Keeper(w=tensor(1))
    with served(keeper, options(token=TOKEN)) as server, grpc.insecure_channel(server.endpoint) as channel:
        for path in ("sendrecv.SendRecvService/SendVariable", "sendrecv.SendRecvService/GetVariable"):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(f"/{path}")(b"", timeout=5)
            assert caught.value.code().name == "UNAUTHENTICATED"
        with pytest.raises(grpc.RpcError) as caught:
            list(channel.stream_stream("/fluidtool.Parameters/Exchange")(iter([bytes(64)]), timeout=5))
        assert caught.value.code().name == "UNAUTHENTICATED"
    assert keeper.heard == []


@WAYS
class TestCertificates:
    def test_a_client_knows_the_server(self, way: str, files: dict[str, str]) -> None:
        own = options(certificate=files["certificate"], key=files["key"])
        with connected(Keeper(w=tensor(3)), 0, options(way, authorities=files["certificate"]), own) as client:
            assert client.get("w").shape() == [3]  # type: ignore[union-attr]

    def test_both_know_each_other(self, way: str, files: dict[str, str]) -> None:
        server = options(certificate=files["certificate"], key=files["key"], authorities=files["other"])
        client_options = options(
            way, certificate=files["other"], key=files["other_key"], authorities=files["certificate"]
        )
        with connected(Keeper(w=tensor(3)), 0, client_options, server) as client:
            client.get("w")

    @pytest.mark.parametrize("own", [{}, {"authorities": "other"}, {"authorities": "certificate"}])
    def test_strangers_are_kept_out(self, way: str, files: dict[str, str], own: dict[str, str]) -> None:
        keeper = Keeper(w=tensor(1))
        server = options(certificate=files["certificate"], key=files["key"], authorities=files["other"])
        security = Security(**{name: files[path] for name, path in own.items()})
        impatient = by(way, deadline=1.0, security=security)
        with (
            connected(keeper, 0, impatient, server) as client,
            pytest.raises(Refused, match=r"cannot communicate with server .*: it"),
        ):
            client.get("w")
        assert keeper.heard == []


class TestSettings:
    def test_they_come_from_the_environment(self, tmp_path: Path) -> None:
        (tmp_path / "token").write_text(TOKEN + "\n")
        found = Security.from_environment(
            {
                "FLUIDTOOL_TOKEN_FILE": str(tmp_path / "token"),
                "FLUIDTOOL_TLS_CERTIFICATE": "c",
                "FLUIDTOOL_TLS_KEY": "k",
                "FLUIDTOOL_TLS_AUTHORITIES": "a",
                "FLUIDTOOL_INSECURE": "1",
                "FLUIDTOOL_TLS_PEER_NAME": "p",
            }
        )
        assert found == Security(TOKEN, "c", "k", "a", True, "p")
        assert Security.from_environment({"FLUIDTOOL_INSECURE": "0"}) == Security()

    def test_a_token_is_not_shown(self) -> None:
        assert TOKEN not in repr(Security(token=TOKEN))

    @pytest.mark.parametrize("token", ["short", "0123456789abcdeé", "0123456789\nabcdef"])
    def test_weak_tokens_are_refused(self, token: str) -> None:
        with pytest.raises(UsageError, match="at least 16 ASCII characters"):
            Security(token=token)

    def test_a_certificate_needs_its_key(self) -> None:
        with pytest.raises(UsageError, match="certificate and its key"):
            Security(certificate="c")

    def test_files_must_be_there(self, tmp_path: Path) -> None:
        with pytest.raises(UnreadableError, match=r"cannot read .*nothing"):
            Security.from_environment({"FLUIDTOOL_TOKEN_FILE": str(tmp_path / "nothing")})
        missing = options(certificate=str(tmp_path / "c"), key=str(tmp_path / "k"))
        with pytest.raises(UnreadableError, match="must contain a token, certificate or key"):
            connect("127.0.0.1:1", 0, missing)
