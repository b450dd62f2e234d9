"""The text of metrics is what Prometheus's own parser reads back."""

from __future__ import annotations

import math
import threading

import pytest

from fluidtool.distribute.launch.progress import Report
from fluidtool.distribute.metrics.exposition import BOUNDS, Family, Sizes, Traffic, counter, gauge, rendered
from fluidtool.distribute.metrics.roles import of_any_role, of_server, of_trainer

parser = pytest.importorskip("prometheus_client.parser", reason="reads the metrics: pip install prometheus-client")


def read(*families: Family) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Samples by name and labels; what is not in the format is an error."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in parser.text_string_to_metric_families(rendered(families)):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            assert tuple(sample.labels.items()) not in labels
            labels[tuple(sample.labels.items())] = sample.value
    return found


def test_text_is_that_of_the_format() -> None:
    assert rendered([counter("a_total", "How often.", 3), gauge("b", "How much.", 0.5, role="x")]) == (
        "# HELP a_total How often.\n# TYPE a_total counter\na_total 3\n"
        '# HELP b How much.\n# TYPE b gauge\nb{role="x"} 0.5\n'
    )


@pytest.mark.parametrize("text", ['quoted "name"', "back\\slash", "two\nlines", "é"])
def test_any_text_may_be_a_label(text: str) -> None:
    assert read(gauge("b", text, 1, role=text)) == {"b": {(("role", text),): 1.0}}


@pytest.mark.parametrize("value", [0.1, 1e-300, 2**63, -4, math.inf, -math.inf])
def test_numbers_keep_every_digit(value: float) -> None:
    assert read(gauge("b", "", value)) == {"b": {(): value}}
    assert math.isnan(read(gauge("b", "", math.nan))["b"][()])


def test_sizes_are_counted_up_to_each_bound() -> None:
    sizes = Sizes()
    for size in (0, BOUNDS[0], BOUNDS[0] + 1, BOUNDS[-1] + 1):
        sizes.add(size)
    found = read(Family("s", "histogram", "", sizes.samples()))
    counts = [found["s_bucket"][(("le", str(bound)),)] for bound in BOUNDS]
    assert counts == [2, *[3] * (len(BOUNDS) - 1)] and found["s_bucket"][(("le", "+Inf"),)] == 4
    assert (found["s_count"][()], found["s_sum"][()]) == (4, 2 * BOUNDS[0] + 1 + BOUNDS[-1] + 1)


def test_threads_lose_no_message() -> None:
    sizes = Sizes()
    threads = [threading.Thread(target=lambda: [sizes.add(7) for _ in range(5000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sum(sizes.counts), sizes.total) == (20_000, 140_000)


def test_a_trainer_tells_what_it_reported() -> None:
    found = read(
        *of_any_role("trainer_1", {"FLUIDTOOL_STARTS": "3"}), *of_trainer(Report(12, 0.5, 2048, 1024, 384, 1.5))
    )
    assert {name: next(iter(values.values())) for name, values in found.items()} == {
        "fluidtool_role_info": 1,
        "fluidtool_restarts_total": 2,
        "fluidtool_steps_total": 12,
        "fluidtool_examples_total": 384,
        "fluidtool_loss": 0.5,
        "fluidtool_waiting_seconds_total": 1.5,
        "fluidtool_sent_bytes_total": 2048,
        "fluidtool_received_bytes_total": 1024,
    }
    assert dict(next(iter(found["fluidtool_role_info"]))).items() >= {"role": "trainer_1"}.items()


def test_before_its_first_step_a_trainer_tells_who_it_is() -> None:
    assert set(read(*of_any_role("trainer_0", {}), *of_trainer(None))) == {
        "fluidtool_role_info",
        "fluidtool_restarts_total",
    }


def test_a_server_tells_its_rounds_and_messages() -> None:
    traffic = Traffic()
    traffic.received.add(1000)
    found = read(*of_server(7, 1, 2, traffic))
    assert found["fluidtool_rounds_total"] == {(): 7} and found["fluidtool_waiting_calls"] == {(): 1}
    assert found["fluidtool_live_trainers"] == {(): 2}
    assert found["fluidtool_message_bytes_sum"] == {
        (("direction", "received"),): 1000,
        (("direction", "sent"),): 0,
    }
