"""The published schemas: current, strict, one word for one thing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from docs import build_schemas
from docs.build_schema_pages import shown as shown_json
from fluidtool.cli.commands import COMMANDS
from fluidtool.cli.options.changed import with_changes
from tests.cli.support import DIGITS, call_json
from tests.support.schemas import SCHEMAS, check_document, validator

FILES = sorted(SCHEMAS.glob("*.json"))
OTHER_WORDS = {
    "nbytes",
    "nans",
    "infs",
    "infinities",
    "dtype",
    "minimum",
    "maximum",
    "deviation",
    "position",
    "op",
    "idx",
}


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every record of a schema."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            yield schema
        for value in schema.values():
            yield from objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from objects(value)


def test_the_files_are_current() -> None:
    assert build_schemas.main(["--check"]) == 0


def test_every_command_with_json_has_a_schema() -> None:
    import inspect

    functions = {name: getattr(import_module(f"fluidtool.cli.commands.{name}"), name) for name in COMMANDS}
    with_json = {name for name, each in functions.items() if "json" in inspect.signature(with_changes(each)).parameters}
    assert with_json | {"error"} == {path.name.removesuffix("-1.json") for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_record_is_closed_and_every_key_described(path: Any) -> None:
    schema = json.loads(path.read_text())
    validator(schema["title"])
    for record in objects(schema):
        assert record["additionalProperties"] is False and record["description"]
        assert all(each.get("description") for each in record["properties"].values()), record["properties"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_one_word_for_one_thing(path: Any) -> None:
    for record in objects(json.loads(path.read_text())):
        assert not OTHER_WORDS & record["properties"].keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_document_has_a_page_with_every_key_and_an_example(path: Any) -> None:
    schema, page = json.loads(path.read_text()), path.with_suffix(".md").read_text()
    assert [key for record in objects(schema) for key in record["properties"] if f"\n| `{key}` | " not in page] == []
    assert f'"schema": "{schema["title"]}"' in page.partition("## Examples")[2]


def test_an_example_is_json_with_long_lists_shortened() -> None:
    document = {"a": list(range(9)), "b": [{"c": "x" * 90} for _ in range(5)]}
    shown = shown_json(document)
    assert json.loads(shown.replace(",\n    …", "")) == {"a": document["a"], "b": document["b"][:3]}
    assert json.loads(shown_json(list(range(99))).replace(", …", "")) == [0, 1, 2]


def test_a_key_that_is_not_documented_is_refused() -> None:
    document = call_json("inspect", DIGITS)
    check_document(document)
    document["cost"]["joules"] = 1
    with pytest.raises(AssertionError, match="joules"):
        check_document(document)


def test_a_key_that_is_missing_is_refused() -> None:
    document = call_json("check", DIGITS)
    del document["findings"]
    with pytest.raises(AssertionError, match="findings"):
        check_document(document)


def test_no_report_is_imported_to_write_one() -> None:
    import subprocess
    import sys

    from tests.support.checkout import child_environment

    code = (
        "import sys; from fluidtool.cli.app import run_command; run_command(sys.argv[1:]);"
        "print([name for name in sys.modules if name.startswith('fluidtool.report')], file=sys.stderr)"
    )
    words = [sys.executable, "-c", code, "inspect", str(DIGITS), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=child_environment())
    assert done.stderr.strip() == "[]"
