"""The examples at the end of each command's help: every one runs."""

from __future__ import annotations

import shlex
from contextlib import chdir
from pathlib import Path

import pytest

from fluidtool.cli.commands import COMMANDS
from fluidtool.cli.examples import EXAMPLES
from tests.cli.support import SAMPLES, call, process

OF_A_ROLE = {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "0", "PADDLE_TRAINERS_NUM": "1"}


def examples(command: str) -> list[str]:
    """The command lines of a help page."""
    result = call(command, "--help")
    assert result.exit_code == 0
    _, title, shown = result.stdout.partition("\nExamples:\n")
    assert title, result.stdout
    return [line.strip() for line in shown.replace("\\\n", "").splitlines() if line.strip()]


def test_every_command_has_examples() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_no_page_of_help_is_wider_than_80_columns(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert [line for line in call(command, "--help").stdout.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_run(command: str, tmp_path: Path) -> None:
    (tmp_path / "samples").symlink_to(SAMPLES)
    found = examples(command)
    assert found
    with chdir(tmp_path):
        for line in found:
            before, _, words = line.rpartition("| ")
            name, *arguments = shlex.split(words)
            assert name == "fluidtool" and arguments[0] == command
            data = Path(shlex.split(before)[1]).read_bytes() if before else None
            if command in ("launch", "exec"):
                done = process(*arguments, env=OF_A_ROLE if command == "exec" else None)
                assert done.returncode == 0, done.stderr
            else:
                result = call(*arguments, input=data)
                assert result.exit_code == 0, result.stderr
