"""What a shell offers after the words of an unfinished command line, and the scripts that ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fluidtool.cli.commands import COMMANDS
from fluidtool.errors import FluidError

LARGEST_PROGRAM = 64 << 20  # bytes: a completion has to come at once

SCRIPTS = {
    "bash": """\
_fluidtool() {
    local IFS=$'\\n' word words=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do words+=("--words=$word"); done
    COMPREPLY=($(fluidtool completion "${words[@]}" 2>/dev/null))
}
complete -o default -F _fluidtool fluidtool
""",
    "zsh": """\
_fluidtool() {
    local word found=() asked=()
    for word in "${(@)words[2,CURRENT]}"; do asked+=("--words=$word"); done
    found=("${(@f)$(fluidtool completion "${asked[@]}" 2>/dev/null)}")
    if [[ -n "${found[*]}" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _fluidtool fluidtool
""",
    "fish": """\
function __fluidtool
    set -l words (commandline -opc) (commandline -ct)
    set -l found (fluidtool completion --words=$words[2..-1] 2>/dev/null)
    if set -q found[1]
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c fluidtool -f -a '(__fluidtool)'
""",
}


def candidates(words: Sequence[str], begun: str) -> list[str]:
    """What may stand in place of `begun` after these words; nothing where a file may."""
    if not words:
        return _beginning(begun, COMMANDS)
    command, *rest = words
    if command not in COMMANDS:
        return []
    options = _options(command)
    if begun.startswith("-"):
        return _beginning(begun, options)
    return _beginning(begun, _values(command, options, rest))


def _beginning(begun: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(begun)]


def _options(command: str) -> dict[str, Any]:
    """The options of a command with their parameters."""
    from typer.main import get_command

    from fluidtool.cli.app import app

    group: Any = get_command(app)
    return {name: param for param in group.get_command(None, command).params for name in param.opts if name[0] == "-"}


def _values(command: str, options: dict[str, Any], words: Sequence[str]) -> Iterable[str]:
    """The values that may follow."""
    from fluidtool.cli.app import SEVERAL_VALUES

    if command == "help":
        from fluidtool.cli.explanations import ERRORS, FINDINGS
        from fluidtool.cli.topics import LISTS, TOPICS

        return [*COMMANDS, *TOPICS, *LISTS, *ERRORS, *FINDINGS]
    option = next((word for word in reversed(words) if word.startswith("-")), "")
    behind = words[::-1].index(option) if option else 0
    takes_value = option in options and not options[option].is_flag
    if not takes_value or (behind and option not in SEVERAL_VALUES):
        return []
    if option in VALUES:
        return VALUES[option](words)
    return getattr(options[option].type, "choices", ())


def _variables(words: Sequence[str]) -> list[str]:
    from fluidtool.workflows.fetches import computed_names

    model = _model(words)
    return [] if model is None else computed_names(model.program)


def _inputs(words: Sequence[str]) -> list[str]:
    model = _model(words)
    return [] if model is None else list(model.feeds)


def _fed(words: Sequence[str]) -> list[str]:
    return [f"{name}=" for name in _inputs(words)]


def _passes(words: Sequence[str]) -> list[str]:
    from fluidtool.passes.catalogue import INFERENCE_PASSES

    return [each.name for each in INFERENCE_PASSES]


def _engines(words: Sequence[str]) -> list[str]:
    from fluidtool.runtime.engines.registry import ENGINES

    return ["auto", *ENGINES]


VALUES: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "--fetch": _variables,
    "--targets": _variables,
    "--inputs": _inputs,
    "--feed": _fed,
    "--lod": _fed,
    "--shape": _fed,
    "--fuse": _passes,
    "--engine": _engines,
    "--device": lambda words: ["cpu", "gpu"],
    "--precision": lambda words: ["float32", "bf16"],
}


def _model(words: Sequence[str]) -> Any:
    """The model that is named first; None if there is none, or it cannot be read: a completion says nothing about it."""
    from fluidtool.cli.opening import open_model

    path = next((word for word in words if not word.startswith("-")), "")
    try:
        if not path or sum(file.stat().st_size for file in _programs(Path(path))) > LARGEST_PROGRAM:
            return None
        return open_model(path, need_parameters=False, validate=False)
    except (FluidError, OSError):
        return None


def _programs(path: Path) -> list[Path]:
    """The files that may be the program."""
    if path.is_dir():
        return [file for name in ("__model__", "model") if (file := path / name).is_file()]
    return [file for file in (path, path.with_name(f"{path.name}.pdmodel")) if file.is_file()]
