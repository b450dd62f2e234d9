"""Whether and where a role shows its metrics, as FLUIDTOOL_METRICS says: "PORT" or "HOST:PORT"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fluidtool.distribute.endpoints import check_endpoint
from fluidtool.distribute.launch.contract import METRICS
from fluidtool.distribute.metrics.exposition import Family

if TYPE_CHECKING:
    from fluidtool.distribute.metrics.page import MetricsPage

LOOPBACK = "127.0.0.1"
Collect = Callable[[], Iterable[Family]]


def metrics_endpoint(text: str, what: str = METRICS) -> str:
    """The endpoint that "PORT" or "HOST:PORT" means: without a host, the loopback address. Raises UsageError."""
    return check_endpoint(f"{LOOPBACK}:{text}" if text.isdecimal() else text, what)


def open_metrics(environment: Mapping[str, str], collect: Collect) -> MetricsPage | None:
    """The page that FLUIDTOOL_METRICS asks for; None if it is not set. Raises UsageError."""
    wanted = environment.get(METRICS)
    if not wanted:
        return None
    from fluidtool.distribute.metrics.page import MetricsPage

    return MetricsPage(metrics_endpoint(wanted), collect)


@contextmanager
def shown_metrics(environment: Mapping[str, str], collect: Collect) -> Iterator[None]:
    """Within the block the metrics are shown, if FLUIDTOOL_METRICS asks for it."""
    page = open_metrics(environment, collect)
    try:
        yield
    finally:
        if page is not None:
            page.close()
