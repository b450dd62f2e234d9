"""The cache of packed constants: what is found in it, what is not believed, and what is never written to it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool
from fluidtool import fluid
from fluidtool.runtime.engines.native import cache
from fluidtool.runtime.engines.native.cache import PAGE, SWITCH, WeightCache, is_private, weight_cache
from fluidtool.runtime.engines.native.library import library, usable_instructions
from tests.support.checkout import child_environment

Array = np.ndarray[Any, Any]
FLOATS = 3 * PAGE // 4 + 5  # three pages and a bit
DEPTH, COLUMNS = 512, 640  # weights of 1.25 MiB
POSIX = pytest.mark.skipif(os.name != "posix", reason="owners and modes of POSIX")

pytestmark = pytest.mark.usefixtures("native")


def numbers(floats: int = FLOATS) -> Array:
    return np.random.default_rng(0).standard_normal(floats).astype(np.float32)


def never() -> Array:
    raise AssertionError("this is in the cache")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


# ---------------------------------------------------------------- files
def test_a_constant_is_packed_once(tmp_path: Path) -> None:
    WeightCache(tmp_path).get("a", FLOATS, numbers)
    found = WeightCache(tmp_path).get("a", FLOATS, never)
    np.testing.assert_array_equal(found, numbers())
    assert not found.flags.writeable


def test_another_description_is_another_constant(tmp_path: Path) -> None:
    WeightCache(tmp_path).get("a", FLOATS, numbers)
    other = WeightCache(tmp_path).get("b", FLOATS, lambda: -numbers())
    np.testing.assert_array_equal(other, -numbers())
    assert len(names(tmp_path)) == 2


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(at: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    return damage


def exchange_pages(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[PAGE : 2 * PAGE] + data[:PAGE] + data[2 * PAGE :])


def be_foreign(path: Path) -> None:
    WeightCache(path.parent).get("another", FLOATS, lambda: -numbers())
    (other,) = names(path.parent) - {path.name}
    (path.parent / other).replace(path)


def be_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = [
    cut,
    empty,
    flip(0),
    flip(PAGE),
    flip(4 * FLOATS - 1),
    flip(4 * FLOATS),
    flip(-1),
    exchange_pages,
    be_foreign,
    be_a_folder,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_not_believed(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    WeightCache(tmp_path).get("a", FLOATS, numbers)
    (name,) = names(tmp_path)
    damage(tmp_path / name)
    packed: list[Array] = []

    def pack() -> Array:
        packed.append(numbers())
        return packed[-1]

    found = WeightCache(tmp_path).get("a", FLOATS, pack)
    np.testing.assert_array_equal(found, numbers())
    assert len(packed) == 1
    assert not list(tmp_path.glob("*.tmp"))


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    WeightCache(tmp_path).get("a", FLOATS, numbers)
    (name,) = names(tmp_path)
    cut(tmp_path / name)
    WeightCache(tmp_path).get("a", FLOATS, numbers)
    WeightCache(tmp_path).get("a", FLOATS, never)


def test_what_is_mapped_outlives_its_file(tmp_path: Path) -> None:
    WeightCache(tmp_path).get("a", FLOATS, numbers)
    found = WeightCache(tmp_path).get("a", FLOATS, never)
    for name in names(tmp_path):
        (tmp_path / name).unlink()
    tmp_path.rmdir()
    np.testing.assert_array_equal(found, numbers())


def test_a_folder_that_goes_away_is_no_error(tmp_path: Path) -> None:
    kept = WeightCache(tmp_path / "weights")
    np.testing.assert_array_equal(kept.get("a", FLOATS, numbers), numbers())


def test_the_least_recently_used_constants_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST", int(6.5 * 4 * FLOATS))
    kept = WeightCache(tmp_path)
    for number in range(6):
        before = names(tmp_path)
        kept.get(str(number), FLOATS, numbers)
        (name,) = names(tmp_path) - before
        os.utime(tmp_path / name, (number, number))
    kept.get("0", FLOATS, never)  # used now
    kept.get("6", FLOATS, numbers)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= cache.MOST
    kept.get("0", FLOATS, never)
    with pytest.raises(AssertionError, match="in the cache"):
        kept.get("1", FLOATS, never)


def test_a_constant_that_takes_much_of_the_room_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LARGEST", 4 * FLOATS - 1)
    WeightCache(tmp_path).get("a", FLOATS, numbers)
    assert not names(tmp_path)


# ---------------------------------------------------------------- the folder
@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of a user who has not switched it off; files are old enough at once."""
    monkeypatch.delenv(SWITCH)
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(cache, "SETTLED", 0)
    return tmp_path / "cache" / "fluidtool" / "weights"


def test_the_folder_is_the_users_alone(home: Path) -> None:
    made = weight_cache()
    assert made is not None and made.folder == home
    if os.name == "posix":
        assert home.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("word", ["0", "off", "no", "FALSE"])
