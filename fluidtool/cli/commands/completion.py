"""`fluidtool completion`."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from fluidtool.errors import UsageError


class Shell(StrEnum):
    """The shells with a script."""

    bash, zsh, fish = "bash", "zsh", "fish"


def completion(
    shell: Annotated[
        Shell | None, typer.Argument(metavar="[SHELL]", help="bash, zsh or fish (default: the one in SHELL).")
    ] = None,
    words: Annotated[
        list[str] | None,
        typer.Option("--words", metavar="WORD", hidden=True, help="What the script asks: the words up to the cursor."),
    ] = None,
) -> None:
    """Print a script that completes commands, options and names of a model's variables in a shell.

    For bash: eval "$(fluidtool completion bash)" in ~/.bashrc. For zsh: the same with zsh, after compinit, in ~/.zshrc. For
    fish: fluidtool completion fish > ~/.config/fish/completions/fluidtool.fish
    """
    from fluidtool.cli.completion import SCRIPTS, candidates

    if words is not None:
        sys.stdout.writelines(f"{candidate}\n" for candidate in candidates(words[:-1], words[-1]))
        return
    name = shell or os.path.basename(os.environ.get("SHELL", ""))
    if name not in SCRIPTS:
        raise UsageError(f"there is no completion for the shell {name!r}; expected one of {', '.join(SCRIPTS)}")
    sys.stdout.write(SCRIPTS[name])
