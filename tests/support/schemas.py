"""Validating what commands write as JSON against the published schemas (`docs/schemas`)."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from tests.support.checkout import ROOT

SCHEMAS = ROOT / "docs" / "schemas"


@cache
def validator(name: str) -> Draft202012Validator:
    """The validator of documents with the schema `name`, such as 'fluidtool.run/1'."""
    command, _, version = name.removeprefix("fluidtool.").partition("/")
    schema = json.loads((SCHEMAS / f"{command}-{version}.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def documents(text: str) -> list[Any]:
    """The JSON documents of an output, one after another."""
    decoder, found, start = json.JSONDecoder(parse_constant=_refuse), [], 0
    while start < len(text):
        document, end = decoder.raw_decode(text, start)
        found.append(document)
        start = end + 1  # the end of its line
    return found


def _refuse(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


def check_document(document: Any) -> None:
    """Fail unless a document names its schema and matches it."""
    errors = sorted(validator(document["schema"]).iter_errors(document), key=lambda error: list(error.absolute_path))
    assert not errors, "\n".join(f"{error.json_path}: {_reason(error)}" for error in errors[:5])


def _reason(error: Any) -> str:
    """Why a document does not match; of several kinds of documents, that of the kind that it says it is."""
    if not error.context:
        return str(error.message)[:400]
    other_kinds = {each.relative_schema_path[0] for each in error.context if each.validator in ("const", "enum")}
    reasons = [each for each in error.context if each.relative_schema_path[0] not in other_kinds]
    return "; ".join(f"{each.json_path}: {_reason(each)}" for each in reasons[:3])


def check_documents(text: str) -> None:
    """Check every document of an output."""
    for document in documents(text):
        check_document(document)
