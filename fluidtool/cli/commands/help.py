"""`fluidtool help`."""

from __future__ import annotations

from typing import Annotated

import typer

from fluidtool.cli.commands import COMMANDS
from fluidtool.cli.environment import VARIABLES
from fluidtool.cli.explanations import ERRORS, FINDINGS, Explanation
from fluidtool.cli.help import help_page
from fluidtool.cli.render import Table, fields, show, table
from fluidtool.cli.topics import LISTS, TOPICS, topic_page
from fluidtool.errors import UsageError


def help(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="[TOPIC]", help="A command, a topic, or an error code such as FT210."),
    ] = None,
    codes: Annotated[list[str] | None, typer.Argument(metavar="[CODE...]", help="After 'errors': which codes.")] = None,
) -> None:
    """Show the help of a command, a page on a topic, or what an error code means and what to do.

    'fluidtool help topics' lists the topics. 'fluidtool help errors' lists all codes; 'fluidtool help errors FT210', or
    'fluidtool help FT210', explains one. 'fluidtool help environment' lists the environment variables.
    """
    words = "-".join([topic or "", *(codes or [])])  # exit codes, as people say it
    if topic is None:
        print(help_page(), end="")
    elif topic == "errors":
        _errors(codes or [])
    elif words in TOPICS:
        print(topic_page(words), end="")
    elif codes:
        raise UsageError(f"only 'errors' takes codes, found {topic!r} with {' '.join(codes)}")
    elif topic == "environment":
        show(*(_variables(title, listed) for title, listed in VARIABLES.items()))
    elif topic == "topics":
        show(_topics())
    elif topic in COMMANDS:
        from fluidtool.cli.app import run_command

        raise typer.Exit(run_command([topic, "--help"]))
    else:
        _errors([topic])


def _errors(codes: list[str]) -> None:
    known = ERRORS | FINDINGS
    if not codes:
        show(_listed("Errors", ERRORS), _listed("Findings of check", FINDINGS))
        return
    for code in codes:
        if code.upper() not in known:
            raise UsageError(
                f"there is no help on {code!r}; 'fluidtool help' lists commands and topics, 'fluidtool help errors' all codes"
            )
    show(*(_explained(code.upper(), known[code.upper()]) for code in codes))


def _explained(code: str, explanation: Explanation) -> Table:
    return fields(code, [("meaning", explanation.meaning), ("what to do", explanation.remedy)])


def _listed(title: str, explanations: dict[str, Explanation]) -> Table:
    out = table(title, "!code", "meaning")
    for code, explanation in explanations.items():
        out.add(code, explanation.meaning)
    return out


def _topics() -> Table:
    out = table("Topics", "!topic", "about")
    for name, topic in TOPICS.items():
        out.add(name, topic.summary)
    for name, about in LISTS.items():
        out.add(name, about)
    return out


def _variables(title: str, listed: dict[str, str]) -> Table:
    out = table(title, "!variable", "meaning")
    for name, meaning in listed.items():
        out.add(name, meaning)
    return out
