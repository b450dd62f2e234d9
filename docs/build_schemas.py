"""Regenerates `docs/schemas/*.json` from the types in `fluidtool/report`: `python docs/build_schemas.py [--check]`."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

FOLDER = Path(__file__).with_name("schemas")
DIALECT = "https://json-schema.org/draft/2020-12/schema"
PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}
SHARED = frozenset({"__init__", "common"})
Schema = dict[str, Any]


def commands() -> list[str]:
    """The names of the modules that have a document."""
    return sorted(path.stem for path in (ROOT / "fluidtool" / "report").glob("*.py") if path.stem not in SHARED)


def schema_of(command: str) -> Schema:
    """The schema of what a command writes; one of several kinds of documents where there are several."""
    module = import_module(f"fluidtool.report.{command}")
    documents = _members(getattr(module, f"{command.capitalize()}Report"))
    found: dict[str, Schema] = {}
    references = [_of(document, found) for document in documents]
    head = {"$schema": DIALECT, "title": f"fluidtool.{command}/1", "description": module.__doc__}
    body = references[0] if len(references) == 1 else {"oneOf": references}
    return {**head, **body, "$defs": dict(sorted(found.items()))}


def _members(kind: Any) -> Sequence[Any]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else [kind]


def _of(kind: Any, found: dict[str, Schema]) -> Schema:
    """The schema of a type; records are added to `found` and referred to."""
    origin = get_origin(kind)
    if kind is Any:
        return {}
    if kind in PLAIN:
        return {"type": PLAIN[kind]}
    if is_typeddict(kind):
        return _record(kind, found)
    if origin is Annotated:
        inner, text = get_args(kind)
        return {"description": text, **_of(inner, found)}
    if origin is Literal:
        values = list(get_args(kind))
        return {"const": values[0]} if len(values) == 1 else {"enum": values}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_of(member, found) for member in get_args(kind)]}
    if origin is Sequence:
        return {"type": "array", "items": _of(get_args(kind)[0], found)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _of(get_args(kind)[1], found)}
    raise TypeError(f"{kind} has no counterpart in JSON Schema")


def _record(kind: Any, found: dict[str, Schema]) -> Schema:
    name = kind.__name__
    if name not in found:
        hints = get_type_hints(kind, include_extras=True)
        found[name] = {}
        found[name] = {
            "type": "object",
            "description": kind.__doc__,
            "properties": {key: _of(_value(hint), found) for key, hint in hints.items()},
            "required": [key for key, hint in hints.items() if get_origin(hint) is not NotRequired],
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{name}"}


def _value(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is NotRequired else hint


def files() -> dict[Path, str]:
    """Each file and what it should contain."""
    return {FOLDER / f"{name}-1.json": json.dumps(schema_of(name), indent=2) + "\n" for name in commands()}


def main(arguments: list[str]) -> int:
    """Write the files, or with --check say whether they are current."""
    wanted = files()
    if "--check" in arguments:
        present = {path: path.read_text() for path in FOLDER.glob("*.json")}
        return 0 if present == wanted else 1
    FOLDER.mkdir(exist_ok=True)
    for path in set(FOLDER.glob("*.json")) - wanted.keys():
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
