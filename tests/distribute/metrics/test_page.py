"""The page of metrics: where it is, what it answers, and that it is there only if somebody asks for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from fluidtool.distribute.launch.contract import METRICS
from fluidtool.distribute.launch.ports import check_free, free_endpoints
from fluidtool.distribute.metrics.endpoint import metrics_endpoint, open_metrics, shown_metrics
from fluidtool.distribute.metrics.exposition import CONTENT_TYPE, gauge
from fluidtool.distribute.metrics.page import MetricsPage
from fluidtool.errors import UsageError
from tests.cli.support import call, error_of
from tests.distribute.launch.jobs import transpile, write_data, write_programs
from tests.support.checkout import child_environment


@pytest.fixture
def page() -> Iterator[MetricsPage]:
    numbers = iter(range(100))
    made = MetricsPage("127.0.0.1:0", lambda: [gauge("a", "Counts requests.", next(numbers))])
    yield made
    made.close()


def get(port: int, path: str = "/metrics") -> str:
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        assert answer.headers["Content-Type"] == CONTENT_TYPE
        return str(answer.read().decode())


def test_each_request_gets_what_is_true_now(page: MetricsPage) -> None:
    assert [get(page.port).splitlines()[-1], get(page.port, "/metrics?x=1").splitlines()[-1]] == ["a 0", "a 1"]


@pytest.mark.parametrize("path", ["/", "/metric", "/metrics/..", "/etc/passwd"])
def test_there_is_nothing_else(page: MetricsPage, path: str) -> None:
    with pytest.raises(HTTPError) as caught:
        get(page.port, path)
    assert caught.value.code == 404


def test_nothing_can_be_sent(page: MetricsPage) -> None:
    with pytest.raises(HTTPError) as caught:
        urlopen(f"http://127.0.0.1:{page.port}/metrics", data=b"x", timeout=10)
    assert caught.value.code == 501


def test_it_is_closed_at_the_end() -> None:
    endpoint = free_endpoints(1)[0]
    with shown_metrics({METRICS: endpoint}, lambda: []):
        assert get(int(endpoint.rpartition(":")[2])) == ""
    check_free([endpoint])


def test_without_the_variable_nobody_listens() -> None:
    assert open_metrics({}, lambda: []) is None


@pytest.mark.parametrize(
    ("text", "endpoint"), [("9400", "127.0.0.1:9400"), ("0.0.0.0:9400", "0.0.0.0:9400"), ("[::1]:9400", "[::1]:9400")]
)
def test_a_port_alone_is_this_machine_s(text: str, endpoint: str) -> None:
    assert metrics_endpoint(text) == endpoint


def test_a_port_that_is_taken_is_named(page: MetricsPage) -> None:
    with pytest.raises(UsageError, match=rf"cannot show metrics at 127.0.0.1:{page.port}: .*FLUIDTOOL_METRICS"):
        MetricsPage(f"127.0.0.1:{page.port}", lambda: [])


@pytest.mark.parametrize("text", ["x", "127.0.0.1:", "70000"])
def test_what_is_no_port_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("")
    assert "--metrics must list host:port" in error_of(call("launch", "--metrics", text, tmp_path / "script.py"))


@pytest.mark.slow
def test_every_role_of_a_job_shows_its_own(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="parameter servers talk by gRPC: pip install 'fluidtool[dist]'")
    job = transpile(write_programs(tmp_path), "--pservers", "127.0.0.1:6174", "--trainers", "1")
    first = _two_free_ports()
    words = ["launch", "--any-ports", "--metrics", str(first), str(job), "--data", str(write_data(tmp_path))]
    with subprocess.Popen(
        [sys.executable, "-m", "fluidtool", *words, "--epochs", "100000"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=child_environment(),
    ) as running:
        try:
            server = _awaited(first, "fluidtool_rounds_total", 3)
            trainer = _awaited(first + 1, "fluidtool_steps_total", 3)
        finally:
            running.send_signal(signal.SIGTERM)
    assert 'role="pserver_0"' in server and 'role="trainer_0"' in trainer
    assert _value(server, 'fluidtool_message_bytes_sum{direction="received"}') > 1000
    assert _value(trainer, "fluidtool_examples_total") == 32 * _value(trainer, "fluidtool_steps_total")
    assert _value(trainer, "fluidtool_waiting_seconds_total") > 0


def _two_free_ports() -> int:
    for _ in range(50):
        port = int(free_endpoints(1)[0].rpartition(":")[2])
        try:
            check_free([f"127.0.0.1:{port + 1}"])
        except UsageError:
            continue
        return port
    pytest.fail("there are no two free ports in a row")


def _awaited(port: int, name: str, least: float) -> str:
    """The page once a number on it is large enough."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            text = get(port)
        except (URLError, ConnectionError):
            text = ""
        if f"\n{name} " in text and _value(text, name) >= least:
            return text
        time.sleep(0.1)
    pytest.fail(f"{name} did not become {least} at port {port}")


def _value(text: str, name: str) -> float:
    line = next(line for line in text.splitlines() if line.startswith(f"{name} "))
    return float(line.rpartition(" ")[2])
