"""A profile as a Chrome trace, for chrome://tracing and Perfetto."""

from __future__ import annotations

import json
from typing import Any

from fluidtool.profiling import Profile


def chrome_trace(profile: Profile, name: str) -> str:
    """The last run that was watched: a bar for each operator, region and kernel call, and the memory as a counter.

    Source of the format: the Trace Event Format (events "X", "C", "M"; times in microseconds).
    """
    events: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": 0, "args": {"name": name}}]
    for event in profile.events:
        arguments = {"shape": list(event.shape)} if event.shape else {}
        events.append(
            {
                "name": event.name,
                "cat": event.engine,
                "ph": "X",
                "pid": 0,
                "tid": event.thread,
                "ts": event.start * 1e6,
                "dur": event.length * 1e6,
                "args": arguments,
            }
        )
    events += [
        {"name": "memory", "ph": "C", "pid": 0, "ts": point.seconds * 1e6, "args": {"alive bytes": point.bytes}}
        for point in profile.memory
    ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
