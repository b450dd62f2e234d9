"""Small models that the campaigns on threads, forks and sizes run, and what their runs are to give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fluidtool import fluid
from fluidtool.model import Model, load
from fluidtool.runtime.engines.native.library import library
from fluidtool.tensor import LoDTensor

Array = np.ndarray[Any, Any]
Feed = dict[str, Any]


def dense(x: Any) -> Any:
    """Two products with an activation between."""
    return fluid.layers.softmax(fluid.layers.fc(fluid.layers.fc(x, 16, act="relu"), 6))


def image(x: Any) -> Any:
    """A convolution, a normalization, a mean, a product."""
    seen = fluid.layers.conv2d(x, 8, 3, padding=1, bias_attr=False)
    seen = fluid.layers.batch_norm(seen, act="relu", is_test=True)
    return fluid.layers.fc(fluid.layers.pool2d(seen, 2, "avg", 2), 5)


def divided(x: Any) -> Any:
    """Two regions around an operator that the native engine has no kernel for."""
    return fluid.layers.fc(fluid.layers.cumsum(fluid.layers.fc(x, 12), axis=-1), 4)


def rows(ids: Any) -> Any:
    """Rows of a table, summed by sequence."""
    found = fluid.layers.embedding(ids, [50, 8])
    return fluid.layers.fc(fluid.layers.sequence_pool(found, "sum"), 3)


@dataclass(frozen=True)
class Kind:
    """A network, its input, and how a feed of so many rows is made."""

    build: Callable[[Any], Any]
    shape: tuple[int, ...]
    dtype: str = "float32"
    lod_level: int = 0

    def feed(self, count: int, numbers: np.random.Generator) -> Any:
        """Of `count` rows, or sequences."""
        if self.lod_level:
            lengths = numbers.integers(0, 4, count)
            offsets = [0, *np.cumsum(lengths).tolist()]
            return LoDTensor(numbers.integers(0, 50, (offsets[-1], 1)), [offsets])
        return numbers.standard_normal((count, *self.shape)).astype(np.float32)


KINDS = {
    "dense": Kind(dense, (10,)),
    "image": Kind(image, (3, 8, 8)),
    "divided": Kind(divided, (10,)),
    "rows": Kind(rows, (1,), "int64", 1),
}
ENGINES = ("native", "numpy") if library() is not None else ("numpy",)


@dataclass
class Source:
    """A network with its parameters: loads models of it, and knows the results of runs that nothing disturbs."""

    name: str
    folder: Path
    engine: str
    calm: Model = field(init=False)
    known: dict[int, tuple[Any, Array]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.calm = self.load()

    def load(self) -> Model:
        """A model that has not run yet."""
        return load(self.folder, params=self.folder / "params", engine=self.engine)

    def case(self, count: int) -> tuple[Any, Array]:
        """A feed of `count` rows, and the result of a second run of it: the first one compiles."""
        if count not in self.known:
            value = KINDS[self.name].feed(count, np.random.default_rng(count))
            run(self.calm, value)
            self.known[count] = value, run(self.calm, value)
        return self.known[count]


def run(model: Model, value: Any) -> Array:
    """The only output of a model with one input."""
    (result,) = model.run({model.feeds[0]: value}).values()
    return np.asarray(result)


@contextmanager
def sources(names: Sequence[str] = tuple(KINDS), engines: Sequence[str] = ENGINES) -> Iterator[list[Source]]:
    """These networks on these engines, their files in a folder that is removed afterwards."""
    with TemporaryDirectory() as folder:
        for name in names:
            write(name, Path(folder, name))
        yield [Source(name, Path(folder, name), engine) for name in names for engine in engines]


def write(name: str, folder: Path) -> None:
    """Save a network, with parameters that are the same at every call."""
    kind, main, startup, scope = KINDS[name], fluid.Program(), fluid.Program(), fluid.Scope()
    main.random_seed = startup.random_seed = 7
    with fluid.unique_name.guard(), fluid.program_guard(main, startup), fluid.scope_guard(scope):
        x = fluid.data("x", [-1, *kind.shape], kind.dtype, lod_level=kind.lod_level)
        out = kind.build(x)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        fluid.io.save_inference_model(str(folder), ["x"], [out], executor, main, params_filename="params")
