"""`fluidtool launch`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fluidtool.cli.options.changed import Changed
from fluidtool.cli.options.distribution import Pservers, Trainers
from fluidtool.cli.options.outputs import Json
from fluidtool.cli.options.training import Checkpoint, Keep, Resume
from fluidtool.errors import UsageError

if TYPE_CHECKING:
    from fluidtool.distribute.launch.blueprint import Blueprint

# Options of launch that no role knows: behind JOB they would be the trainers'.
OWN = (
    "--mode",
    "--pservers",
    "--trainers",
    "--async",
    "--port",
    "--any-ports",
    "--restarts",
    "--hang-after",
    "--grace",
    "--role",
    "--elastic",
    "--stragglers",
    "--replicas",
    "--metrics",
    "--watch",
)
JOB, PLACES, RECOVERY = "The job", "Where it runs", "Failures"


def launch(
    job: Annotated[
        Path,
        typer.Argument(
            metavar="JOB",
            help="A folder written by 'fluidtool transpile --distribute', or a Python script that every role runs.",
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ARGUMENTS]...",
            help="After JOB: options that trainers add to 'fluidtool run' (--data FILE --epochs N ...), or the "
            "script's arguments.",
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode",
            metavar="pserver|collective",
            rich_help_panel=JOB,
            help="Whether servers keep the parameters, or trainers exchange gradients (default: that of the folder; "
            "pserver for a script).",
        ),
    ] = None,
    pservers: Annotated[
        Pservers,
        Changed(
            metavar="N|HOST:PORT,...",
            panel=JOB,
            help="The number of servers, or their endpoints (default: the folder's; 1 for a script).",
        ),
    ] = None,
    trainers: Annotated[
        Trainers,
        Changed(
            panel=JOB,
            help="The number of trainers; in collective mode also their endpoints (default: the folder's; 1 for a "
            "script).",
        ),
    ] = None,
    asynchronous: Annotated[
        bool,
        typer.Option(
            "--async",
            rich_help_panel=JOB,
            help="The trainers of the script do not wait for each other: only a role that dies is restarted.",
        ),
    ] = False,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="local|ray|mpi",
            rich_help_panel=PLACES,
            help="What starts the roles: a supervisor on this machine, Ray, or the MPI job that this process "
            "belongs to.",
        ),
    ] = "local",
    port: Annotated[
        int,
        typer.Option(
            "--port",
            metavar="N",
            min=1,
            max=65535,
            rich_help_panel=PLACES,
            help="The port of the endpoints of a script's roles.",
        ),
    ] = 6174,
    role: Annotated[
        str | None,
        typer.Option(
            "--role",
            metavar="NAME|N",
            rich_help_panel=PLACES,
            help="Start this role alone, such as pserver_0 or trainer_1, or by its number (servers come first); others start "
            "the other roles: Kubernetes, Slurm. Endpoints of the job may be replaced with --pservers or --trainers.",
        ),
    ] = None,
    any_ports: Annotated[
        bool,
        typer.Option(
            "--any-ports", rich_help_panel=PLACES, help="Use free ports of this machine instead of those of the job."
        ),
    ] = False,
    ray_address: Annotated[
        str | None,
        typer.Option(
            "--ray-address",
            metavar="ADDRESS",
            rich_help_panel=PLACES,
            help="The Ray cluster, such as auto or ray://head:10001 (default: a new one on this machine).",
        ),
    ] = None,
    checkpoint: Annotated[Checkpoint, Changed(panel=RECOVERY, help="Every role saves checkpoints in DIR.")] = None,
    checkpoint_every: Annotated[
        int,
        typer.Option(
            "--checkpoint-every", metavar="N", min=1, rich_help_panel=RECOVERY, help="Save after every N steps."
        ),
    ] = 100,
    keep: Annotated[Keep, Changed(min=2, panel=RECOVERY, help="The number of checkpoints to keep per role.")] = 2,
    resume: Annotated[
        Resume, Changed(panel=RECOVERY, help="Resume from the newest step that all roles have saved.")
    ] = False,
    restarts: Annotated[
        int,
        typer.Option(
            "--restarts",
            metavar="N",
            min=0,
            rich_help_panel=RECOVERY,
            help="How many times to restart after a failure: all roles, from the newest common checkpoint; in an "
            "asynchronous job only the role that died.",
        ),
    ] = 0,
    elastic: Annotated[
        int | None,
        typer.Option(
            "--elastic",
            metavar="MIN",
            min=1,
            rich_help_panel=RECOVERY,
            help="Let trainers join and leave without restarting the others: one that fails is restarted alone, or left out, as "
            "long as at least MIN take part. For folders with parameter servers.",
        ),
    ] = None,
    stragglers: Annotated[
        str,
        typer.Option(
            "--stragglers",
            metavar="report|drop[:FACTOR]",
            rich_help_panel=RECOVERY,
            help="Report trainers that take more than FACTOR times (default: 2) as long for a round as the median of the "
            "others; drop: let the round end without them (--elastic).",
        ),
    ] = "",
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas",
            metavar="1|2",
            min=1,
            max=2,
            rich_help_panel=RECOVERY,
            help="2: keep a second copy of every server, so that losing one of the two loses nothing, and the job continues. "
            "--restarts says how many lost copies are replaced. For folders with two or more parameter servers.",
        ),
    ] = 1,
    grace: Annotated[
        float,
        typer.Option(
            "--grace",
            metavar="SECONDS",
            min=0,
            rich_help_panel=RECOVERY,
            help="How long a role may take to end when asked to, before it is killed.",
        ),
    ] = 10.0,
    hang_after: Annotated[
        float,
        typer.Option(
            "--hang-after",
            metavar="SECONDS",
            min=0,
            rich_help_panel=RECOVERY,
            help="Fail a job if no trainer reports or writes anything for this long (0: never).",
        ),
    ] = 300.0,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="[HOST:]PORT",
            help="Show metrics for Prometheus at http://HOST:PORT/metrics (default host: 127.0.0.1): those of the first "
            "role at PORT, of the next at PORT + 1, and so on.",
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="On a terminal, show one page: roles, state, step, examples/s, restarts, the last error, the last output.",
        ),
    ] = False,
    json: Annotated[
        Json, Changed(help="Write one line of JSON per event to stdout, and the roles' output to stderr.")
    ] = False,
) -> None:
    """Start and supervise all roles of a distributed job.

    Options come before JOB; what follows it goes to the trainers. Exit codes: 0 when all trainers are done; that of the first
    role that failed for good (128 + N after signal N); 124 for a job that hangs; 130 after Ctrl-C, 143 after SIGTERM.
    """
    from fluidtool.cli.app import run_command
    from fluidtool.cli.views.launch import show_outcome, view
    from fluidtool.distribute.launch.plans import Checkpoints, Elastic
    from fluidtool.distribute.metrics.endpoint import metrics_endpoint
    from fluidtool.workflows.launch import LaunchOptions
    from fluidtool.workflows.launch import launch as launch_job

    if watch and json:
        raise UsageError("--watch and --json are two ways to show a job; omit one of them")
    words = arguments or []
    blueprint = _blueprint(
        job,
        words,
        mode=mode,
        servers=pservers,
        trainers=trainers,
        sync=not asynchronous,
        checkpoints=Checkpoints(checkpoint, checkpoint_every, keep),
        movable=role is not None,
        elastic=Elastic(elastic, stragglers),
        replicas=replicas,
    )
    if metrics is not None:
        blueprint = replace(blueprint, metrics=metrics_endpoint(metrics, "--metrics"))
    options = LaunchOptions(engine, port, any_ports, ray_address, resume, restarts, grace, hang_after, role)
    result = launch_job(blueprint, options, show=lambda roles: view(roles, json, watch), play=run_command)
    if result.outcome is not None:
        show_outcome(result.outcome, json)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _blueprint(job: Path, words: list[str], **options: Any) -> Blueprint:
    """The job with what follows it as the trainers' arguments; raises UsageError for an option of launch among them."""
    from fluidtool.distribute.launch.blueprint import draw

    arguments = words[1:] if words[:1] == ["--"] else words
    blueprint = draw(job, arguments=arguments, **options)
    late = [word for word in arguments if word.partition("=")[0] in OWN]
    if late and not blueprint.is_script and words is arguments:
        raise UsageError(f"{late[0]} comes after {job}, so it goes to the trainers; put options of launch before it")
    return blueprint
