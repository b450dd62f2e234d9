"""The command line as a whole: its help, its exit codes, and what becomes of failures."""

from __future__ import annotations

import gc
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from fluidtool import errors
from fluidtool.cli import COLLECT_AFTER, main
from fluidtool.cli.app import spread
from fluidtool.cli.commands import COMMANDS
from fluidtool.cli.failures import explain
from fluidtool.cli.help import help_page
from tests.cli.support import DIGITS, call, error_of, process
from tests.support.checkout import child_environment


def test_help_lists_every_command_and_every_exit_code() -> None:
    page = help_page()
    for name, summary in COMMANDS.items():
        assert f"{name} " in page and summary in page
    for name in dir(errors):
        if name.startswith("EXIT_"):
            assert f"\n  {getattr(errors, name)} " in page
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.parametrize("args", [[], ["--help"], ["-h"], ["help"]])
def test_the_page_is_what_comes_without_a_command(args: list[str]) -> None:
    done = process(*args)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == help_page()


def test_a_command_collects_garbage_less_often_than_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(gc, "set_threshold", chosen.append)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(sys, "argv", ["fluidtool", "version"])
    assert main() == 0
    assert chosen == [COLLECT_AFTER]


def test_typer_would_show_the_same_page() -> None:
    assert call("--help").stdout.strip() == call().stdout.strip() == help_page().strip()


def test_help_imports_no_library() -> None:
    code = (
        "import sys; sys.argv = ['fluidtool', '--help']; from fluidtool.cli import main; main();"
        "print({'numpy', 'google.protobuf', 'rich', 'typer', 'click'} & sys.modules.keys(), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=child_environment()
    )
    assert done.stderr.strip() == "set()"


def test_a_command_does_not_import_the_others() -> None:
    code = (
        "import sys; from fluidtool.cli.app import run_command; run_command(['version']);"
        "print({'numpy', 'google.protobuf', 'fluidtool.cli.commands.run', 'fluidtool.cli.commands.inspect'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=child_environment()
    )
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_of_its_own(name: str) -> None:
    function = getattr(import_module(f"fluidtool.cli.commands.{name}"), name)
    result = call(name, "--help")
    assert result.exit_code == 0
    assert f"Usage: fluidtool {name} [OPTIONS]" in result.stdout
    assert function.__doc__.splitlines()[0] in " ".join(result.stdout.split())


def test_version() -> None:
    assert call("--version").stdout == call("version").stdout
    assert call("version").stdout.startswith("fluidtool 0.")


def test_verbose_version_names_python_numpy_and_the_engines() -> None:
    out = call("version", "--verbose").stdout
    assert re.search(rf"^Python +{re.escape(sys.version.split()[0])} ", out, re.MULTILINE)
    assert "numpy " in out and "engine numpy" in out and "engine cupy" in out


# ---------------------------------------------------------------- wrong use
def test_an_unknown_command_is_answered_with_a_near_one() -> None:
    result = call("inspct")
    assert error_of(result) == "there is no command 'inspct'; did you mean inspect? [FT200]"
    assert result.exit_code == errors.EXIT_USAGE


def test_a_command_that_is_like_nothing_is_answered_with_all() -> None:
    assert f"the commands are {', '.join(COMMANDS)}" in error_of(call("zzz"))


def test_an_unknown_option_is_answered_with_a_near_one() -> None:
    result = call("run", DIGITS, "--fed", "x.npy")
    assert "no such option" in error_of(result) and "did you mean --feed" in error_of(result)
    assert result.exit_code == errors.EXIT_USAGE


def test_an_unknown_option_before_the_command() -> None:
    assert "did you mean --version?" in error_of(call("--versoin"))


def test_a_missing_model() -> None:
    assert error_of(call("run")).startswith("missing argument 'MODEL'; see 'fluidtool run --help'")


# ---------------------------------------------------------------- failures
@pytest.mark.parametrize(
    ("error", "code", "exit_code"),
    [
        (errors.FeedError("x"), "FT210", 2),
        (errors.UnreadableError("x"), "FT300", 3),
        (errors.UnsupportedOperatorError("x"), "FT400", 4),
        (errors.NotFiniteError("x"), "FT500", 5),
        (errors.OperatorError("x"), "FT600", 2),
        (MemoryError(), "FT710", 2),
        (KeyError("x"), "FT000", 70),
        (KeyboardInterrupt(), "", 130),
        (PermissionError(13, "Permission denied", "/some/file"), "FT300", 3),
        (OSError(28, "No space left on device"), "FT261", 3),
    ],
)
def test_exit_codes(error: BaseException, code: str, exit_code: int) -> None:
    assert (explain(error).code, explain(error).exit_code) == (code, exit_code)


