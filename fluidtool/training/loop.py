"""`Training`: runs a main program over mini-batches, with checkpoints from which it goes on to the same bits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from fluidtool.errors import LIST_VARIABLES, FeedError, Hint, Location, NotFiniteError, ProgramError
from fluidtool.feeding import check_value
from fluidtool.io.atomic import write_into
from fluidtool.io.parameters import Value, persistables, separate_parts
from fluidtool.io.saving import Layout, save_model
from fluidtool.ir import Program
from fluidtool.ir.roles import CALLSTACK_ATTR, NAMESCOPE_ATTR
from fluidtool.ir.surgery import forget_originals
from fluidtool.passes.cut import cut_to
from fluidtool.records import dataclass
from fluidtool.runtime import Executor, Policy, Scope
from fluidtool.runtime.persistent import values_of
from fluidtool.tensor import LoDTensor, Place, SelectedRows
from fluidtool.training.checkpoint import (
    CheckpointPlan,
    Position,
    initial_values,
    load_checkpoint,
    save_checkpoint,
)
from fluidtool.training.examples import Examples, Feed, Indices, Order, Source, count_examples
from fluidtool.training.programs import TrainingPrograms
from fluidtool.training.saving import save_folder


@dataclass(frozen=True, slots=True)
class Step:
    """What one step gave. `epoch` and `step` count from 0, `step` within its epoch."""

    epoch: int
    step: int
    loss: float
    examples: int
    seconds: float
    values: dict[str, Any] = field(default_factory=dict)


class Training:
    """A main program, its data, and the variables that it changes.

    loss: the variable that `Step.loss` reports (its mean when it has several elements). fetch: further variables of
    each step. seed: of whatever the programs draw at random. allow_nan: go on with a loss that is not finite.
    Raises FeedError when an input has no data.
    """

    def __init__(
        self,
        programs: TrainingPrograms,
        data: Source,
        order: Order,
        loss: str,
        *,
        fetch: Sequence[str] = (),
        place: Place | None = None,
        policy: Policy | None = None,
        seed: int = 1,
        allow_nan: bool = False,
    ) -> None:
        self.programs, self.data, self.order = programs, data, order
        self.loss, self.fetch, self.allow_nan = loss, list(fetch), allow_nan
        self.scope, self.executor = Scope(), Executor(place, policy=policy, seed=seed)
        self.position: Position | None = None
        self._variables, self._digest = persistables(programs.main), digest(programs.main)
        self.steps_per_epoch = len(order.batches(data.count, 0))
        if not self.steps_per_epoch:
            raise FeedError(
                f"{data.count} examples do not fill one batch of {order.batch_size}, and incomplete batches are "
                "dropped; use a smaller batch size"
            )
        check_data(programs, data, order)

    # ------------------------------------------------------------ where it starts
    def initialize(self, path: Path | None = None) -> list[str]:
        """Run the startup program, then load what `path` has; returns the names loaded.

        Raises ProgramError when there is neither, ParameterFileError, OperatorError.
        """
        startup = self.programs.startup
        if startup is not None:
            self.executor.run(startup, {}, [], self.scope)
        elif path is None:
            raise ProgramError(
                "there is neither a startup program nor parameters to start from",
                hint=Hint("name one of them: startup= or init=", "name one of them (--startup, --init)"),
            )
        values = {} if path is None else initial_values(path, self._variables)
        for name, value in values.items():
            self._put(name, value)
        return list(values)

    def resume(self, folder: Path) -> Position | None:
        """Go on from the latest checkpoint of a folder; None, and nothing happens, when it has none."""
        found = load_checkpoint(folder, self._variables, self._generators(), self._settings())
        if found is None:
            return None
        self.position, values = found
        for name, value in values.items():
            self._put(name, value)
        return self.position

    def _put(self, name: str, value: Value) -> None:
        array = self.executor.device.array
        if isinstance(value, SelectedRows):
            self.scope.var(name).value = SelectedRows(value.row_ids, value.table_height, array(value.value))
        else:
            self.scope.var(name).value = LoDTensor(array(value.numpy()), value.lod())

    # ------------------------------------------------------------ steps
    def run(self, epochs: int, checkpoints: CheckpointPlan | None = None) -> Iterator[Step]:
        """The steps up to the end of epoch number `epochs`, counted from the very beginning.

        A step is yielded before its checkpoint is written. Raises NotFiniteError, FeedError, OperatorError.
        """
        done = Position(0, -1) if self.position is None else self.position
        saved = self.position
        for epoch in range(done.epoch, epochs):
            batches = self.order.batches(self.data.count, epoch)
            for number in range(done.step + 1 if epoch == done.epoch else 0, len(batches)):
                yield self._step(epoch, number, self.data.take(self._share(batches[number])))
                self.position = Position(epoch, number)
                if checkpoints is not None and checkpoints.is_due(self.position, len(batches)):
                    saved = self._checkpoint(checkpoints)
        if checkpoints is not None and saved != self.position:
            self._checkpoint(checkpoints)

    def _share(self, batch: Indices) -> Indices:
        """What of a mini-batch this process trains on."""
        return batch

    def _step(self, epoch: int, number: int, feed: Feed) -> Step:
        for var in self.programs.input_variables:
            check_value(var, feed[var.name])
        begin = perf_counter()
        names = list(dict.fromkeys([self.loss, *self.fetch]))
        values = dict(zip(names, self._execute(feed, names), strict=True))
        loss = float(np.mean(LoDTensor.numpy(values[self.loss])))
        if not (self.allow_nan or math.isfinite(loss)):
            raise NotFiniteError(
                f"the loss {self.loss} is {loss} in step {number} of epoch {epoch} (both count from 0)",
                hint=Hint(
                    "lower the learning rate or clip gradients, or continue anyway: allow_nan=True; "
                    "fluidtool.run(…, check_nan=True) finds the operator",
                    "lower the learning rate or clip gradients, or continue anyway with --allow-nan; "
                    "'fluidtool run --check-nan' finds the operator",
                ),
                location=Location(variable=self.loss),
            )
        seconds = perf_counter() - begin
        first = next(iter(feed), None)
        examples = count_examples(first, feed[first]) if first is not None else 0
        return Step(epoch, number, loss, examples, seconds, {name: values[name] for name in self.fetch})

    def _execute(self, feed: Feed, names: Sequence[str]) -> list[Any]:
        return self.executor.run(self.programs.main, feed, names, self.scope)

    def _generators(self) -> list[np.random.Generator]:
        return [self.executor.generator(self.programs.main)]

    # ------------------------------------------------------------ saving
    @property
    def writes_results(self) -> bool:
        """Whether this process saves what was learned: of several trainers, one does."""
        return True

    def _checkpoint(self, plan: CheckpointPlan) -> Position | None:
        assert self.position is not None
        values = values_of(self.scope, self._variables, "a checkpoint")
        save_checkpoint(plan, self.position, values, self._generators(), self._settings())
        return self.position

    def _settings(self) -> dict[str, Any]:
        """What must be the same for a run to go on from a checkpoint."""
        return {
            "main_program": self._digest,
            "number_of_examples": self.data.count,
            "batch_size": self.order.batch_size,
            "shuffle": self.order.shuffle,
            "drop_last": self.order.drop_last,
            "seed": self.order.seed,
        }

    def save(self, folder: Path, *, overwrite: bool = False) -> int:
        """Save whatever persists, a file each, in one step; returns their number.

        With `overwrite` a folder is replaced if it holds nothing but such files. Raises OutputExistsError, OutputError.
        """
        values = self._saved_values(str(folder))
        with save_folder(folder, [var.name for var in self._variables], overwrite=overwrite) as temporary:
            write_into(temporary, separate_parts(temporary, values))
        return len(values)

    def _saved_values(self, what: str) -> dict[str, Value]:
        return values_of(self.scope, self._variables, what)

    def save_inference_model(self, folder: Path, targets: Sequence[str], *, overwrite: bool = False) -> list[Path]:
        """Save what computes `targets` from the inputs that they need, with its parameters; returns the files.

        Raises ProgramError for an unknown target or one that depends on more than inputs, and as `save` does.
        """
        cut = self.inference_program(targets)
        values = values_of(self.scope, persistables(cut), str(folder))
        return save_model(cut, values, Layout(folder, "__model__", None), overwrite=overwrite)

    def inference_program(self, targets: Sequence[str]) -> Program:
        """What `save_inference_model` saves."""
        block = self.programs.main.global_block()
        unknown = [name for name in targets if name not in block.vars]
        if not targets:
            hint = Hint("name it: targets=[NAME]", "name it: --targets NAME")
            raise ProgramError("nothing says what the inference model computes", hint=hint)
        if unknown:
            text = f"the main program has no variable {unknown[0]!r} to save an inference model for"
            raise ProgramError(text, hint=LIST_VARIABLES, location=Location(variable=unknown[0]))
        return cut_to(self.programs.main, targets, None, self.programs.inputs)


def digest(program: Program) -> str:
    """What tells a program from others; the order of a file and where in a script operators were written do not matter."""
    bare = program.clone()
    for op in (op for block in bare.blocks for op in block.ops):
        for name in (CALLSTACK_ATTR, NAMESCOPE_ATTR):
            if op.has_attr(name):
                op.remove_attr(name)
    forget_originals(bare)
    return sha256(bare.serialize_to_string()).hexdigest()[:16]


def check_data(programs: TrainingPrograms, data: Source, order: Order) -> None:
    """Raise FeedError where the data cannot be fed: an input without data, another shape or data type, no LoD."""
    if isinstance(data, Examples):
        _check_batch_size(programs, data, order)
    feed = data.take(order.batches(data.count, 0)[0])
    missing = [name for name in programs.inputs if name not in feed]
    if missing:
        raise FeedError(
            f"there is no data for the input {', '.join(missing)}; the inputs are {programs.described_inputs()}",
            hint=Hint(
                "give one array each: DataFiles(['NAME=FILE.npy']), or a .npz with arrays of these names",
                "give one array each (--data NAME=FILE.npy, or a .npz with arrays of these names)",
            ),
            location=Location(variable=missing[0]),
        )
    for var in programs.input_variables:
        check_value(var, feed[var.name])
        if var.lod_level and not feed[var.name].offsets:
            raise FeedError(
                f"the input {var.name} contains sequences, but the data does not say where they end",
                hint=Hint(
                    f"give their lengths: {var.name}.lod in the .npz, or lods=['{var.name}=[[2,3]]']",
                    f"give their lengths: {var.name}.lod in the .npz or --lod {var.name}=[[2,3]]",
                ),
                location=Location(variable=var.name),
            )


def _check_batch_size(programs: TrainingPrograms, data: Examples, order: Order) -> None:
    size = programs.batch_size
    if size is None:
        return
    if order.batch_size != size:
        raise FeedError(
            f"the program is declared for batches of {size} ({programs.described_inputs()}), not of {order.batch_size}",
            hint=Hint(f"give batch_size={size}", f"give --batch-size {size}"),
        )
    if data.count % size and not order.drop_last:
        raise FeedError(
            f"the program is declared for batches of {size}, which {data.count} examples do not fill",
            hint=Hint("drop the incomplete one: drop_last=True", "drop the incomplete one with --drop-last"),
        )
