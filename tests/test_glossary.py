"""docs/glossary.md: each term is where it says, and a word that it rules out is found."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
CHECK = ROOT / ".ci" / "check_words.py"
GLOSSARY = ROOT / "docs" / "glossary.md"

pytestmark = pytest.mark.skipif(
    not CHECK.exists(), reason="the checks of the repository are not part of this copy (.ci/check_words.py)"
)


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_words", CHECK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_place_that_the_glossary_names_exists() -> None:
    terms = GLOSSARY.read_text().partition("\n## Style\n")[0]
    rows = [line.split("|") for line in terms.splitlines() if line.startswith("| ")]
    places = [place for row in rows for place in re.findall(r"`([^`]*/[^`]*)`", row[3])]
    assert len(places) > 20
    for place in places:
        assert (ROOT / place).exists() or (ROOT / "fluidtool" / place).exists(), place


def test_words_are_ruled_out_everywhere_or_in_folders(check: ModuleType) -> None:
    rows = (
        "| region | operators | `a.py` | `stretch`; `form` in `native`, `straight.py` |\n| plan | ready | `b.py` | |\n"
    )
    assert check.ruled_out(rows) == [("stretch", ()), ("form", ("native", "straight.py"))]


@pytest.mark.parametrize(
    "text", ["a stretch", "def stretch_of(x):", "class StretchOf:", "Stretch", "two\nfirst_stretch = 1"]
)
def test_a_word_is_found_alone_and_in_names(check: ModuleType, text: str) -> None:
    assert len(list(check.uses(text, "stretch"))) == 1


@pytest.mark.parametrize("text", ["outstretched", "stretching", "region", "w@STRETCH"])
def test_a_word_within_another_is_another_word(check: ModuleType, text: str) -> None:
    assert not list(check.uses(text, "stretch"))


def test_a_word_with_capital_letters_is_meant_as_written(check: ModuleType) -> None:
    assert list(check.uses("READERS = 1\nreaders = 2", "READERS")) == [1]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("it waits for ever.", [1]),
        ("For ever", [1]),
        ("for every trainer", []),
        ("for_ever", []),
        ("one\nfor ever", [2]),
        ("it waits for\never", []),
    ],
)
def test_a_phrase_is_found_within_a_line(check: ModuleType, text: str, found: list[int]) -> None:
    assert list(check.uses(text, "for ever")) == found


def test_no_file_uses_a_word_that_is_ruled_out(check: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this copy has no git index, which says what belongs to the project")
    assert check.main(ROOT) == 0, capsys.readouterr().out
