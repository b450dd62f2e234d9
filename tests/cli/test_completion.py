"""`fluidtool completion`: what is offered after the words of a command line, and the scripts in real shells."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fluidtool.cli.commands import COMMANDS
from fluidtool.cli.completion import SCRIPTS, candidates
from tests.cli.support import DIGITS, call, error_of
from tests.support.checkout import child_environment

MODEL = str(DIGITS)


def test_commands() -> None:
    assert candidates([], "") == list(COMMANDS)
    assert candidates([], "tra") == ["train", "transpile"]


def test_options_of_the_command() -> None:
    assert candidates(["run", MODEL], "--pre") == ["--precision"]
    assert candidates(["inspect"], "--fetch") == []


def test_variables_of_the_model() -> None:
    assert candidates(["run", MODEL, "--fetch"], "conv") == ["conv2d_0.tmp_0", "conv2d_1.tmp_0"]
    assert candidates(["run", MODEL, "--fetch", "conv2d_0.tmp_0"], "pool") == ["pool2d_0.tmp_0"]
    assert candidates(["prune", MODEL, "--targets"], "fc_0.tmp_1") == ["fc_0.tmp_1"]


def test_inputs_of_the_model() -> None:
    assert candidates(["run", MODEL, "--feed"], "") == ["image="]
    assert candidates(["prune", MODEL, "--inputs"], "") == ["image"]


def test_passes_engines_and_codes() -> None:
    assert candidates(["transpile", MODEL, "--fuse"], "fuse-b") == ["fuse-batch-norm"]
    assert "numpy" in candidates(["run", MODEL, "--engine"], "")
    assert candidates(["help"], "FT21") == ["FT210", "FT211", "FT212"]
    assert candidates(["check", MODEL, "--format"], "j") == ["json", "junit"]


@pytest.mark.parametrize(
    "words", [["run"], ["run", MODEL], ["run", MODEL, "--feed", "x.npy"], ["run", MODEL, "--json"]]
)
def test_where_a_file_may_stand_the_shell_is_left_to_it(words: list[str]) -> None:
    assert candidates(words, "") == []


@pytest.mark.parametrize("path", ["nothing", "README.md", str(DIGITS / "x.npy")])
def test_what_is_no_model_has_no_names(path: str) -> None:
    assert candidates(["run", path, "--fetch"], "") == []


def test_another_shell() -> None:
    assert "expected one of bash, zsh, fish" in error_of(call("completion", env={"SHELL": "/bin/csh"}))
    assert call("completion", env={"SHELL": "/usr/bin/fish"}).stdout == SCRIPTS["fish"]


BASH = """
    eval "$(fluidtool completion bash)"
    COMP_WORDS=(fluidtool run "$MODEL" --fetch conv) COMP_CWORD=4
    _fluidtool
    printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
    compdef() { :; }
    compadd() { shift; print -l -- "$@"; }
    eval "$(fluidtool completion zsh)"
    words=(fluidtool run "$MODEL" --fetch conv) CURRENT=5
    _fluidtool
"""
FISH = """
    fluidtool completion fish | source
    complete -C "fluidtool run $MODEL --fetch conv"
"""


@pytest.mark.parametrize(("shell", "script"), [("bash", BASH), ("zsh", ZSH), ("fish", FISH)])
def test_shells_complete(shell: str, script: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} on this machine")
    command = tmp_path / "fluidtool"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fluidtool "$@"\n')
    command.chmod(0o755)
    environment = child_environment() | {"MODEL": MODEL, "HOME": str(tmp_path)}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    done = subprocess.run(
        [shell, "-c", script], capture_output=True, text=True, check=True, env=environment, timeout=60
    )
    assert done.stdout.split() == ["conv2d_0.tmp_0", "conv2d_1.tmp_0"]
