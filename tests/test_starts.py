"""Starts from the cache: what they give, when they are believed, what is never kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fluidtool
from benchmarks.inference_worker import arena
from fluidtool import fluid, starts
from fluidtool.errors import FeedError, FluidError, OperatorError, UnreadableError
from fluidtool.model import Model
from fluidtool.runtime.engines.native import cache
from fluidtool.runtime.engines.native.cache import SWITCH
from fluidtool.runtime.engines.native.library import library
from fluidtool.tensor import LoDTensor, files
from fluidtool.workflows.inputs import Inputs
from tests.support.checkout import ROOT, child_environment

Array = np.ndarray[Any, Any]
DIGITS = ROOT / "samples" / "digits"
WORDS, WIDTH = 50, 8

pytestmark = pytest.mark.usefixtures("native")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The starts of a user who has not switched the cache off; files are old enough at once."""
    monkeypatch.delenv(SWITCH)
    monkeypatch.delenv(starts.VERIFY, raising=False)
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(cache, "SETTLED", 0)
    return tmp_path / "cache" / "fluidtool" / "starts"


def saved(folder: Path, build: Callable[[], tuple[list[str], list[Any]]], **options: Any) -> Path:
    """A model with random parameters."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.scope_guard(scope), fluid.unique_name.guard():
        feeds, outputs = build()
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        fluid.io.save_inference_model(str(folder), feeds, outputs, executor, main, **options)
    return folder


def products(columns: int = 12) -> tuple[list[str], list[Any]]:
    x = fluid.data("x", [-1, 6], "float32")
    hidden = fluid.layers.fc(x, 10, act="relu", name="hidden")
    return ["x"], [fluid.layers.fc(hidden, columns, act="softmax"), fluid.layers.fc(hidden, 3)]


def words(rows: int = WORDS) -> tuple[list[str], list[Any]]:
    """Sequences of words, which are pooled while they are looked up."""
    found = fluid.data("words", [-1, 1], "int64", lod_level=1)
    table = fluid.layers.embedding(found, [rows, WIDTH], param_attr=fluid.ParamAttr(name="table"))
    return ["words"], [fluid.layers.fc(fluid.layers.sequence_pool(table, "sum"), 4)]


def sentence(*lengths: int) -> LoDTensor:
    count = sum(lengths)
    return fluid.create_lod_tensor(np.arange(count).reshape(-1, 1) % WORDS, [list(lengths)], fluid.CPUPlace())


def batch(rows: int = 3) -> Array:
    return np.linspace(-2, 2, 6 * rows, dtype=np.float32).reshape(rows, 6)


def outputs(model: Model, feed: dict[str, Any]) -> list[Array]:
    return [np.asarray(value) for value in model.run(feed).values()]


def kept(folder: Path, feed: dict[str, Any], **options: Any) -> list[Array]:
    """The outputs of the first run, which leaves a start."""
    model = fluidtool.load(folder, **options)
    assert model.start is None
    found = outputs(model, feed)
    assert fluidtool.load(folder, **options).start is not None
    return found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return saved(tmp_path / "model", products)


def same(found: list[Array], expected: list[Array]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


# ---------------------------------------------------------------- what a start gives
@pytest.mark.parametrize("options", [{}, {"params_filename": "__params__"}], ids=["separate files", "one file"])
def test_the_second_process_gets_the_same_bits_and_opens_nothing(tmp_path: Path, options: dict[str, str]) -> None:
    folder = saved(tmp_path / "model", products, **options)
    first = kept(folder, {"x": batch()})
    model = fluidtool.load(folder)
    same(outputs(model, {"x": batch()}), first)
    same(outputs(model, {"x": batch()}), first)
    assert model.start is not None


def test_other_values_of_the_same_shape_need_nothing_else(model: Path) -> None:
    kept(model, {"x": batch()})
    started = fluidtool.load(model)
    found = outputs(started, {"x": -batch()})
    assert started.start is not None
    same(found, outputs(fluidtool.load(model, need_parameters=False), {"x": -batch()}))


def test_names_and_declarations_are_those_of_the_program(model: Path) -> None:
    kept(model, {"x": batch()})
    plain, started = fluidtool.load(model, need_parameters=False), fluidtool.load(model)
    assert (started.feeds, started.fetches) == (plain.feeds, plain.fetches)
    assert started.declared("x") == plain.declared("x")
    assert started.has_variable("x")
    assert started.start is not None and plain.start is None


def test_another_shape_opens_the_model_and_is_kept_too(model: Path) -> None:
    kept(model, {"x": batch(3)})
    started = fluidtool.load(model)
    found = outputs(started, {"x": batch(5)})
    assert started.start is None
    same(found, outputs(fluidtool.load(model, need_parameters=False), {"x": batch(5)}))
    both = fluidtool.load(model)
    same(outputs(both, {"x": batch(5)}), found)
    outputs(both, {"x": batch(3)})
    assert both.start is not None


def test_other_outputs_open_the_model(model: Path) -> None:
    kept(model, {"x": batch()})
    started = fluidtool.load(model)
    (name,) = started.run({"x": batch()}, ["hidden.tmp_2"])
    assert name == "hidden.tmp_2" and started.start is None


def test_sequences_of_other_lengths_start_too(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", words)
    kept(folder, {"words": sentence(2, 3)})
    started = fluidtool.load(folder)
    found = outputs(started, {"words": sentence(4, 1)})
    assert started.start is not None
    same(found, outputs(fluidtool.load(folder, need_parameters=False), {"words": sentence(4, 1)}))


def test_tables_that_stay_in_their_file_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_COPIED", 1 << 10)
    folder = saved(tmp_path / "model", lambda: words(2000))
    first = kept(folder, {"words": sentence(2, 3)})
    started = fluidtool.load(folder)
    same(outputs(started, {"words": sentence(2, 3)}), first)
    with (folder / "table").open("r+b") as file:
        file.write(b"\0")
    os.utime(folder / "table", (1, 1))
    with pytest.raises(UnreadableError, match="was changed after"):
        started.run({"words": sentence(2, 3)})


def test_threads_share_a_start(model: Path) -> None:
    kept(model, {"x": batch()})
    started = fluidtool.load(model)
    feeds = [batch() * factor for factor in range(40)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: outputs(started, {"x": x}), feeds))
    plain = fluidtool.load(model, need_parameters=False)
    for one, x in zip(found, feeds, strict=True):
        same(one, outputs(plain, {"x": x}))


def test_another_precision_has_a_start_of_its_own(model: Path) -> None:
    exact = kept(model, {"x": batch()})
    rounded = kept(model, {"x": batch()}, precision="bf16")
    same(outputs(fluidtool.load(model), {"x": batch()}), exact)
    same(outputs(fluidtool.load(model, precision="bf16"), {"x": batch()}), rounded)


def test_another_number_of_threads_has_a_start_of_its_own(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = library()
    assert engine is not None
    kept(model, {"x": batch()})
    monkeypatch.setattr(engine, "threads", engine.threads + 1)  # its steps are cut into tasks for other threads
    started = fluidtool.load(model)
    outputs(started, {"x": batch()})
    assert started.start is None


def test_a_benchmark_finds_the_arena_without_opening_the_model(model: Path) -> None:
    kept(model, {"x": batch()})
    opened, started = fluidtool.load(model, need_parameters=False), fluidtool.load(model)
    for each in (opened, started):
        outputs(each, {"x": batch()})
    assert started.start is not None
    assert arena(started) == arena(opened) != 0
    assert started.start is not None


def test_the_workflow_says_what_computed(model: Path) -> None:
    feed = Inputs({"x": batch()})
    first = fluidtool.run(fluidtool.load(model), feed)
    started = fluidtool.load(model)
    started.run({"x": batch()})
    assert started.start is not None
    assert started.start.engine_used() == first.engine
    assert list(started.start.engine_used()) == list(first.engine)


# ---------------------------------------------------------------- who changes the model has the ordinary one
def test_parameters_that_are_set_count(model: Path) -> None:
    first = kept(model, {"x": batch()})
    started = fluidtool.load(model)
    scope = started.scope
    started.run({"x": batch()})
    scope.var("hidden.w_0").get_tensor().set(np.zeros((6, 10), np.float32))
    assert np.abs(outputs(started, {"x": batch()})[1] - first[1]).max() > 0.01


def look_at_program(model: Model) -> None:
    _ = model.program


@pytest.mark.parametrize("before", [lambda model: None, look_at_program], ids=["at once", "after the program"])
def test_parameters_are_in_the_scope_after_a_run(model: Path, before: Callable[[Model], None]) -> None:
    kept(model, {"x": batch()})
    started = fluidtool.load(model)
    started.run({"x": batch()})
    assert started.start is not None
    before(started)
    found = started.scope.find_var("hidden.w_0")
    assert found is not None and found.get_tensor().shape() == [6, 10]
    found.get_tensor().set(np.zeros((6, 10), np.float32))
    same(outputs(started, {"x": batch()})[1:], [np.zeros((3, 3), np.float32)])


def test_a_program_that_is_changed_counts(model: Path) -> None:
    kept(model, {"x": batch()})
    started = fluidtool.load(model)
    softmax = next(op for op in started.program.global_block().ops if op.type == "softmax")
    softmax.type = "relu"
    started.program.touch()
    assert np.abs(outputs(started, {"x": batch()})[0].sum(axis=1) - 1).max() > 0.01


def change_program(model: Model) -> None:
    model.program.touch()


def look_at_scope(model: Model) -> None:
    _ = model.scope


def run_on_numpy(model: Model) -> None:
    model.engine = "numpy"


@pytest.mark.parametrize("change", [change_program, look_at_scope, run_on_numpy])
def test_a_model_that_may_have_changed_leaves_nothing(model: Path, home: Path, change: Callable[[Model], None]) -> None:
    loaded = fluidtool.load(model)
    change(loaded)
    loaded.run({"x": batch()})
    assert not home.exists() or not list(home.iterdir())


def test_an_engine_that_is_set_computes(model: Path) -> None:
    kept(model, {"x": batch()})
    started = fluidtool.load(model)
    started.engine = "numpy"
    started.run({"x": batch()})
    assert started.start is None and started.executor.engine is None


# ---------------------------------------------------------------- errors
BAD_FEEDS: list[dict[str, Any]] = [
    {},
    {"y": batch()},
    {"x": batch(), "y": batch()},
    {"x": batch().astype(np.float64)},
    {"x": batch()[:, :5]},
    {"x": batch().astype(">f4")[:, :4]},
    {"x": "text"},
]


@pytest.mark.parametrize("feed", BAD_FEEDS, ids=str)
def test_errors_are_those_of_a_model_that_was_opened(model: Path, feed: dict[str, Any]) -> None:
    kept(model, {"x": batch()})
    found = []
    for loaded in (fluidtool.load(model, need_parameters=False), fluidtool.load(model)):
        with pytest.raises((FluidError, AttributeError)) as caught:
            loaded.run(feed)
        found.append((type(caught.value), str(caught.value)))
    assert found[0] == found[1]
    assert feed or found[0][0] is FeedError


def test_an_id_out_of_range_is_refused_in_the_same_words(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", words)
    kept(folder, {"words": sentence(2, 3)})
    started = fluidtool.load(folder)
    outputs(started, {"words": sentence(2, 3)})
    wrong = fluid.create_lod_tensor(np.full((5, 1), WORDS), [[2, 3]], fluid.CPUPlace())
    found = []
    for loaded in (started, fluidtool.load(folder, need_parameters=False)):
        with pytest.raises(OperatorError) as caught:
            loaded.run({"words": wrong})
        found.append(str(caught.value))
    assert found[0] == found[1]


def test_files_that_are_gone_when_they_are_needed_are_named(model: Path) -> None:
    kept(model, {"x": batch()})
    started = fluidtool.load(model)
    program = model / "__model__"
    program.unlink()
    with pytest.raises(UnreadableError, match="was changed after the model was loaded"):
        started.run({"x": batch(5)})


# ---------------------------------------------------------------- when a start is believed
def write_in_place(folder: Path) -> None:
    path = folder / "hidden.w_0"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def replace(folder: Path) -> None:
    (folder / "new").write_bytes((folder / "hidden.b_0").read_bytes())
    (folder / "new").replace(folder / "hidden.b_0")


def other_program(folder: Path) -> None:
    (folder / "__model__").write_bytes((folder / "__model__").read_bytes())


def another_file(folder: Path) -> None:
    (folder / "model.pdmodel").write_bytes(b"\x0a")


@pytest.mark.parametrize("change", [write_in_place, replace, other_program, another_file])
def test_a_start_is_not_believed_after_a_change(model: Path, change: Callable[[Path], None]) -> None:
    kept(model, {"x": batch()})
    change(model)
    assert fluidtool.load(model).start is None


def test_weights_that_were_written_in_place_count(model: Path) -> None:
    first = kept(model, {"x": batch()})
    path = model / "hidden.b_0"
    data = path.read_bytes()
    path.write_bytes(data[:-40] + np.full(10, 3, np.float32).tobytes())
    assert np.abs(outputs(fluidtool.load(model), {"x": batch()})[1] - first[1]).max() > 0.01


def test_a_change_counts_for_shapes_that_were_kept_before_it_too(model: Path) -> None:
    """The first run after the change, of another shape, leaves a start that is believed; what is older than it is not."""
    kept(model, {"x": batch(3)})
    before = outputs(fluidtool.load(model), {"x": batch(5)})
    path = model / "hidden.b_0"
    path.write_bytes(path.read_bytes()[:-40] + np.full(10, 3, np.float32).tobytes())
    kept(model, {"x": batch(3)})
    found = outputs(fluidtool.load(model), {"x": batch(5)})
    same(found, outputs(fluidtool.load(model, need_parameters=False), {"x": batch(5)}))
    assert np.abs(found[1] - before[1]).max() > 0.01


def test_shapes_that_were_kept_with_other_modules_are_believed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was made by what its process had imported: that is looked at, and need not be the same."""
    kept(model, {"x": batch(3)})
    part = ModuleType("fluidtool.rewrite")
    part.__file__ = __file__
    monkeypatch.setitem(sys.modules, "fluidtool.rewrite", part)
    outputs(fluidtool.load(model), {"x": batch(5)})
    started = fluidtool.load(model)
    outputs(started, {"x": batch(3)})
    outputs(started, {"x": batch(5)})
    assert started.start is not None


