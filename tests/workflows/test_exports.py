"""`import fluidtool` offers a call for each command, and none of it comes in before it is asked for."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import fluidtool
from fluidtool.cli.commands import COMMANDS
from tests.support.checkout import child_environment

# Whose call has another name, or whose result is only shown.
OTHERWISE = {
    "debug": "reduce",
    "ops": "coverage",
    "inspect": "load",
    "params": "open_parameters",
    "exec": None,
    "help": None,
    "completion": None,
    "version": "__version__",
}


@pytest.mark.parametrize("name", fluidtool.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(fluidtool, name) is not None


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'serve'"):
        fluidtool.serve  # noqa: B018


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_call(command: str) -> None:
    name = OTHERWISE.get(command, command)
    assert name is None or name in fluidtool.__all__


def test_nothing_comes_in_before_it_is_asked_for() -> None:
    code = "import sys, fluidtool; print({'numpy', 'fluidtool.workflows', 'fluidtool.model'} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=child_environment()
    )
    assert done.stdout == "set()\n"


def test_a_call_is_not_hidden_by_a_module_of_its_name() -> None:
    for name in fluidtool.__all__:
        with pytest.raises(ModuleNotFoundError):
            import_module(f"fluidtool.{name}")
