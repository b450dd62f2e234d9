"""A small job with known numbers: programs, examples, and the training of one process that it must equal."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np

import fluidtool.fluid as fluid
from fluidtool.cli.app import run_command
from fluidtool.io.parameters import open_separate, persistables
from fluidtool.training import Order, Training, find_loss, open_programs
from fluidtool.training.examples import Examples

WIDTH, HIDDEN, EXAMPLES, TRAINERS, BATCH, EPOCHS = 40, 240, 96, 4, 4, 2
Parameters = dict[str, np.ndarray[Any, Any]]


def momentum() -> Any:
    return fluid.optimizer.Momentum(0.05, 0.9)


def write_programs(folder: Path, optimizer: Callable[[], Any] = momentum) -> Path:
    """x [40] -> 240 -> 1 with listed values for the weights, of which one is cut into shards."""
    values = np.random.RandomState(5).uniform(-0.1, 0.1, (WIDTH, HIDDEN)).astype("float32")
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.layers.data("x", [WIDTH]), fluid.layers.data("y", [1])
        attr = fluid.ParamAttr(name="w", initializer=fluid.initializer.NumpyArrayInitializer(values))
        hidden = fluid.layers.fc(x, HIDDEN, act="tanh", param_attr=attr)
        out = fluid.layers.fc(hidden, 1, param_attr=fluid.initializer.Constant(0.05))
        optimizer().minimize(fluid.layers.mean(fluid.layers.square_error_cost(out, y)))
    folder.mkdir(parents=True, exist_ok=True)
    for name, program in (("main", main), ("startup", startup)):
        (folder / f"{name}.pb").write_bytes(program.serialize_to_string())
    return folder


def write_data(folder: Path) -> Path:
    """The examples."""
    np.savez(folder / "data.npz", **examples())
    return folder / "data.npz"


def examples() -> dict[str, Any]:
    random = np.random.RandomState(3)
    x = random.uniform(-1, 1, (EXAMPLES, WIDTH)).astype("float32")
    return {"x": x, "y": x[:, :1] - 0.5 * x[:, 1:2]}


def transpile(programs: Path, *options: str) -> Path:
    """The job of these programs."""
    words = [
        "transpile",
        str(programs / "main.pb"),
        "--startup",
        str(programs / "startup.pb"),
        "--distribute",
        *options,
    ]
    assert run_command([*words, "-o", str(programs / "job")]) == 0
    return programs / "job"


def transpile_as_told(programs: Path, sample: Path) -> Path:
    """The job that the command in the first lines of a sample makes of these programs; it must be called job."""
    lines = [line.removeprefix("#").strip() for line in sample.read_text().splitlines() if line.startswith("#")]
    start = next(number for number, line in enumerate(lines) if line.startswith("fluidtool transpile"))
    end = next(number for number in range(start, len(lines)) if not lines[number].endswith("\\"))
    words = shlex.split(" ".join(line.removesuffix("\\") for line in lines[start : end + 1]))
    assert words[:2] == ["fluidtool", "transpile"] and words[words.index("-o") + 1] == "job"
    with chdir(programs):
        assert run_command(words[1:]) == 0
    return programs / "job"


def parameters_of(programs: Path, folder: Path) -> Parameters:
    """The saved parameters of a training."""
    main = open_programs(programs).main
    names = learnt(main)
    variables = [var for var in persistables(main) if var.name in names]
    return {name: np.array(value.numpy()) for name, value in open_separate(folder, variables).items()}  # type: ignore[union-attr]


def alone(
    programs: Path, trainers: int = TRAINERS, epochs: int = EPOCHS, data: dict[str, Any] | None = None
) -> Parameters:
    """What one process learns from the mini-batches of all trainers."""
    opened = open_programs(programs)
    values = examples() if data is None else data
    source = Examples({name: fluid.create_lod_tensor(array, [], None) for name, array in values.items()})
    training = Training(opened, source, Order(BATCH * trainers), find_loss(opened.main))
    training.initialize()
    for _ in training.run(epochs):
        pass
    found = {name: training.scope.find_var(name) for name in learnt(opened.main)}
    return {name: np.array(var.get_tensor()) for name, var in found.items() if var is not None}


def learnt(main: Any) -> set[str]:
    """The parameters that optimizers change."""
    return {name for op in main.global_block().ops for name in op.outputs.get("ParamOut", [])}
