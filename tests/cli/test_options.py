"""Options are declared once, and said in other words where a command needs it."""

from __future__ import annotations

import inspect
from collections import defaultdict
from importlib import import_module
from typing import Annotated, Any, get_args

import pytest
from typer.models import OptionInfo

from fluidtool.cli.commands import COMMANDS
from fluidtool.cli.options import inputs, outputs
from fluidtool.cli.options.changed import Changed, with_changes

# The same name for another thing, of another type.
OTHERWISE = {
    "--engine": {"launch"},
    "--format": {"check", "inspect", "view"},
    "--mode": {"launch", "transpile"},
    "--plan": {"inspect", "transpile"},
    "--rtol": {"compare", "run", "transpile"},
    "--atol": {"compare", "run"},
    "--timeout": {"compare", "debug"},
    "--top": {"compare", "profile"},
    "--checkpoint-every": {"train", "launch"},
}


def options(name: str) -> list[OptionInfo]:
    """The options of a command as they are declared, without what the command says otherwise."""
    function = getattr(import_module(f"fluidtool.cli.commands.{name}"), name)
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    return [note for each in parameters for note in get_args(each.annotation) if isinstance(note, OptionInfo)]


def flags(option: OptionInfo) -> list[str]:
    """'--output', '-o': typer takes the first for a default until it looks at the whole annotation."""
    return [option.default, *(option.param_decls or ())]


def declared(parameter: str, annotation: Any) -> OptionInfo:
    """The option of a command that has this one parameter."""

    def command(**_: Any) -> None: ...

    kind = inspect.Parameter(parameter, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=None)
    command.__signature__ = inspect.Signature([kind])  # type: ignore[attr-defined]
    annotation = inspect.signature(with_changes(command)).parameters[parameter].annotation
    return next(note for note in get_args(annotation) if isinstance(note, OptionInfo))


def test_an_option_of_several_commands_is_declared_once() -> None:
    found: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for command in COMMANDS:
        for option in options(command):
            for name in flags(option):
                if command not in OTHERWISE.get(name, ()):
                    found[name][id(option)].add(command)
    assert {name: list(each.values()) for name, each in found.items() if len(each) > 1} == {}


def test_what_means_something_else_is_declared_by_the_command_itself() -> None:
    for name, commands in OTHERWISE.items():
        assert all(any(name in flags(option) for option in options(each)) for each in commands), name


def test_a_command_says_an_option_in_other_words() -> None:
    changed = declared("seed", Annotated[inputs.Seed, Changed(help="Other words.", panel="Elsewhere", min=1)])
    assert (changed.help, changed.rich_help_panel, changed.min) == ("Other words.", "Elsewhere", 1)
    assert (flags(changed), changed.metavar) == (["--seed"], "N")


def test_the_words_of_the_others_stay() -> None:
    before = declared("json", outputs.Json).help
    declared("json", Annotated[outputs.Json, Changed(help="Other words.")])
    assert declared("json", outputs.Json).help == before


@pytest.mark.parametrize("annotation", [outputs.Json, Annotated[outputs.Json, Changed()]])
def test_what_is_not_changed_is_as_declared(annotation: Any) -> None:
    assert declared("json", annotation).help == "One JSON document on stdout instead of tables."
