"""Progress appears on a terminal, late, and leaves nothing behind."""

from __future__ import annotations

import io
import time

import pytest

from fluidtool.cli import progress as module
from fluidtool.cli.progress import progress


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
