"""What holds for every test: which fluidtool is tested, on how many processes, and how hypothesis looks for cases.

Hypothesis: the same cases everywhere, so that a red run can be repeated; others with `pytest --hypothesis-profile=search`. A
machine that is busy with other things is no fault of what is tested.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.support.checkout import ROOT, differing_sources, package_folder

settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", settings.get_profile("search"), derandomize=True)
settings.load_profile("repeatable")

os.environ.setdefault("FLUIDTOOL_VERIFY", "1")  # graphs of regions are looked at after each rewrite
os.environ["FLUIDTOOL_CACHE"] = "0"  # a test packs weights itself, and leaves nothing in the user's folders
MOST_PROCESSES = 8  # each of them collects all tests first


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """All tests run on all processors, unless the user says otherwise. A part of them is done sooner by one process."""
    options = config.option
    if hasattr(config, "workerinput") or "PYTEST_XDIST_WORKER" in os.environ:
        return  # one of these processes, which must not start others; nor must a pytest that a test starts
    undecided = getattr(options, "numprocesses", 0) is None and not options.tx  # 0: pytest-xdist is not here
    watched = options.usepdb or options.capture == "no" or options.collectonly
    if undecided and not watched and config.args_source is config.ArgsSource.TESTPATHS:
        processors = config.hook.pytest_xdist_auto_num_workers(config=config)
        options.numprocesses = min(processors + 1, MOST_PROCESSES)  # many tests wait for processes that they start
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads that look out for work take it from the others
        if options.dist == "no":
            options.dist = "worksteal"


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to try half of it: an engine that is missing for no reason is a failure, not a thousand skips."""
    install = "python -m pip install '.[test]'"
    try:
        from tests.support import engine
    except ModuleNotFoundError as error:
        raise pytest.UsageError(f"{error}; fluidtool has to be installed: {install}") from error
    if fault := engine.fault():
        raise pytest.UsageError(
            f"{fault}\nfluidtool is {package_folder()}; install it: {install}\n"
            "or test without the engine: FLUIDTOOL_NATIVE=0 python -m pytest"
        )


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Which fluidtool is tested, and which engine it has."""
    from fluidtool import __version__
    from tests.support import engine

    lines = [f"fluidtool {__version__}: {package_folder()}; {engine.description()}"]
    if differing := differing_sources():
        lines.append(
            f"NOTE: this is not what stands in {ROOT}: {differing[0]} and {len(differing) - 1} other files differ; install it again"
        )
    return lines


@pytest.fixture
def native() -> object:
    """The native engine. A test without it is skipped only where it may be missing (see `pytest_configure`)."""
    from fluidtool.runtime.engines.native.library import library
    from tests.support import engine

    if reason := engine.excuse():
        pytest.skip(reason)
    return library()
