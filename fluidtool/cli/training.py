"""What `train` does once its options are understood."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fluidtool.cli.failures import say
from fluidtool.cli.opening import parse_device, policy_of
from fluidtool.cli.progress import progress
from fluidtool.cli.render import amount, number, show, table
from fluidtool.cli.training_log import TrainingLog
from fluidtool.errors import FeedError, FetchError, OutputExistsError, UsageError
from fluidtool.io import checkpoints
from fluidtool.io.arrays import read_values
from fluidtool.io.atomic import held_names
from fluidtool.io.layout import ModelFiles
from fluidtool.io.parameters import EMPTY_STORE, persistables
from fluidtool.model import Model
from fluidtool.tensor import LoDTensor
from fluidtool.training import (
    CheckpointPlan,
    Examples,
    Order,
    Step,
    Stream,
    Training,
    TrainingPrograms,
    find_loss,
    open_programs,
    stream_of,
)
from fluidtool.training.examples import Source, is_stream, join
from fluidtool.training.saving import check_free
from fluidtool.workflows.feeds import as_declared, read_feed, set_lengths, split_spec
from fluidtool.workflows.names import did_you_mean

BATCH_SIZE = 32


@dataclass(frozen=True, slots=True)
class Request:
    """The options of `train`."""

    program_dir: Path
    main: str | None
    startup: str | None
    data: Sequence[str]
    lods: Sequence[str]
    inputs: Sequence[str]
    batch_size: int | None
    epochs: int
    shuffle: bool
    drop_last: bool
    loss: str | None
    init: Path | None
    fetch: Sequence[str]
    save: Path | None
    save_inference_model: Path | None
    targets: Sequence[str]
    log: Path | None
    json: bool
    log_every: int
    force: bool
    checkpoint: Path | None
    checkpoint_every: str
    keep: int
    resume: bool
    device: str
    seed: int
    allow_nan: bool
    allow_files: Sequence[Path]
    allow_network: bool


def train_and_save(request: Request) -> None:
    """Train, tell of it, and save; whatever cannot work is refused before the first step."""
    plan = _checkpoint_plan(request)
    place, policy = parse_device(request.device), policy_of(request.allow_files, request.allow_network)
    programs = open_programs(request.program_dir, request.main, request.startup)
    loss = find_loss(programs.main, request.loss)
    check_fetches(programs, request.fetch)
    data = read_data(programs, request)
    training = Training(
        programs,
        data,
        order_of(programs, data, request),
        loss,
        fetch=request.fetch,
        place=place,
        policy=policy,
        seed=request.seed,
        allow_nan=request.allow_nan,
    )
    check_outputs(training, request)
    _start(training, plan, request)
    run_steps(training, plan, request)
    save_results(training, request)


# ---------------------------------------------------------------- what the options mean
def _checkpoint_plan(request: Request) -> CheckpointPlan | None:
    if request.checkpoint is None:
        if request.resume:
            raise UsageError("--resume goes on from a checkpoint; say where they are with --checkpoint DIR")
        return None
    match = re.fullmatch(r"(\d+)\s*(steps?|epochs?)?", request.checkpoint_every)
    if match is None or int(match[1]) < 1:
        raise UsageError(
            f"--checkpoint-every {request.checkpoint_every}: expected a number of steps, or such as 2epochs"
        )
    in_epochs = (match[2] or "").startswith("epoch")
    return CheckpointPlan(request.checkpoint, int(match[1]), "epochs" if in_epochs else "steps", request.keep)


def check_fetches(programs: TrainingPrograms, names: Sequence[str]) -> None:
    """Raise FetchError for a name that the main program does not have."""
    known = programs.main.global_block().vars
    for name in names:
        if name not in known:
            raise FetchError(f"--fetch {name}: the main program has no such variable; {did_you_mean(name, known)}")


def order_of(programs: TrainingPrograms, data: Source, request: Request) -> Order:
    """The order of the mini-batches; raises UsageError for options that ready ones do not take."""
    if isinstance(data, Stream):
        if request.batch_size is not None or request.drop_last:
            raise UsageError("the data are ready mini-batches; leave --batch-size and --drop-last out")
        return Order(1, request.shuffle, request.seed)
    size = request.batch_size or programs.batch_size or BATCH_SIZE
    return Order(size, request.shuffle, request.seed, request.drop_last)


# ---------------------------------------------------------------- data
def read_data(programs: TrainingPrograms, request: Request) -> Source:
    """The examples that --data names; raises FeedError, UsageError, UnreadableError."""
    unknown = [name for name in request.inputs if name not in programs.inputs]
    if unknown:
        raise FeedError(f"--inputs {unknown[0]}: it is not an input; the inputs are {programs.described_inputs()}")
    if len(request.data) == 1 and request.data[0].endswith(".npz") and not split_spec(request.data[0])[0]:
        arrays = read_values(Path(request.data[0]))
        if is_stream(list(arrays)):
            return stream_of(arrays, list(request.inputs) or programs.inputs, request.data[0])
    if request.inputs:
        raise UsageError(
            "--inputs says what ready mini-batches (step0_feed0, ...) are for; name arrays by input otherwise"
        )
    model = Model(programs.main, ModelFiles(programs.main, str(request.program_dir), EMPTY_STORE, "", "program"))
    parts: dict[str, list[LoDTensor]] = defaultdict(list)
    for spec in request.data:
        for file in _files(spec, programs):
            for name, value in read_feed(model, file, "--data").items():
                parts[name].append(as_declared(model, name, value))
    values = {name: join(name, tensors) for name, tensors in parts.items()}
    extra = [name for name in values if name not in programs.inputs]
    if extra:
        raise FeedError(f"{extra[0]} is not an input of the main program; the inputs are {programs.described_inputs()}")
    lengths = set_lengths(model, request.lods, values)
    unused = [name for name in lengths if name not in values]
    if unused:
        raise FeedError(f"--lod {unused[0]}=...: there are no data for {unused[0]}; give --data {unused[0]}=FILE")
    return Examples(values)


def _files(spec: str, programs: TrainingPrograms) -> list[str]:
    """The specification itself, or one for every array of a folder."""
    folder = Path(spec)
    if not folder.is_dir():
        return [spec]
    files = [folder / f"{name}.npy" for name in programs.inputs if (folder / f"{name}.npy").is_file()]
    if not files:
        raise FeedError(f"--data {spec}: the folder has no NAME.npy for any input; {programs.described_inputs()}")
    return [f"{file.stem}={file}" for file in files]


# ---------------------------------------------------------------- outputs and the start
def check_outputs(training: Training, request: Request) -> None:
    """Raise OutputExistsError or UsageError where results could not be written at the end."""
    model = request.save_inference_model
    places = [path for path in (request.save, model, request.checkpoint, request.log) if path is not None]
    if len({path.absolute() for path in places}) < len(places):
        raise UsageError("--save, --save-inference-model, --checkpoint and --log must name different places")
    if request.save is not None:
        names = [var.name for var in persistables(training.programs.main)]
        check_free(request.save, names, overwrite=request.force)
    if model is not None:
        training.inference_program(request.targets)
        if not request.force and model.exists() and not (model.is_dir() and not held_names(model)):
            raise OutputExistsError(f"{model} exists already; choose another name, or allow overwriting it (--force)")
    elif request.targets:
        raise UsageError(
            "--targets are the outputs of an inference model; say where it goes: --save-inference-model DIR"
        )
    if (
        request.checkpoint is not None
        and not (request.resume or request.force)
        and checkpoints.serials(request.checkpoint)
    ):
        raise OutputExistsError(
            f"{request.checkpoint} has checkpoints already; go on from them with --resume, remove them with --force, or "
            "choose another folder"
        )


def _start(training: Training, plan: CheckpointPlan | None, request: Request) -> None:
    loaded = training.initialize(request.init)
    if plan is not None and not request.resume:
        checkpoints.rotate(plan.folder, 0)
    elif plan is not None:
        checkpoints.rotate(plan.folder, plan.keep)  # a run that was killed may have left more
        position = training.resume(plan.folder)
        if position is not None:
            say(f"resumed after step {position.step} of epoch {position.epoch}")
            return
        say(f"{plan.folder} has no checkpoint yet; training starts from the beginning")
    if request.init is not None:
        count = len(persistables(training.programs.main))
        say(f"{len(loaded)} of {count} variables start from {request.init}")


# ---------------------------------------------------------------- the steps
def run_steps(training: Training, plan: CheckpointPlan | None, request: Request) -> None:
    """Train, with progress, log and a table at the end."""
    epochs: dict[int, list[Step]] = defaultdict(list)
    done = training.position
    past = 0 if done is None else done.epoch * training.steps_per_epoch + done.step + 1
    remaining = max(request.epochs * training.steps_per_epoch - past, 0)
    log = TrainingLog(request.log, request.json, request.log_every)
    with log.opened(done, resume=request.resume, overwrite=request.force), progress("training", remaining) as advance:
        for step in training.run(request.epochs, plan):
            epochs[step.epoch].append(step)
            log.write(step)
            advance(f"loss {number(step.loss)}  {amount(round(step.examples / max(step.seconds, 1e-9)))} examples/s")
    if request.json:
        return
    out = table("", ">epoch", ">steps", ">mean loss", ">last loss", ">examples/s")
    for epoch, steps in epochs.items():
        rate = sum(step.examples for step in steps) / max(sum(step.seconds for step in steps), 1e-9)
        mean = sum(step.loss for step in steps) / len(steps)
        out.add(epoch, len(steps), number(mean), number(steps[-1].loss), amount(round(rate)))
    show(out)


def save_results(training: Training, request: Request) -> None:
    """Write what --save and --save-inference-model ask for."""
    if request.save is not None:
        count = training.save(request.save, overwrite=request.force)
        say(f"{count} variables saved to {request.save}")
    if request.save_inference_model is not None:
        files = training.save_inference_model(request.save_inference_model, request.targets, overwrite=request.force)
        say(f"inference model of {len(files)} files saved to {request.save_inference_model}")
