"""What is generated below docs/ is current, and links of the checkout become links of the site."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from types import ModuleType

import pytest

from fluidtool.cli.commands import COMMANDS
from tests.support.checkout import ROOT, child_environment

DOCS = ROOT / "docs"
PAGES = {"tutorials/deploy.md", "convert.md", "project/SECURITY.md", "index.md", "explanation/lod.svg"}

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="the documents are not part of this copy (docs/)")


@pytest.mark.slow
@pytest.mark.parametrize("script", ["build_reference.py", "draw_explanations.py", "draw_screens.py"])
def test_what_a_script_makes_is_current(script: str) -> None:
    command = [sys.executable, str(DOCS / script), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=child_environment())
    assert done.returncode == 0, f"run python docs/{script}\n{done.stderr}"


def test_every_command_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [name for name in COMMANDS if f"{name}: commands/{name}.md" not in navigation] == []


def test_every_json_document_is_in_the_navigation() -> None:
    navigation, pages = (ROOT / "mkdocs.yml").read_text(), sorted(path.stem for path in DOCS.glob("schemas/*-1.md"))
    assert pages and [name for name in pages if f"{name[:-2]}: schemas/{name}.md" not in navigation] == []


def quoted_changes() -> list[object]:
    """(file, lines that it must have one after the other) of each diff on the pages for contributors."""
    found = []
    for page in sorted((DOCS / "contribute").glob("*.md")):
        for file, text in re.findall(
            r'^```diff title="([^"]+)"\n(.*?)^```', page.read_text(), re.MULTILINE | re.DOTALL
        ):
            for part in text.split("…\n"):
                found.append(
                    pytest.param(file, re.sub("^[+ ]", "", part, flags=re.MULTILINE), id=f"{page.stem}:{file}")
                )
    return found


@pytest.mark.parametrize(("file", "lines"), quoted_changes())
def test_a_worked_example_shows_lines_of_the_project(file: str, lines: str) -> None:
    assert lines.strip() and lines in (ROOT / file).read_text()


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def changed(hooks: ModuleType, markdown: str, source: str, home: str = "") -> str:
    """A page of the checkout as the site has it."""

    def link(found: object) -> str:
        made: str = hooks.new_link(found, source, PAGES.__contains__, home)
        return made

    made: str = hooks.outside_fences(markdown, lambda text: hooks.LINK.sub(link, text))
    return made


@pytest.mark.parametrize(
    ("source", "written", "made"),
    [
        ("tutorials/deploy.md", "[a](../convert.md#x)", "[a](../convert.md#x)"),
        ("tutorials/deploy.md", "[a](../../SECURITY.md)", "[a](../project/SECURITY.md)"),
        ("index.md", "[a](../SECURITY.md#b)", "[a](project/SECURITY.md#b)"),
        ("project/SECURITY.md", "[a](docs/convert.md)", "[a](../convert.md)"),
        ("project/SECURITY.md", "![a](docs/explanation/lod.svg)", "![a](../explanation/lod.svg)"),
        ("index.md", "[a](../tests/io)", "a"),
        ("index.md", "[`a`](../tests/io)", "`a`"),
        ("index.md", "[a](nothing.md)", "[a](nothing.md)"),
        ("index.md", "[a](https://x.org/y.md)", "[a](https://x.org/y.md)"),
        ("index.md", "[a](#b)", "[a](#b)"),
        ("index.md", "```text\n[a](../tests/io)\n```\n", "```text\n[a](../tests/io)\n```\n"),
    ],
)
def test_a_link_of_the_checkout_becomes_one_of_the_site(
    hooks: ModuleType, source: str, written: str, made: str
) -> None:
    assert changed(hooks, written, source) == made


def test_with_a_public_home_a_file_is_linked_there(hooks: ModuleType) -> None:
    assert (
        changed(hooks, "[a](../tests/io)", "index.md", "https://x.org/f") == "[a](https://x.org/f/blob/main/tests/io)"
    )