def test_another_fluidtool_does_not_believe_it(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "rewrite.py"
    source.write_text("before")
    part = ModuleType("fluidtool.rewrite")
    part.__file__ = str(source)
    monkeypatch.setitem(sys.modules, "fluidtool.rewrite", part)
    kept(model, {"x": batch()})
    source.write_text("after")
    assert fluidtool.load(model).start is None


def test_files_written_a_moment_ago_leave_nothing(model: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "SETTLED", 3600 * 10**9)
    outputs(fluidtool.load(model), {"x": batch()})
    assert not list(home.iterdir())


@pytest.mark.parametrize(("name", "value"), [(SWITCH, "0"), (starts.VERIFY, "1"), ("FLUIDTOOL_NATIVE", "0")])
def test_the_environment_switches_it_off(
    model: Path, home: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    kept(model, {"x": batch()})
    before = {path.name: path.stat().st_mtime_ns for path in home.iterdir()}
    monkeypatch.setenv(name, value)
    loaded = fluidtool.load(model)
    outputs(loaded, {"x": batch()})
    assert loaded.start is None
    assert {path.name: path.stat().st_mtime_ns for path in home.iterdir()} == before


@pytest.mark.parametrize("options", [{"engine": "numpy"}, {"need_parameters": False}, {"validate": False}])
def test_models_that_are_opened_otherwise_have_none(model: Path, options: dict[str, Any]) -> None:
    kept(model, {"x": batch()})
    assert fluidtool.load(model, **options).start is None


def test_bytes_have_none(tmp_path: Path, home: Path) -> None:
    folder = saved(tmp_path / "model", products, params_filename="__params__")
    given = [(folder / name).read_bytes() for name in ("__model__", "__params__")]
    loaded = fluidtool.load(given[0], params=given[1])
    outputs(loaded, {"x": batch()})
    assert not home.exists()


def test_a_program_with_steps_outside_the_region_has_none(tmp_path: Path, home: Path) -> None:
    def build() -> tuple[list[str], list[Any]]:
        x = fluid.data("x", [-1, 6], "float32")
        return ["x"], [fluid.layers.cumsum(fluid.layers.fc(x, 3))]

    folder = saved(tmp_path / "model", build)
    outputs(fluidtool.load(folder), {"x": batch()})
    assert not list(home.iterdir())


# ---------------------------------------------------------------- damage
def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [cut, empty, flip, Path.unlink])
@pytest.mark.parametrize("largest", [True, False], ids=["region", "description"])
def test_a_damaged_file_is_not_believed_and_replaced(
    model: Path, home: Path, damage: Callable[[Path], None], largest: bool
) -> None:
    first = kept(model, {"x": batch()})
    damaged = sorted(home.iterdir(), key=lambda path: path.stat().st_size)[-1 if largest else 0]
    damage(damaged)
    loaded = fluidtool.load(model)
    same(outputs(loaded, {"x": batch()}), first)
    assert loaded.start is None
    again = fluidtool.load(model)
    same(outputs(again, {"x": batch()}), first)
    assert again.start is not None


def test_packed_weights_that_are_gone_are_packed_again(tmp_path: Path, home: Path) -> None:
    def build() -> tuple[list[str], list[Any]]:
        x = fluid.data("x", [-1, 512], "float32")
        return ["x"], [fluid.layers.fc(x, 640)]

    folder = saved(tmp_path / "model", build)
    x = np.linspace(-1, 1, 1024, dtype=np.float32).reshape(2, 512)
    first = kept(folder, {"x": x})
    (packed,) = (home.parent / "weights").iterdir()
    packed.unlink()
    loaded = fluidtool.load(folder)
    same(outputs(loaded, {"x": x}), first)
    assert loaded.start is None
    again = fluidtool.load(folder)
    same(outputs(again, {"x": x}), first)
    assert again.start is not None


def test_a_folder_that_cannot_be_written_is_no_error(model: Path, home: Path) -> None:
    loaded = fluidtool.load(model)
    home.rmdir()
    home.write_text("a file is in the way")
    assert len(outputs(loaded, {"x": batch()})) == 2


def test_all_starts_together_have_a_limit(model: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def total() -> int:
        return sum(path.stat().st_size for path in home.iterdir())

    kept(model, {"x": batch(1)})
    monkeypatch.setattr(starts, "MOST", most := total() + 6000)
    for rows in range(2, 9):
        outputs(fluidtool.load(model), {"x": batch(rows)})
    assert total() <= most


# ---------------------------------------------------------------- processes
RUN = """
import sys
from pathlib import Path
from fluidtool.runtime.engines.native import cache
home = Path(sys.argv[1])
cache.SETTLED, cache.cache_folder = 0, lambda: home
"""
PLAIN = """
import numpy, fluidtool
model = fluidtool.load(sys.argv[2])
out = model.run({"image": numpy.load(sys.argv[3])})[0].numpy()
print(out.tobytes().hex())
"""
COMMAND = """
from fluidtool.cli import main
sys.argv[1:] = ["run", sys.argv[2], "--feed", sys.argv[3]]
main()
"""
REPORT = """
ours = [name for name in sys.modules if name.partition(".")[0] == "fluidtool"]
heavy = ("google", "fluidtool.ir", "fluidtool.ops", "fluidtool.runtime.graph", "fluidtool.runtime.executor", "numpy.random",
         "numpy.ma", "_hashlib", "rich", "fluidtool.runtime.engines.native.abi", "fluidtool.io.layout")
print(len(ours), *(name for name in heavy if name in sys.modules), file=sys.stderr)
"""


def process(code: str, home: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN + code + REPORT, str(home.parent.parent), str(DIGITS), str(DIGITS / "x.npy")]
    environment = child_environment(**{SWITCH: "1", starts.VERIFY: "0"})
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize(("code", "most"), [(PLAIN, 36), (COMMAND, 86)], ids=["library", "command"])
def test_a_start_imports_little(home: Path, code: str, most: int) -> None:
    (first, all_of_it), (second, little) = [process(code, home).communicate(timeout=120) for _ in range(2)]
    assert first == second != ""
    count, *heavy = little.split()
    assert heavy == []
    assert int(count) <= most < int(all_of_it.split()[0])


@pytest.mark.slow
def test_processes_at_once_agree(home: Path) -> None:
    running = [process(PLAIN, home) for _ in range(3)]
    printed = {each.communicate(timeout=120)[0] for each in running}
    assert len(printed) == 1 and [each.returncode for each in running] == [0, 0, 0]
    assert process(PLAIN, home).communicate(timeout=120)[0] in printed
    assert not list(home.glob("*.tmp"))
