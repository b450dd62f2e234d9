"""The metrics of trainers and of servers."""

from __future__ import annotations

from collections.abc import Mapping

from fluidtool._version import __version__
from fluidtool.distribute.launch.contract import STARTS
from fluidtool.distribute.launch.progress import Report
from fluidtool.distribute.metrics.exposition import Family, Sample, Traffic, counter, gauge


def of_any_role(name: str, environment: Mapping[str, str]) -> list[Family]:
    """Who it is, and how often it was restarted."""
    starts = environment.get(STARTS, "1")
    restarts = max(int(starts) - 1, 0) if starts.isdecimal() else 0
    return [
        gauge("fluidtool_role_info", "The role of this process; always 1.", 1, role=name, version=__version__),
        counter("fluidtool_restarts_total", "How many times the role was restarted.", restarts),
    ]


def of_trainer(report: Report | None) -> list[Family]:
    """What a trainer last reported; nothing before its first step."""
    if report is None:
        return []
    loss = [] if report.loss is None else [gauge("fluidtool_loss", "Loss of the last step.", report.loss)]
    return [
        counter(
            "fluidtool_steps_total", "Steps since the training began, those before a restart included.", report.step
        ),
        counter("fluidtool_examples_total", "Examples that this process has trained on.", report.examples),
        *loss,
        counter("fluidtool_waiting_seconds_total", "Seconds that this process has waited for servers.", report.waited),
        counter("fluidtool_sent_bytes_total", "Bytes of values sent to servers.", report.sent),
        counter("fluidtool_received_bytes_total", "Bytes of values received from servers.", report.received),
    ]


def of_server(rounds: int, waiting: int, trainers: int, traffic: Traffic) -> list[Family]:
    """rounds: how many it has begun, or steps of an asynchronous server; waiting: calls that wait for others."""
    return [
        counter(
            "fluidtool_rounds_total",
            "Rounds (steps of an asynchronous server), those before a restart included.",
            rounds,
        ),
        gauge("fluidtool_waiting_calls", "Calls of trainers that wait for other trainers.", waiting),
        gauge("fluidtool_live_trainers", "Trainers that are not done.", trainers),
        traffic.family(),
    ]


def of_trainers(took: Mapping[int, float], late: Mapping[int, int], changes: Mapping[str, int] | None) -> list[Family]:
    """How a synchronous server sees its trainers. took: seconds that each needed for the last round; late: how often each was
    late; changes: how often trainers joined ("join"), left ("leave") and were left out ("left_out"); None: they cannot.
    """
    arrival = "Seconds from the opening of the last round until the trainer had sent its gradients."
    found = [
        Family("fluidtool_arrival_seconds", "gauge", arrival, _by_trainer(took)),
        Family(
            "fluidtool_late_rounds_total",
            "counter",
            "Rounds in which others waited for the trainer.",
            _by_trainer(late),
        ),
    ]
    if changes is not None:
        counts = {kind: changes.get(kind, 0) for kind in ("join", "leave", "left_out")}
        samples = tuple(Sample(count, {"kind": kind}) for kind, count in counts.items())
        text = "Trainers that joined, left, or were left out of a round."
        found.append(Family("fluidtool_membership_changes_total", "counter", text, samples))
    return found


def _by_trainer(numbers: Mapping[int, float]) -> tuple[Sample, ...]:
    return tuple(Sample(value, {"trainer": str(trainer)}) for trainer, value in sorted(numbers.items()))
