"""Progress appears on a terminal, late, and leaves nothing behind."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import pytest

from fluidtool.cli import progress as module
from fluidtool.cli.progress import progress
from tests.cli.support import call
from tests.support.checkout import ROOT


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def _work(stream: io.StringIO, seconds: float) -> None:
    with progress("reading", 3, stream=stream) as advance:
        for _ in range(3):
            time.sleep(seconds / 3)
            advance()


def test_quick_work_shows_nothing() -> None:
    stream = Terminal()
    _work(stream, 0.0)
    assert stream.getvalue() == ""


def test_long_work_shows_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELAY", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    _work(stream, 0.9)
    assert "reading" in stream.getvalue() and "/3" in stream.getvalue()


def test_a_pipe_gets_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELAY", 0.0)
    stream = io.StringIO()
    _work(stream, 0.2)
    assert stream.getvalue() == ""


def test_two_seconds_is_the_limit() -> None:
    assert module.DELAY == 2.0


def test_work_that_fails_takes_its_bar_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELAY", 0.0)
    stream = Terminal()
    with pytest.raises(KeyError), progress("reading", 3, stream=stream):
        time.sleep(0.3)
        raise KeyError
    size = len(stream.getvalue())
    time.sleep(0.2)
    assert len(stream.getvalue()) == size


def test_a_note_stands_beside_the_title(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELAY", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with progress("training", 2, stream=stream) as advance:
        time.sleep(0.2)
        advance("loss 0.25")
        time.sleep(0.3)
    assert "training  loss 0.25" in stream.getvalue()


@pytest.mark.parametrize(
    "words",
    [
        "run samples/digits --random",
        "profile samples/digits --random --repeat 1",
        "inspect samples/digits",
        "inspect samples/digits --with-params",
        "prune samples/digits --targets fc_0.tmp_0 -o {}/out",
        "reshape samples/digits [8,1,8,8]",
        "convert samples/digits --to paddle2 -o {}/out",
        "params stats samples/digits",
        "params diff samples/digits samples/digits",
        "params merge samples/digits -o {}/out",
        "train samples/digits_training --data samples/digits_training/data.npz",
        "transpile samples/digits --release-memory",
        "diff samples/digits samples/digits",
        "check samples/digits",
    ],
)
def test_every_command_that_may_take_long_has_a_bar(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles = []

    class Bar(module._Bar):
        def __init__(self, title: str, *args: Any) -> None:
            super().__init__(title, *args)
            titles.append(title)

    monkeypatch.setattr(module, "_Bar", Bar)
    monkeypatch.chdir(ROOT)
    assert call(*words.format(tmp_path).split()).exit_code == 0
    assert titles
