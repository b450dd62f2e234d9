"""How hypothesis looks for cases: the same ones everywhere, so that a red run can be repeated; others with
`pytest --hypothesis-profile=search`. A machine that is busy with other things is no fault of what is tested.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", settings.get_profile("search"), derandomize=True)
settings.load_profile("repeatable")
