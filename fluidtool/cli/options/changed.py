"""A shared option in other words: `Annotated[Seed, Changed(help="The seed of the random values.")]`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from typer.models import OptionInfo


class Changed(NamedTuple):
    """What one command says otherwise of an option; None: as it is declared."""

    help: str | None = None
    panel: str | None = None
    metavar: str | None = None
    min: int | None = None

    def of(self, option: OptionInfo) -> OptionInfo:
        """The option with these changes."""
        changed = copy(option)
        changed.help = option.help if self.help is None else self.help
        changed.rich_help_panel = option.rich_help_panel if self.panel is None else self.panel
        changed.metavar = option.metavar if self.metavar is None else self.metavar
        changed.min = option.min if self.min is None else self.min
        return changed


def with_changes(command: Callable[..., None]) -> Callable[..., None]:
    """The command with a signature as typer reads it, in which each option stands as it was changed."""

    @wraps(command)
    def called(*args: Any, **kwargs: Any) -> None:
        command(*args, **kwargs)

    signature = inspect.signature(command, eval_str=True)
    parameters = [each.replace(annotation=_merged(each.annotation)) for each in signature.parameters.values()]
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return called


def _merged(annotation: Any) -> Any:
    if get_origin(annotation) is not Annotated:
        return annotation
    kind, *notes = get_args(annotation)
    changes = [note for note in notes if isinstance(note, Changed)]
    if not changes:
        return annotation
    option = next(note for note in notes if isinstance(note, OptionInfo))
    return Annotated[kind, changes[-1].of(option)]