def test_it_can_be_switched_off(home: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setenv(SWITCH, word)
    assert weight_cache() is None
    assert not home.exists()


@POSIX
def test_a_folder_of_somebody_else_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(parents=True, mode=0o700)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert weight_cache() is None


@POSIX
@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_write_to_is_refused(home: Path, mode: int) -> None:
    home.mkdir(parents=True)
    home.chmod(mode)
    assert weight_cache() is None


@POSIX
def test_a_link_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert is_private(tmp_path / "real") and not is_private(tmp_path / "link")


def test_a_folder_that_cannot_be_made_is_no_error(home: Path) -> None:
    home.parent.parent.write_text("a file is in the way")
    assert weight_cache() is None


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the convention of other systems")
def test_the_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.cache_folder() == Path("/somewhere")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored
    monkeypatch.setenv("HOME", "/home/me")
    assert cache.cache_folder() == Path("/home/me/.cache")


# ---------------------------------------------------------------- models
def saved(folder: Path, columns: int = COLUMNS, seed: int = 1) -> Path:
    """A model of one product."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    main.random_seed = startup.random_seed = seed
    with fluid.program_guard(main, startup), fluid.scope_guard(scope), fluid.unique_name.guard():
        x = fluid.data("x", [-1, DEPTH], "float32")
        out = fluid.layers.fc(x, columns)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        fluid.io.save_inference_model(str(folder), ["x"], [out], executor, main)
    return folder


FEED = {"x": np.linspace(-1, 1, 2 * DEPTH, dtype=np.float32).reshape(2, DEPTH)}


def outputs(folder: Path, **options: Any) -> Array:
    (value,) = fluidtool.load(folder, engine="native", **options).run(FEED).values()
    return np.asarray(value)


def test_the_second_start_of_a_model_gives_the_same_bits(home: Path, tmp_path: Path) -> None:
    model = saved(tmp_path / "model")
    first = outputs(model)
    before = {path: path.stat().st_ino for path in home.iterdir()}
    assert len(before) == 1
    np.testing.assert_array_equal(outputs(model), first)
    assert {path: path.stat().st_ino for path in home.iterdir()} == before


def test_other_weights_at_the_same_place_are_packed_anew(home: Path, tmp_path: Path) -> None:
    model = saved(tmp_path / "model")
    first = outputs(model)
    saved(tmp_path / "model", seed=2)
    second = outputs(model)
    assert np.abs(second - first).max() > 0.1
    assert len(names(home)) == 2


def test_weights_written_in_place_are_packed_anew(home: Path, tmp_path: Path) -> None:
    model = saved(tmp_path / "model")
    first = outputs(model)
    (weights,) = (path for path in model.iterdir() if path.stat().st_size > 1 << 20)
    with weights.open("r+b") as file:
        file.seek(-4 * DEPTH, os.SEEK_END)
        file.write(np.full(DEPTH, 3, np.float32).tobytes())
    assert np.abs(outputs(model) - first).max() > 0.1


def test_weights_written_a_moment_ago_are_not_kept(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "SETTLED", 3600 * 10**9)
    outputs(saved(tmp_path / "model"))
    assert not names(home)


def test_a_small_model_writes_nothing(home: Path, tmp_path: Path) -> None:
    outputs(saved(tmp_path / "model", columns=32))
    assert not home.exists()


def test_another_precision_is_another_constant(home: Path, tmp_path: Path) -> None:
    model = saved(tmp_path / "model", columns=2 * COLUMNS)
    exact = outputs(model)
    rounded = outputs(model, precision="bf16")
    assert len(names(home)) == 2
    np.testing.assert_array_equal(outputs(model), exact)
    np.testing.assert_array_equal(outputs(model, precision="bf16"), rounded)


RUN = """
import sys
from pathlib import Path
from fluidtool.runtime.engines.native import cache
cache.SETTLED, cache.cache_folder = 0, lambda: Path(sys.argv[2])
from tests.runtime.test_weight_cache import outputs
print(outputs(Path(sys.argv[1])).tobytes().hex())
"""


def start(model: Path, home: Path, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, str(model), str(home.parent.parent)]
    changed = child_environment(**{SWITCH: "1", **environment})
    return subprocess.Popen(command, env=changed, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_another_instruction_set_is_another_constant(home: Path, tmp_path: Path) -> None:
    found = library()
    if found is None or "portable" not in usable_instructions(found.handle):
        pytest.skip("this build of the engine has no other instruction set for this processor")
    model = saved(tmp_path / "model")
    want = outputs(model)
    printed, _ = start(model, home, FLUIDTOOL_INSTRUCTIONS="portable").communicate(timeout=60)
    got = np.frombuffer(bytes.fromhex(printed), np.float32).reshape(want.shape)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
    assert len(names(home)) == 2


@pytest.mark.slow
def test_two_processes_at_once_agree(home: Path, tmp_path: Path) -> None:
    model = saved(tmp_path / "model")
    both = [start(model, home) for _ in range(2)]
    printed = [process.communicate(timeout=60)[0] for process in both]
    assert printed[0] == printed[1] != ""
    assert [process.returncode for process in both] == [0, 0]
    np.testing.assert_array_equal(np.frombuffer(bytes.fromhex(printed[0]), np.float32), outputs(model).ravel())
    assert len(names(home)) == 1
