"""The typer application: a group that imports a command when it is called, and commands with grouped help."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from itertools import pairwise
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from fluidtool.cli.commands import COMMANDS
from fluidtool.cli.failures import report
from fluidtool.cli.help import help_page
from fluidtool.cli.opening import require_no_empty, require_one_stdin
from fluidtool.errors import EXIT_OK, UsageError

SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
COMMANDS_PACKAGE = "fluidtool.cli.commands"
JSON = "fluidtool.json"  # where a command that was parsed says whether it writes JSON
ORDER = "fluidtool.order"  # where a command finds the order of its options
NOT_READ = frozenset({"arguments", "output"})  # what a script gets, and where results go
TAKES_A_COMMAND_LINE = frozenset({"exec", "launch"})
SEVERAL_VALUES = frozenset({"--fetch", "--targets", "--inputs", "--data", "--fuse", "--skip"})


class Command(TyperCommand):
    """A command whose options stand in groups in its help, and whose name options take several values in a row."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer's, after `--fetch a b` was written out as `--fetch a --fetch b`."""
        if self.name in TAKES_A_COMMAND_LINE:  # what stands behind the script belongs to the script
            ctx.allow_interspersed_args = False
            return self._parsed(ctx, args)
        words = spread(args, self._options_with_value())
        require_no_empty(words)
        try:
            ctx.meta[ORDER] = self._order(ctx, words)
            return self._parsed(ctx, words)
        except Exception as error:
            if getattr(error, "ctx", ctx) is None:  # so that the hint names the help of this command
                error.ctx = ctx  # type: ignore[attr-defined]
            raise

    def _parsed(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer's; notes whether failures are to be written as JSON."""
        left = list(super().parse_args(ctx, args))
        ctx.meta[JSON] = bool(ctx.params.get("json")) or ctx.params.get("format") == "json"
        require_one_stdin(value for name, value in ctx.params.items() if name not in NOT_READ)
        return left

    def _order(self, ctx: Any, words: list[str]) -> list[str]:
        """The parameters in the order in which the words name them, as often as they do."""
        _, _, order = self.make_parser(ctx).parse_args(args=list(words))
        return [param.name for param in order if param.name]

    def _options_with_value(self) -> set[str]:
        return {name for param in self.params if not getattr(param, "is_flag", False) for name in param.opts}

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """As typer's, without the braces that some versions put around arguments."""
        return [str(piece).strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Plain text: early versions of typer draw boxes whatever they are told."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        self.format_options(ctx, formatter)
        self.format_examples(formatter)

    def format_examples(self, formatter: Any) -> None:
        """Command lines as they are typed: not wrapped."""
        from fluidtool.cli.examples import EXAMPLES

        if self.name in EXAMPLES:
            with formatter.section("Examples"):
                for line in EXAMPLES[self.name]:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """One section for each group of options (`rich_help_panel` of typer)."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                panel = getattr(param, "rich_help_panel", None)
                sections.setdefault(panel if isinstance(panel, str) else "Options", []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=26)


def spread(args: Sequence[str], with_value: set[str]) -> list[str]:
    """Repeat an option that takes several values before each of them, once the model itself has been named."""
    out: list[str] = []
    model_seen, repeated, value_due = False, "", False
    for position, word in enumerate(args):
        if word == "--":
            return out + list(args[position:])
        if value_due:
            value_due = False
        elif word.startswith("-") and word != "-":
            name, equals, _ = word.partition("=")
            value_due = name in with_value and not equals
            repeated = name if name in SEVERAL_VALUES else ""
        elif repeated and model_seen:
            out.append(repeated)
        else:
            model_seen, repeated = True, ""
        out.append(word)
    return out


class Commands(TyperGroup):
    """The commands of `commands`, each imported when it is called; every failure becomes a paragraph and a code."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or None."""
        if cmd_name not in COMMANDS:
            return None
        from fluidtool.cli.options.changed import with_changes
        from fluidtool.cli.verbosity import with_verbosity

        function = getattr(import_module(f"{COMMANDS_PACKAGE}.{cmd_name}"), cmd_name)
        single = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=SETTINGS)
        single.command(cmd_name, cls=Command)(with_verbosity(with_changes(function)))
        return get_command(single)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer's; an unknown name is answered with near ones."""
        if args and args[0] not in COMMANDS:
            if args[0].startswith("-"):
                ctx.fail(f"No such option: {args[0]}")
            near = get_close_matches(args[0], COMMANDS, n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else f"the commands are {', '.join(COMMANDS)}"
            raise UsageError(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The page of `help.py`."""
        formatter.write(help_page())

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **__: Any) -> NoReturn:
        """Run and leave the process with the exit code."""
        sys.exit(self.exit_code(list(sys.argv[1:] if args is None else args)))

    def exit_code(self, args: list[str]) -> int:
        """Run and return the exit code; whatever is raised is said on stderr, and in a document if JSON was requested."""
        found: dict[str, Any] = {}
        try:
            with self.make_context("fluidtool", args) as ctx:
                found = ctx.meta
                self.invoke(ctx)
            sys.stdout.flush()
        except SystemExit:
            raise
        except BaseException as error:
            return report(error, found.get(JSON, requests_json(args)))
        return EXIT_OK


def requests_json(words: Sequence[str]) -> bool:
    """Whether a command line that cannot be parsed requests JSON."""
    own = words[: words.index("--")] if "--" in words else words
    pairs = pairwise(own)
    return "--json" in own or "--format=json" in own or ("--format", "json") in pairs


app = typer.Typer(
    cls=Commands, add_completion=False, rich_markup_mode=None, invoke_without_command=True, context_settings=SETTINGS
)


@app.callback()
def fluidtool(
    ctx: typer.Context,
    version: bool = typer.Option(False, "--version", help="Show the version."),
) -> None:
    """Read, inspect, check, transpile, train and run PaddlePaddle Fluid models without Paddle."""
    if version:
        from fluidtool._version import __version__

        print(f"fluidtool {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(help_page(), end="")


def run_command(arguments: list[str]) -> int:
    """Run one command line and return the exit code."""
    group = get_command(app)
    assert isinstance(group, Commands)
    return group.exit_code(arguments)
