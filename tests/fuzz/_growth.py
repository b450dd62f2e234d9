"""What is measured as programs grow: every command on a saved model, and every step of building one with the Python API.

Work is counted, not timed (tests/support/counted_work.py).
"""

from __future__ import annotations

from collections.abc import Callable
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
from tests.support.large_programs import INFERENCE, LargeProgram, branches, training

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
    "inspect --params": ("inspect", "--params", "{model}"),
    "inspect --with-details": ("inspect", "--with-details", "{model}"),
    "inspect --format text": ("inspect", "--format", "text", "{model}"),
    "inspect --plan": ("inspect", "--plan", "{model}"),
    "inspect --plan --engine numpy": ("inspect", "--plan", "--engine", "numpy", "{model}"),
    "check": ("check", "{model}"),
    "diff": ("diff", "--params", "{model}", "{model}"),
    "diff with another": ("diff", "{model}", "{other}"),
    "prune": ("prune", "{model}", "--targets", "{target}", "-o", "{out}", "--force"),
    "ops --coverage": ("ops", "--coverage", "{model}"),
    "run": ("run", "{model}", "--random"),
    "run --engine numpy": ("run", "{model}", "--random", "--engine", "numpy"),
    "run --fetch-all": ("run", "{model}", "--random", "--fetch-all"),
    "run --check-nan": ("run", "{model}", "--random", "--check-nan"),
    "profile": ("profile", "{model}", "--random"),
    "transpile --all-inference": ("transpile", "{model}", "--all-inference", "-o", "{out}", "--force"),
    "transpile --fuse-bn": ("transpile", "{model}", "--fuse-bn", "-o", "{out}", "--force"),
    "transpile --memory-optimize": ("transpile", "{model}", "--memory-optimize", "-o", "{out}", "--force"),
    "transpile --level 1": ("transpile", "{model}", "--memory-optimize", "--level", "1", "-o", "{out}", "--force"),
    "transpile --release-memory": ("transpile", "{model}", "--release-memory", "-o", "{out}", "--force"),
    "transpile --verify": ("transpile", "{model}", "--memory-optimize", "--verify", "--measure", "--explain"),
}


def models_of(folder: Path, kind: str) -> Callable[[int], Work]:
    """Make the models of a kind, and another to compare it with, in the folder, where they are not there yet."""

    def work_of(size: int) -> Work:
        def work() -> None:
            for path, make in ((folder / f"{kind}{size}", INFERENCE[kind]), (folder / f"other{size}", branches)):
                if not path.exists():
                    program = make(size)
                    program.save(path)
                    path.with_suffix(".target").write_text(program.fetches[0])

        return work

    return work_of


def commands_on(folder: Path, kind: str, name: str) -> Callable[[int], Work]:
    """A command on saved models of a kind, by their size; the models are made in the folder."""

    def work_of(size: int) -> Work:
        models_of(folder, kind)(size)()
        model, other = folder / f"{kind}{size}", folder / f"other{size}"
        target = model.with_suffix(".target").read_text()
        names = {"model": model, "other": other, "target": target, "out": folder / f"{kind}{size}.out"}
        arguments = [argument.format(**names) for argument in COMMANDS[name]]
        return command(*arguments, accepted=(0, 1) if name in ("check", "diff with another") else (0,))

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
    """The same with an optimizer, which clips and regularizes."""
    main, startup, loss = network(size)
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
    """Parameters saved, a file each, and loaded; the startup program has run."""
    main, startup, loss = network(size)
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
}