def _fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def version() -> NoReturn:
        raise error

    monkeypatch.setattr("fluidtool.cli.commands.version.version", version)


@pytest.mark.parametrize("error", [KeyError("lost"), MemoryError(), KeyboardInterrupt()])
def test_no_failure_shows_a_traceback(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_with(error, monkeypatch)
    result = call("version")
    assert result.exit_code == explain(error).exit_code
    assert error_of(result)


def test_the_traceback_is_there_for_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_with(KeyError("lost"), monkeypatch)
    result = call("version", env={"FLUIDTOOL_DEBUG": "1"})
    assert "Traceback" in result.stderr and result.stderr.splitlines()[-1].startswith("error: internal error: KeyError")


@pytest.mark.parametrize("value", ["0", ""])
def test_the_traceback_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    _fail_with(KeyError("lost"), monkeypatch)
    assert "Traceback" not in call("version", env={"FLUIDTOOL_DEBUG": value}).stderr


def test_a_message_is_one_paragraph_without_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_with(errors.ProgramError("variable \x1b[31mred\nand more"), monkeypatch)
    assert call("version").stderr == "error: variable \\x1b[31mred and more [FT220]\n"


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m fluidtool ops | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, env=child_environment(), timeout=120
    )
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert "Broken" not in done.stderr and "Traceback" not in done.stderr


# As from a terminal: what runs in the background of a script ignores interrupts.
HEEDING = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("fluidtool", run_name="__main__")
"""


def test_an_interrupt_ends_a_run() -> None:
    command = [sys.executable, "-c", HEEDING, "run", str(DIGITS), "--random", "--repeat", "1000000"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=child_environment()
    )
    assert running.stderr is not None
    assert running.stderr.readline().startswith("random input")
    running.send_signal(signal.SIGINT)
    out, talk = running.communicate(timeout=60)
    assert (running.returncode, out, talk) == (errors.EXIT_INTERRUPTED, "", "error: interrupted\n")


def test_a_stream_that_cannot_hold_all_characters() -> None:
    done = process("run", DIGITS, "--random", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and b"\\u2026" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [["inspect", str(DIGITS)], ["--help"]])
def test_output_that_cannot_be_written(words: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "fluidtool", *words]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=child_environment(), check=False
        )
    assert done.returncode == errors.EXIT_UNREADABLE
    assert done.stderr.startswith("error: reading or writing failed: No space left on device")


@pytest.mark.parametrize(
    "words", ["--help", "inspect MODEL", "inspect MODEL --json", "run MODEL --random -o -", "completion bash"]
)
def test_a_closed_stdout_is_one_that_leads_nowhere(words: str) -> None:
    done = closing(">&-", *words.replace("MODEL", str(DIGITS)).split())
    assert (done.returncode, done.stderr.replace("random input image: float32 (1, 1, 8, 8)\n", "")) == (0, "")


def test_a_closed_stderr_changes_no_exit_code() -> None:
    assert closing("2>&-", "inspect", "nowhere").returncode == errors.EXIT_UNREADABLE


def test_a_file_that_is_written_does_not_become_a_closed_stream(tmp_path: Path) -> None:
    done = closing(">&- 2>&- <&-", "run", str(DIGITS), "--random", "-o", str(tmp_path / "out.npy"))
    assert done.returncode == 0
    assert np.load(tmp_path / "out.npy").shape == (1, 10)


def closing(streams: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`fluidtool WORDS` from a shell that closes streams before."""
    command = ["sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, "-m", "fluidtool", *words]
    return subprocess.run(command, capture_output=True, text=True, env=child_environment(), check=False)


# ---------------------------------------------------------------- options with several values
OPTIONS = {"--fetch", "--output", "-o", "--targets", "--inputs"}


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("m --fetch a b", "m --fetch a --fetch b"),
        ("m --fetch a b -o out", "m --fetch a --fetch b -o out"),
        ("m --targets a b --inputs c d", "m --targets a --targets b --inputs c --inputs d"),
        ("m --fetch=a b", "m --fetch=a --fetch b"),
        ("--fetch a m", "--fetch a m"),
        ("--fetch a m --fetch b c", "--fetch a m --fetch b --fetch c"),
        ("m -o out extra", "m -o out extra"),
        ("m --json extra", "m --json extra"),
        ("m --fetch a -- b", "m --fetch a -- b"),
    ],
)
def test_name_options_take_several_values(words: str, meant: str) -> None:
    assert spread(words.split(), OPTIONS) == meant.split()
