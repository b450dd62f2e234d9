"""What is measured as programs grow: every command on a saved model, and every step of building one with the Python API.

Work is counted, not timed (tests/support/counted_work.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from typer.testing import CliRunner

from fluidtool import fluid
from fluidtool.cli.app import app
from fluidtool.ir import Program, unique_name
from tests.support.counted_work import Work
from tests.support.large_programs import INFERENCE, LargeProgram, branches, images, training

Maker = Callable[[int], LargeProgram]


# ---------------------------------------------------------------- commands
def command(*arguments: Any, accepted: tuple[int, ...] = (0,)) -> Work:
    """A call of the command line; raises AssertionError for another exit code."""

    def work() -> None:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code in accepted, f"exit code {result.exit_code}: {result.stderr[-500:]}"

    return work


COMMANDS: dict[str, tuple[str, ...]] = {
    "inspect": ("inspect", "{model}"),
    "inspect --ops": ("inspect", "--ops", "{model}"),
    "inspect --vars": ("inspect", "--vars", "{model}"),
    "inspect --with-params": ("inspect", "--with-params", "{model}"),
    "inspect --with-details": ("inspect", "--with-details", "{model}"),
    "inspect --format text": ("inspect", "--format", "text", "{model}"),
    "inspect --plan": ("inspect", "--plan", "{model}"),
    "inspect --plan --explain": ("inspect", "--plan", "--explain", "{model}"),
    "inspect --plan --engine numpy": ("inspect", "--plan", "--engine", "numpy", "{model}"),
    "inspect --json": ("inspect", "--json", "--with-details", "{model}"),
    "check": ("check", "{model}"),
    "check --security": ("check", "--security", "{model}"),
    "diff": ("diff", "--with-params", "{model}", "{model}"),
    "diff with another": ("diff", "{model}", "{other}"),
    "prune": ("prune", "{model}", "--targets", "{target}", "-o", "{out}", "--force"),
    "prune --program-only": ("prune", "{model}", "--targets", "{target}", "--program-only", "-o", "{out}", "--force"),
    "ops --coverage": ("ops", "--coverage", "{model}"),
    "run": ("run", "{model}", "--random"),
    "run --engine numpy": ("run", "{model}", "--random", "--engine", "numpy"),
    "run --fetch-all": ("run", "{model}", "--random", "--fetch-all"),
    "run --check-nan": ("run", "{model}", "--random", "--check-nan"),
    "run -o": ("run", "{model}", "--random", "--fetch-all", "-o", "{out}.npz", "--force"),
    "profile": ("profile", "{model}", "--random", "--repeat", "2", "--json", "--top", "0"),
    "profile --trace": (
        *("profile", "{model}", "--random", "--repeat", "2", "--engine", "numpy", "--trace", "{out}.json", "--force"),
    ),
    "transpile --all-inference": ("transpile", "{model}", "--all-inference", "-o", "{out}", "--force"),
    "transpile --fuse-bn": ("transpile", "{model}", "--fuse-bn", "-o", "{out}", "--force"),
    "transpile --memory-optimize": ("transpile", "{model}", "--memory-optimize", "-o", "{out}", "--force"),
    "transpile --level 1": ("transpile", "{model}", "--memory-optimize", "--level", "1", "-o", "{out}", "--force"),
    "transpile --release-memory": ("transpile", "{model}", "--release-memory", "-o", "{out}", "--force"),
    "transpile --verify": ("transpile", "{model}", "--memory-optimize", "--verify", "--explain"),
    "transpile --measure": ("transpile", "{model}", "--memory-optimize", "--measure"),
}


TRAINING_COMMANDS: dict[str, tuple[str, ...]] = {
    "train": ("train", "{model}", "--data", "{model}/examples.npz", "--epochs", "2", "--save", "{out}", "--force"),
    "train --checkpoint": (
        "train",
        "{model}",
        "--data",
        "{model}/examples.npz",
        "--checkpoint",
        "{out}.kept",
        "--force",
    ),
    "transpile --distribute": (
        *("transpile", "{model}/main.pb", "--distribute", "--all", "--pservers", "a:1,b:1", "--trainers", "2"),
        *("--startup", "{model}/startup.pb", "-o", "{out}.roles", "--force"),
    ),
    "transpile --mode collective": (
        *(
            "transpile",
            "{model}/main.pb",
            "--distribute",
            "--mode",
            "collective",
            "--trainers",
            "a:1,b:1",
            "--trainer-id",
            "0",
        ),
        *("--startup", "{model}/startup.pb", "-o", "{out}.roles", "--force"),
    ),
    "transpile --memory-optimize": ("transpile", "{model}/main.pb", "--memory-optimize", "-o", "{out}.pb", "--force"),
    "transpile --release-memory": ("transpile", "{model}/main.pb", "--release-memory", "-o", "{out}.pb", "--force"),
    "inspect": ("inspect", "{model}/main.pb"),
    "inspect --plan": ("inspect", "--plan", "{model}/main.pb"),
    "check": ("check", "{model}/main.pb"),
    "diff": ("diff", "{model}/main.pb", "{model}/main.pb"),
    "prune --program-only": (
        "prune",
        "{model}/main.pb",
        "--targets",
        "{target}",
        "--program-only",
        "-o",
        "{out}.pruned",
        "--force",
    ),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """Programs of one kind: how they are made and saved, and the commands that take them."""

    name: str
    make: Maker
    save: Callable[[LargeProgram, Path], Path]
    commands: dict[str, tuple[str, ...]]

    def model(self, folder: Path, size: int) -> Path:
        """A saved model in the folder, made where it is not there yet; a file beside it names what it computes."""
        path = folder / f"{self.name}{size}"
        if not path.exists():
            program = self.make(size)
            self.save(program, path)
            path.with_suffix(".target").write_text(program.fetches[0])
        return path


def combined(program: LargeProgram, folder: Path) -> Path:
    """Save a model with all parameters in one file."""
    return program.save(folder, "params")


SEPARATE = frozenset({"files"})  # kinds with a file for each parameter; the others may have many more than 10,000
OTHER = Kind("other", branches, combined, {})
TRAINING = Kind("training", training, LargeProgram.save_for_training, TRAINING_COMMANDS)
KINDS = {
    name: Kind(name, make, LargeProgram.save if name in SEPARATE else combined, COMMANDS)
    for name, make in INFERENCE.items()
} | {"training": TRAINING}
FINDING_IS_AN_ANSWER = frozenset({"check", "check --security", "diff with another"})


def models_of(folder: Path, kind: str) -> Callable[[int], Work]:
    """Make the models of a kind, and another to compare it with, in the folder, where they are not there yet."""
    return lambda size: lambda: [each.model(folder, size) for each in (KINDS[kind], OTHER)]


def commands_on(folder: Path, kind: str, name: str) -> Callable[[int], Work]:
    """A command on saved models of a kind, by their size; the models are made in the folder."""

    def work_of(size: int) -> Work:
        model, other = (each.model(folder, size) for each in (KINDS[kind], OTHER))
        target = model.with_suffix(".target").read_text()
        names = {"model": model, "other": other, "target": target, "out": folder / f"{kind}{size}.out"}
        arguments = [argument.format(**names) for argument in KINDS[kind].commands[name]]
        return command(*arguments, accepted=(0, 1) if name in FINDING_IS_AN_ANSWER else (0,))

    return work_of


# ---------------------------------------------------------------- the Python API
def network(size: int) -> tuple[Program, Program, Any]:
    """Fully connected layers by fluid.layers, about `size` operators before gradients: programs, and the loss."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), unique_name.guard():
        x = fluid.layers.data("x", [4])
        for _ in range(max(size // 3, 1)):
            x = fluid.layers.fc(x, 4, act="relu")
        return main, startup, fluid.layers.mean(x)


def trained(
    size: int, optimizer: Callable[[], Any] = lambda: fluid.optimizer.Adam(0.1)
) -> tuple[Program, Program, Any]:
    """The same with an optimizer, about `size` operators with gradients and updates."""
    main, startup, loss = network(size // 3)
    with fluid.program_guard(main, startup), unique_name.guard("train"):
        optimizer().minimize(loss)
    return main, startup, loss


def careful() -> Any:
    """An optimizer with everything that optimizers append."""
    return fluid.optimizer.Momentum(
        0.1, 0.9, regularization=fluid.regularizer.L2Decay(0.01), grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0)
    )


def distributed(size: int) -> Work:
    """Trainer's and server's programs of a job."""
    main, startup, _ = trained(size)

    def work() -> None:
        transpiler = fluid.DistributeTranspiler()
        transpiler.transpile(0, program=main, startup_program=startup, pservers="a:1,b:1", trainers=2)
        transpiler.get_trainer_program(wait_port=False)
        for endpoint in ("a:1", "b:1"):
            transpiler.get_startup_program(endpoint, transpiler.get_pserver_program(endpoint))

    return work


def saved(size: int) -> Work:
    """Parameters saved, a file each, and loaded, and a model; the startup program has run. As many variables as `size`."""
    main, startup, loss = network(3 * size // 5)
    executor, scope = fluid.Executor(), fluid.Scope()
    feed = {"x": np.ones((2, 4), "float32")}

    def work() -> None:
        with TemporaryDirectory() as folder, fluid.scope_guard(scope):
            executor.run(startup)
            executor.run(main, feed, [loss])
            fluid.io.save_persistables(executor, folder, main)
            fluid.io.load_persistables(executor, folder, main)
            fluid.io.save_inference_model(folder + "/model", ["x"], [loss], executor, main)
            fluid.io.load_inference_model(folder + "/model", executor)

    return work


def optimized(size: int, level: int) -> Work:
    """memory_optimize of a training program."""
    main, _, loss = trained(size)
    return lambda: fluid.memory_optimize(main, skip_opt_set={loss.name}, level=level)


def run_once(size: int) -> Work:
    """A step of training."""
    large = training(size)
    return lambda: fluid.Executor().run(large.program, large.feeds, list(large.fetches), scope=large.scope())


def on_training(make: Callable[[Program], Any]) -> Callable[[int], Work]:
    """Something done to a training program."""

    def work_of(size: int) -> Work:
        program = training(size).program
        return lambda: make(program)

    return work_of


def parameters(size: int) -> Program:
    """Parameters with initializers, and no operators that use them."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), unique_name.guard():
        for _ in range(size):
            fluid.layers.create_parameter([4], "float32")
    return main


def branching(size: int) -> Program:
    """Branches by fluid.layers.cond, with gradients."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), unique_name.guard():
        x = fluid.layers.data("x", [4], stop_gradient=False)
        positive = fluid.layers.reduce_sum(x) > 0.0
        for _ in range(max(size // 8, 1)):
            x = fluid.layers.cond(positive, lambda x=x: fluid.layers.relu(x), lambda x=x: fluid.layers.tanh(x))
        fluid.gradients(fluid.layers.mean(x), [main.global_block().var("x")])
    return main


def long_loop(size: int) -> Program:
    """A loop around a long chain, with gradients."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), unique_name.guard():
        x = fluid.layers.data("x", [4], stop_gradient=False)
        step, end = (fluid.layers.fill_constant([1], "int64", value) for value in (0, 2))
        kept = fluid.layers.array_write(x, step)
        condition = fluid.layers.less_than(step, end)
        with fluid.layers.While(condition).block():
            each = fluid.layers.array_read(kept, step)
            for _ in range(max(size // 2, 1)):
                each = fluid.layers.tanh(each)
            step = fluid.layers.increment(step)
            fluid.layers.array_write(each, step, kept)
            fluid.layers.less_than(step, end, cond=condition)
        fluid.gradients(fluid.layers.mean(fluid.layers.array_read(kept, step)), [x])
    return main


def many_readers(size: int) -> Program:
    """Values that two operators of very many inputs read, with gradients, which are summed."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), unique_name.guard():
        x = fluid.layers.data("x", [4], stop_gradient=False)
        values = [fluid.layers.relu(x) for _ in range(max(size // 3, 2))]
        both = [fluid.layers.sums(values), fluid.layers.reduce_sum(fluid.layers.concat(values, axis=1))]
        fluid.gradients(fluid.layers.mean(fluid.layers.elementwise_add(*both)), [x])
    return main


def recomputed(size: int) -> Work:
    """Layers with dropout, of which every tenth keeps its result for the gradients."""

    def work() -> None:
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), unique_name.guard():
            x, kept = fluid.layers.data("x", [4]), []
            for number in range(max(size // 10, 1)):
                x = fluid.layers.dropout(fluid.layers.fc(x, 4, act="relu"), 0.5)
                kept += [x] if number % 10 == 0 else []
            optimizer = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1))
            optimizer._set_checkpoints(kept)
            optimizer.minimize(fluid.layers.mean(x))

    return work


def cut_up(size: int) -> Work:
    """A program cut into two sections."""

    def work() -> None:
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), unique_name.guard():
            x = fluid.layers.data("x", [4])
            middle = x
            for number in range(max(size // 8, 2)):
                x = fluid.layers.fc(x, 4, act="relu")
                middle = x if number == 0 else middle
            optimizer = fluid.optimizer.PipelineOptimizer(
                fluid.optimizer.SGD(0.1), [[middle], [loss := fluid.layers.mean(x)]]
            )
            optimizer.minimize(loss)

    return work


def decorated() -> Any:
    """Mixed precision."""
    return fluid.contrib.mixed_precision.decorate(fluid.optimizer.Momentum(0.1, 0.9))


def averaged(size: int) -> Work:
    """Everything that averages parameters, about `size` operators in all programs."""

    def work() -> None:
        main, startup, loss = network(size // 20)
        with fluid.program_guard(main, startup), unique_name.guard("train"):
            fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
            fluid.optimizer.ModelAverage(0.15)
            fluid.optimizer.ExponentialMovingAverage(0.999).update()

    return work


def transpiled(size: int) -> Work:
    """The old transpilers of inference programs."""
    large = images(size)
    program, scope = large.inference(), large.scope()

    def work() -> None:
        fluid.InferenceTranspiler().transpile(program, fluid.CPUPlace(), scope)
        fluid.release_memory(program)

    return work


def several_devices(size: int) -> Work:
    """A step of training on two processors."""
    main, startup, loss = trained(size)

    def work() -> None:
        executor = fluid.Executor()
        with fluid.scope_guard(fluid.Scope()):
            executor.run(startup)
            program = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=fluid.cpu_places(2))
            executor.run(program, {"x": np.ones((4, 4), "float32")}, [loss])

    return work


def pickled(size: int) -> Work:
    """A training state saved as pickles, and loaded."""
    main, startup, _ = trained(size)

    def work() -> None:
        with TemporaryDirectory() as folder, fluid.scope_guard(fluid.Scope()):
            executor = fluid.Executor()
            executor.run(startup)
            fluid.save(main, folder + "/state")
            fluid.load(main, folder + "/state", executor)
            fluid.io.set_program_state(main, fluid.io.load_program_state(folder + "/state"))

    return work


API: dict[str, Callable[[int], Work]] = {
    "fluid.layers": lambda size: partial(network, size),
    "minimize": lambda size: partial(trained, size),
    "minimize with clips": lambda size: partial(trained, size, careful),
    "append_backward": lambda size: partial(training, size),
    "clone": on_training(Program.clone),
    "clone for test": on_training(lambda program: program.clone(for_test=True)),
    "text": on_training(str),
    "bytes": on_training(lambda program: Program.parse_from_string(program.serialize_to_string())),
    "DistributeTranspiler": distributed,
    "save and load": saved,
    "memory_optimize level 0": partial(optimized, level=0),
    "memory_optimize level 1": partial(optimized, level=1),
    "a step of training": run_once,
    "a step on two processors": several_devices,
    "create_parameter": lambda size: partial(parameters, size),
    "cond with gradients": lambda size: partial(branching, size),
    "While with gradients": lambda size: partial(long_loop, size),
    "very many readers with gradients": lambda size: partial(many_readers, size),
    "RecomputeOptimizer": recomputed,
    "PipelineOptimizer": cut_up,
    "mixed precision": lambda size: partial(trained, size, decorated),
    "averages of parameters": averaged,
    "transpilers of inference": transpiled,
    "text with details": on_training(lambda program: program.to_string(True, with_details=True)),
    "fluid.save and fluid.load": pickled,
}
