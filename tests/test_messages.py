"""Messages of our own are worded alike: "X must be A, found B", one sentence without a period, plurals that agree.

Left out: `fluidtool/fluid` and other messages in Paddle's words, which users search for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PADDLES = (
    "fluidtool/fluid",
    "fluidtool/passes/backward",
    "fluidtool/compat/removed",
    "fluidtool/compat/dataset/common.py",
    "fluidtool/tensor/create.py",
    "fluidtool/ir/block.py",
    "fluidtool/ir/surgery.py",
    "ops/building.py",
)
IN_PADDLES_WORDS = re.compile(  # elsewhere; each is what Paddle says in that place
    r"skip_opt_set|table init op num|lookup_table_ops|go block should|nullptr|error_clip should|Select can only|desires to be"
    r"|feeded_var_names|`type` to initialized|for Parameter must|number of endpoints must be > 1"
)
RULES = {
    "say must": re.compile(r"\bshould (be|have|hold|lie|name|agree|not)\b"),
    "say what it must be first: X must be A, found B": re.compile(r"\bis \{[^{}]*\}; expected"),
    "say expected one of": re.compile(
        r"; (there|they) are \{|; the (?!inputs|outputs)\w+ are \{|[;,] (choose|name) one of \{"
    ),
    "end without a period": re.compile(r"(?<!\.)\.$"),
    "say what was found": re.compile(r"^(?!.*(\bfound\b|\bbut\b|\{)).*\bmust be\b"),
}
SHAPE = re.compile(r"\bshapes?\b|_shapes?\b")
SHAPES_OF_PADDLE = (  # text of Paddle's, in which a shape is a list or what `repr` makes of it
    "fluidtool/fluid/debugger.py",
    "fluidtool/fluid/executor.py",
    "fluidtool/fluid/ir_graph.py",
    "fluidtool/fluid/layers/control_flow/while_loop.py",
    "fluidtool/fluid/transpiler/details.py",
    "fluidtool/passes/memory_optimize.py",
)
COUNTED = re.compile(
    r"\{(?!counted|_count)[^{}]*(len|count|sum)\b[^{}]*\} (operator|parameter|file|variable|value|output|run|role)s\b"
)


class Message(NamedTuple):
    file: str
    line: int
    text: str


def text_of(node: ast.expr) -> str | None:
    """The source's text, with {expression} where a value goes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_part(part) for part in node.values)
    return None


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.FormattedValue):
        conversion = f"!{chr(part.conversion)}" if part.conversion > 0 else ""
        return f"{{{ast.unparse(part.value)}{conversion}}}"
    return text_of(part) or ""


def raised(path: str, source: str) -> Iterator[Message]:
    """The first argument of every error that a file raises."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            text = text_of(node.exc.args[0])
            if text is not None and " " in text:
                yield Message(path, node.lineno, text)


def sources(*folders: str, but: tuple[str, ...] = PADDLES) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith((*but, "fluidtool/ops/", "fluidtool/proto/")):
                yield name, path.read_text()


def faults(messages: Iterator[Message]) -> list[str]:
    return [
        f"{message.file}:{message.line}: {message.text!r}: {advice}"
        for message in messages
        if not IN_PADDLES_WORDS.search(message.text)
        for advice, rule in RULES.items()
        if rule.search(message.text)
    ]


def test_errors_are_worded_alike() -> None:
    found = [message for name, source in sources("fluidtool", "ops") for message in raised(name, source)]
    assert len(found) > 1500
    assert faults(iter(found)) == []


@pytest.mark.parametrize(
    ("raising", "advice"),
    [
        ('raise UsageError(f"k should be positive, found {k}")', "say must"),
        ('raise UsageError(f"k is {k!r}; expected a number")', "say what it must be first"),
        ("raise UsageError(f\"no kind {k}; the kinds are {', '.join(kinds)}\")", "say expected one of"),
        ('raise UsageError(f"k is {k}.")', "end without a period"),
        ('raise UsageError("k must be positive")', "say what was found"),
    ],
)
def test_other_wordings_are_found(raising: str, advice: str) -> None:
    (fault,) = faults(raised("x.py", raising))
    assert advice in fault


def other_forms(path: str, source: str) -> Iterator[str]:
    """Places where an f-string or a table shows a shape in another form than `shape_text(…)` or the `shape` of an array."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FormattedValue(value, -1):
                shown = [value]
            case ast.Call(ast.Attribute(_, "add"), cells) if path.startswith("fluidtool/cli/"):
                shown = cells
            case _:
                continue
        yield from (f"{path}:{node.lineno}: {ast.unparse(value)}" for value in shown if _is_shape(value))


def _is_shape(value: ast.expr) -> bool:
    """Whether an expression is a shape as it stands: a name that says so, a slice or method of one, a list or tuple of it."""
    match value:
        case ast.Name(name):
            return bool(SHAPE.search(name))
        case ast.Subscript(_, ast.Constant("shape")):
            return True
        case ast.Subscript(inner, ast.Slice()):
            return not isinstance(inner, ast.Attribute) and _is_shape(inner)
        case ast.Call(ast.Attribute(_, "shape"), []):
            return True
        case ast.Call(ast.Name("list" | "tuple" | "str" | "repr" | "sorted"), [inner]):
            return _is_shape(inner) or _is_shape_of_array(inner)
        case ast.ListComp(inner) | ast.List([ast.Starred(inner), *_]):
            return _is_shape(inner) or _is_shape_of_array(inner)
        case ast.IfExp(_, body, other):
            return _is_shape(body) or _is_shape(other)
    return False


def _is_shape_of_array(value: ast.expr) -> bool:
    inner = value.value if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice) else value
    return isinstance(inner, ast.Attribute) and inner.attr == "shape"


def test_shapes_are_shown_alike() -> None:
    ours = [each for each in sources("fluidtool", "ops", but=()) if each[0] not in SHAPES_OF_PADDLE]
    assert [place for name, source in ours for place in other_forms(name, source)] == []


@pytest.mark.parametrize(
    "text",
    [
        "{list(x.shape)}",
        "{tuple(x.shape)}",
        "{list(x.shape[1:])}",
        "{shape}",
        "{list(shape)}",
        "{filter_shape}",
        "{shape[1:]}",
        "{x.shape()}",
        "{[list(x.shape) for x in X]}",
        "{[x.shape for x in X]}",
        "{sorted(shapes)}",
        "{'' if x is None else list(x.shape)}",
    ],
)
def test_other_forms_of_a_shape_are_found(text: str) -> None:
    assert len(list(other_forms("x.py", f'f"X must be a matrix, found {text}"'))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "{shape_text(shape)}",
        "{shapes_text(shapes)}",
        "{x.shape}",
        "{x.shape[1:]}",
        "{shape[0]}",
        "{len(shape)}",
        "{shape!r}",
        "{list(axes)}",
    ],
)
def test_the_forms_of_a_shape_that_are_alike_pass(text: str) -> None:
    assert not list(other_forms("x.py", f'f"X must be a matrix, found {text}"'))


@pytest.mark.parametrize("cell", ["shape", "list(x.shape)", "found['shape']"])
def test_other_forms_of_a_shape_in_a_table_are_found(cell: str) -> None:
    assert len(list(other_forms("fluidtool/cli/views/x.py", f"out.add(name, {cell})"))) == 1


def test_results_are_counted_in_the_singular_too() -> None:
    strings = (
        Message(name, node.lineno, text_of(node) or "")
        for name, source in sources("fluidtool/cli", "fluidtool/workflows")
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.JoinedStr)
    )
    assert [message for message in strings if COUNTED.search(message.text)] == []
