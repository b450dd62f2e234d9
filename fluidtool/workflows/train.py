"""`fluidtool.train(request)`: trains programs on files, with checkpoints and a log, and saves what they learnt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Protocol

from fluidtool.errors import LIST_VARIABLES, OVERWRITE, FetchError, Hint, Location, OutputExistsError, UsageError
from fluidtool.io import checkpoints
from fluidtool.io.atomic import held_names
from fluidtool.io.parameters import persistables
from fluidtool.records import dataclass
from fluidtool.runtime import Policy
from fluidtool.tensor import CPUPlace, Place
from fluidtool.training import (
    CheckpointPlan,
    Order,
    Position,
    Step,
    Stream,
    Training,
    TrainingPrograms,
    find_loss,
    open_programs,
)
from fluidtool.training.examples import Source
from fluidtool.training.saving import check_free
from fluidtool.workflows.names import counted, did_you_mean
from fluidtool.workflows.training_data import DataFiles, read_data
from fluidtool.workflows.training_log import TrainingLog
from fluidtool.workflows.watcher import Silent, Watcher

BATCH_SIZE = 32


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """What to train, on what data, and what to save.

    folder: the programs, or the main program's file; main, startup: their file names. data: the examples. batch_size: by
    default what the program declares, else 32. loss: by default where the backward pass starts. init: parameters to start
    from. fetch: more variables for the log. save: where all persistable variables go; save_inference_model: where a
    model that computes `targets` goes. log: a line of JSON for every `log_every`th step of an epoch. resume: continue
    from the latest checkpoint. seed: for the order of examples and for random operators. allow_nan: continue if the
    loss is not finite.
    """

    folder: Path
    data: DataFiles
    main: str | None = None
    startup: str | None = None
    batch_size: int | None = None
    epochs: int = 1
    shuffle: bool = True
    drop_last: bool = False
    loss: str | None = None
    init: Path | None = None
    fetch: Sequence[str] = ()
    save: Path | None = None
    save_inference_model: Path | None = None
    targets: Sequence[str] = ()
    log: Path | None = None
    log_every: int = 1
    overwrite: bool = False
    checkpoints: CheckpointPlan | None = None
    resume: bool = False
    place: Place = field(default_factory=CPUPlace)
    policy: Policy = field(default_factory=Policy)
    seed: int = 1
    allow_nan: bool = False


@dataclass(frozen=True, slots=True)
class Epoch:
    """The steps of an epoch that were run in this process."""

    number: int
    steps: int
    mean_loss: float
    last_loss: float
    examples_per_second: float


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """What a training did: epochs, the last step, how many variables were saved, and the files of the inference model."""

    epochs: tuple[Epoch, ...]
    position: Position | None
    saved: int
    files: tuple[Path, ...]


class TrainingWatcher(Watcher, Protocol):
    """Hears of each step too."""

    def step(self, step: Step) -> str:
        """A step is done; what this returns is shown beside the progress."""

    def trained(self, epochs: Sequence[Epoch]) -> None:
        """All steps are done; what they gave is not saved yet."""


class SilentTraining(Silent):
    """Hears nothing."""

    def step(self, step: Step) -> str:
        """Nothing is shown."""
        return ""

    def trained(self, epochs: Sequence[Epoch]) -> None:
        """Nothing is shown."""


def train(request: TrainingRequest, watcher: TrainingWatcher | None = None) -> TrainingResult:
    """Train and save; whatever cannot work is refused before the first step.

    Raises UsageError, FeedError, FetchError, ProgramError, OutputExistsError before; NotFiniteError and OperatorError at a
    step; OutputError where something cannot be written.
    """
    watcher = watcher or SilentTraining()
    if request.resume and request.checkpoints is None:
        hint = Hint("name the folder: checkpoints=CheckpointPlan(…)", "name the folder with --checkpoint DIR")
        raise UsageError("resuming needs checkpoints", hint=hint)
    programs = open_programs(request.folder, request.main, request.startup)
    loss = find_loss(programs.main, request.loss)
    check_fetches(programs, request.fetch)
    data = read_data(programs, request.data)
    training = Training(
        programs,
        data,
        order_of(programs, data, request),
        loss,
        fetch=request.fetch,
        place=request.place,
        policy=request.policy,
        seed=request.seed,
        allow_nan=request.allow_nan,
    )
    check_outputs(training, request)
    _start(training, request, watcher)
    return run_and_save(training, request, watcher)


def check_fetches(programs: TrainingPrograms, names: Sequence[str]) -> None:
    """Raise FetchError for a name that the main program does not have."""
    known = programs.main.global_block().vars
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or LIST_VARIABLES
            text = f"cannot fetch {name}: the main program has no such variable"
            raise FetchError(text, hint=hint, location=Location(variable=name))


def order_of(programs: TrainingPrograms, data: Source, request: TrainingRequest) -> Order:
    """The order of the mini-batches; raises UsageError for options that ready ones do not take."""
    if isinstance(data, Stream):
        if request.batch_size is not None or request.drop_last:
            hint = Hint("omit batch_size= and drop_last=", "omit --batch-size and --drop-last")
            raise UsageError("the data is ready mini-batches, whose size is fixed", hint=hint)
        return Order(1, request.shuffle, request.seed)
    size = request.batch_size or programs.batch_size or BATCH_SIZE
    return Order(size, request.shuffle, request.seed, request.drop_last)


# ---------------------------------------------------------------- outputs and the start
def check_outputs(training: Training, request: TrainingRequest) -> None:
    """Raise OutputExistsError or UsageError where results could not be written at the end."""
    model = request.save_inference_model
    checkpoint = None if request.checkpoints is None else request.checkpoints.folder
    places = [path for path in (request.save, model, checkpoint, request.log) if path is not None]
    if len({path.absolute() for path in places}) < len(places):
        raise UsageError(
            "two results would be saved in the same place",
            hint=Hint(
                "give save=, save_inference_model=, checkpoints= and log= different paths",
                "--save, --save-inference-model, --checkpoint and --log must name different paths",
            ),
        )
    if request.save is not None:
        names = [var.name for var in persistables(training.programs.main)]
        check_free(request.save, names, overwrite=request.overwrite)
    if model is not None:
        training.inference_program(request.targets)
        if not request.overwrite and model.exists() and not (model.is_dir() and not held_names(model)):
            raise OutputExistsError(f"{model} already exists", hint=OVERWRITE, location=Location(str(model)))
    elif request.targets:
        hint = Hint("name its folder: save_inference_model=DIR", "name its folder: --save-inference-model DIR")
        raise UsageError("there are targets, the outputs of an inference model, but no model to save", hint=hint)
    if checkpoint is not None and not (request.resume or request.overwrite) and checkpoints.serials(checkpoint):
        raise OutputExistsError(
            f"{checkpoint} already has checkpoints",
            hint=Hint(
                "resume from them: resume=True, remove them: overwrite=True, or choose another folder",
                "resume from them with --resume, remove them with --force, or choose another folder",
            ),
            location=Location(str(checkpoint)),
        )


def _start(training: Training, request: TrainingRequest, watcher: Watcher) -> None:
    plan = request.checkpoints
    loaded = training.initialize(request.init)
    if plan is not None and not request.resume:
        checkpoints.rotate(plan.folder, 0)
    elif plan is not None:
        checkpoints.rotate(plan.folder, plan.keep)  # a run that was killed may have left more
        position = training.resume(plan.folder)
        if position is not None:
            watcher.say(f"resumed after step {position.step} of epoch {position.epoch}")
            return
        watcher.say(f"{plan.folder} has no checkpoint yet; training starts from the beginning")
    if request.init is not None:
        count = len(persistables(training.programs.main))
        watcher.say(f"{len(loaded)} of {counted(count, 'variable')} start from {request.init}")


# ---------------------------------------------------------------- the steps
def run_and_save(training: Training, request: TrainingRequest, watcher: TrainingWatcher) -> TrainingResult:
    """Train up to the last epoch, then write what is asked for."""
    epochs = tuple(_epoch(number, steps) for number, steps in _run_steps(training, request, watcher).items())
    watcher.trained(epochs)
    if not training.writes_results:
        return TrainingResult(epochs, training.position, 0, ())
    saved, files = 0, []
    if request.save is not None:
        saved = training.save(request.save, overwrite=request.overwrite)
        watcher.say(f"{counted(saved, 'variable')} saved to {request.save}")
    if request.save_inference_model is not None:
        place, targets = request.save_inference_model, request.targets
        files = training.save_inference_model(place, targets, overwrite=request.overwrite)
        watcher.say(f"inference model of {counted(len(files), 'file')} saved to {place}")
    return TrainingResult(epochs, training.position, saved, tuple(files))


def _run_steps(training: Training, request: TrainingRequest, watcher: TrainingWatcher) -> dict[int, list[Step]]:
    """The steps of each epoch."""
    epochs: dict[int, list[Step]] = defaultdict(list)
    done = training.position
    past = 0 if done is None else done.epoch * training.steps_per_epoch + done.step + 1
    remaining = max(request.epochs * training.steps_per_epoch - past, 0)
    log = TrainingLog(request.log, request.log_every)
    opened = log.opened(done, resume=request.resume, overwrite=request.overwrite)
    with opened, watcher.progress("training", remaining) as advance:
        for step in training.run(request.epochs, request.checkpoints):
            epochs[step.epoch].append(step)
            note = watcher.step(step)
            log.write(step)
            advance(note)
    return epochs


def _epoch(number: int, steps: Sequence[Step]) -> Epoch:
    rate = sum(step.examples for step in steps) / max(sum(step.seconds for step in steps), 1e-9)
    return Epoch(number, len(steps), sum(step.loss for step in steps) / len(steps), steps[-1].loss, rate)
