"""What `check` writes for other programs: reports of JUnit, SARIF 2.1.0, annotations of GitHub.

Names come from models, which may be hostile: control characters are written out before each format escapes its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from fluidtool._version import __version__
from fluidtool.cli.failures import text_of
from fluidtool.cli.render import printable
from fluidtool.cli.views.check import count_text, has_blocks, place
from fluidtool.passes.findings import Finding
from fluidtool.workflows.baseline import relative
from fluidtool.workflows.check import Checked

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


# ---------------------------------------------------------------- JUnit
def junit(checked: Sequence[Checked]) -> str:
    """A test suite with one test case for each model: its findings are a failure, a program that cannot be read an error."""
    failures = sum(bool(each.findings) for each in checked)
    errors = sum(each.error is not None for each in checked)
    counts = {"tests": str(len(checked)), "failures": str(failures), "errors": str(errors)}
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "fluidtool check", **counts})
    for each in checked:
        case = ElementTree.SubElement(suite, "testcase", classname="fluidtool.check", name=printable(each.program))
        if each.error is not None:
            ElementTree.SubElement(case, "error", type=each.error.code, message=printable(text_of(each.error)))
        elif each.findings:
            failure = ElementTree.SubElement(
                case, "failure", type=each.findings[0].code, message=count_text(each.findings)
            )
            failure.text = "\n".join(_line(finding, has_blocks(each)) for finding in each.findings)
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'


def _line(finding: Finding, blocks: bool) -> str:
    """'FC401 3 strange: operator strange is unknown'."""
    where = place(finding, blocks)
    return printable(f"{finding.code}{' ' if where else ''}{where}: {finding.message}".replace("\n", " "))


# ---------------------------------------------------------------- SARIF
def sarif(checked: Sequence[Checked]) -> dict[str, Any]:
    """One run of SARIF 2.1.0; a program that cannot be read is a notification of the invocation."""
    codes = sorted({finding.code for each in checked for finding in each.findings})
    driver = {"name": "fluidtool", "version": __version__, "rules": [{"id": code} for code in codes]}
    notifications = [_notification(each) for each in checked if each.error is not None]
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not notifications, "toolExecutionNotifications": notifications}],
        "results": [_result(each, finding, codes) for each in checked for finding in each.findings],
    }
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(checked: Checked, finding: Finding, codes: Sequence[str]) -> dict[str, Any]:
    named = printable(place(finding, has_blocks(checked)))
    logical = {"logicalLocations": [{"fullyQualifiedName": named}]} if named else {}
    return {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": "error",
        "message": {"text": printable(finding.message)},
        "locations": [{**_physical(checked.program), **logical}],
    }


def _notification(checked: Checked) -> dict[str, Any]:
    assert checked.error is not None
    return {
        "level": "error",
        "descriptor": {"id": checked.error.code},
        "message": {"text": printable(text_of(checked.error))},
        "locations": [_physical(checked.program)],
    }


def _physical(program: str) -> dict[str, Any]:
    """A whole file; GitHub shows only results that name a line."""
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(program)}, "region": {"startLine": 1}}}


def _uri(program: str) -> str:
    """A reference relative to the working folder, or the URI of a file elsewhere; any bytes of a name are quoted."""
    path = _seen_from_here(program)
    quoted = quote(os.fsencode(path))
    return f"file://{'' if path.startswith('/') else '/'}{quoted}" if Path(path).is_absolute() else quoted


def _seen_from_here(program: str) -> str:
    """A path below the working folder relative to it, any other one absolute; with slashes."""
    path = relative(program, Path.cwd())
    return path if path.split("/")[0] != ".." else Path(os.path.abspath(program)).as_posix()


# ---------------------------------------------------------------- GitHub
def github(checked: Sequence[Checked]) -> Iterator[str]:
    """A workflow command for each finding, which GitHub Actions shows beside the file."""
    for each in checked:
        if each.error is not None:
            yield _command(each.program, each.error.code, text_of(each.error))
        for finding in each.findings:
            where = place(finding, has_blocks(each))
            yield _command(each.program, finding.code, f"{where}: {finding.message}" if where else finding.message)


def _command(program: str, title: str, message: str) -> str:
    file = _escaped(_seen_from_here(program)).replace(":", "%3A").replace(",", "%2C")
    return f"::error file={file},title={title}::{_escaped(message)}"


def _escaped(text: str) -> str:
    """As workflow commands have text: one line, in which `%` is not an escape."""
    return printable(text.replace("\r", "\n")).replace("%", "%25").replace("\n", "%0A")
