"""What mkdocs cannot say in mkdocs.yml: pages of the project that stand outside docs/, and links between all of them.

A page is written for a reader of the repository: its links are paths of the checkout. In the site `docs/X` is `X`, and any other
file of PROJECT is `project/…`. A link to a file that is not in the site leads to the public repository, or is its text alone
as long as there is none (docs/releasing.md).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS, PROJECT_FOLDER = "docs/", "project/"
PROJECT = (
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "LICENSE",
    "samples/**/README.md",
    "samples/ci/*.yml",
    "samples/kubernetes/*.yaml",
    "samples/slurm/*.sbatch",
    "benchmarks/results/*.*",
)
FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!\\)(!?)\[((?:[^\[\]`]|`[^`]*`)*)\]\((?![a-z]+:|#)([^()\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand outside docs/."""
    from mkdocs.structure.files import File

    for pattern in PROJECT:
        for path in sorted(ROOT.glob(pattern)):
            uri = PROJECT_FOLDER + path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links of the checkout into links of the site."""
    source, home = page.file.src_uri, public_home()

    def link(found: re.Match[str]) -> str:
        return new_link(found, source, lambda uri: files.get_file_from_path(uri) is not None, home)

    return outside_fences(markdown, lambda text: LINK.sub(link, text))


def outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    """The text with everything changed but blocks of code."""
    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def new_link(found: re.Match[str], source: str, exists: Callable[[str], bool], home: str) -> str:
    """A link of the page `source`: within the site, to the repository at `home`, or its text."""
    mark, text, target = found.groups()
    path, hash_, anchor = target.partition("#")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(place_of(source)), path))
    if exists(uri_of(place)):
        return f"{mark}[{text}]({posixpath.relpath(uri_of(place), posixpath.dirname(source) or '.')}{hash_}{anchor})"
    if not (ROOT / place).exists():
        return found[0]  # mkdocs says what is wrong
    return f"[{text}]({home}/blob/main/{place}{hash_}{anchor})" if home else text


def place_of(uri: str) -> str:
    """Where a file of the site is in the checkout."""
    return uri.removeprefix(PROJECT_FOLDER) if uri.startswith(PROJECT_FOLDER) else DOCS + uri


def uri_of(place: str) -> str:
    """What a file of the checkout is in the site."""
    return place.removeprefix(DOCS) if place.startswith(DOCS) else PROJECT_FOLDER + place


def public_home() -> str:
    """The address of the public repository, or ''."""
    page = (ROOT / "docs/releasing.md").read_text("utf-8")
    found = re.search(r"^Public home: <(https://[^>]+)>$", page, re.MULTILINE)
    return found[1].rstrip("/") if found else ""
