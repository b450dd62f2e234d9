"""Files that are read whole or mapped: no descriptor stays open, and no file ends the process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from fluidtool.errors import UnreadableError
from fluidtool.tensor import files
from fluidtool.tensor.files import LEAST_MAPPED, file_of, map_file, private, read_file, transfer

NUMBERS = np.arange(3 * LEAST_MAPPED, dtype=np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    NUMBERS.tofile(tmp_path / "numbers")
    return tmp_path / "numbers"


def view_of(path: Path) -> np.ndarray:
    return np.frombuffer(map_file(path), np.float32)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# ---------------------------------------------------------------- opening
def test_a_mapped_file_holds_the_bytes_of_the_file(path: Path) -> None:
    view = view_of(path)
    assert file_of(view) is not None and not view.flags.writeable
    np.testing.assert_array_equal(view, NUMBERS)
    assert read_file(path) == NUMBERS.tobytes()


@pytest.mark.parametrize("size", [0, 1, LEAST_MAPPED - 1])
def test_a_small_file_is_read(tmp_path: Path, size: int) -> None:
    (tmp_path / "small").write_bytes(bytes(size))
    assert map_file(tmp_path / "small") == bytes(size)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system does not list the descriptors of a process")
def test_a_mapped_file_keeps_no_descriptor(path: Path) -> None:
    before = descriptors()
    views = [view_of(path) for _ in range(3)]
    assert descriptors() == before
    assert all(private(view) is not view for view in views)
    assert descriptors() == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read in (read_file, map_file):
        with pytest.raises(UnreadableError, match="pipe: it is not a regular file"):
            read(tmp_path / "pipe")


@pytest.mark.parametrize("name", [".", "/dev/zero", "missing", "a\0b"])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    for read in (read_file, map_file):
        with pytest.raises(UnreadableError):
            read(tmp_path / name)


def test_a_file_that_is_too_large_is_refused(path: Path) -> None:
    assert len(read_file(path, NUMBERS.nbytes)) == NUMBERS.nbytes
    with pytest.raises(UnreadableError, match="more than 100 bytes"):
        read_file(path, 100)


def test_a_file_that_is_too_large_takes_no_memory(tmp_path: Path) -> None:
    path, size = tmp_path / "file", 64 << 20
    with path.open("wb") as file:
        file.truncate(size)
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableError, match=f"more than {size - 1} bytes"):
            read_file(path, size - 1)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------- values
def test_other_arrays_are_private_already() -> None:
    assert private(NUMBERS) is NUMBERS
    assert file_of(NUMBERS) is None


def test_a_private_copy_has_the_layout_of_the_view_at_an_address_that_fits_its_type(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"\x01" + NUMBERS.tobytes())
    odd = np.frombuffer(map_file(tmp_path / "odd"), np.float32, 6000, 1).reshape(60, 100)
    for view in (odd, odd.T, odd[::-1, 3:50], odd[5], odd[7, 7]):
        copied = private(np.asarray(view))
        np.testing.assert_array_equal(copied, view)
        assert copied.strides == view.strides and copied.flags.aligned and file_of(copied) is None


def test_a_very_large_value_stays_where_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_COPIED", 1000)
    view = view_of(path)
    assert private(view) is view and private(view, any_size=True) is not view
    path.write_bytes(b"")
    with pytest.raises(UnreadableError, match="was changed"):
        private(view)


def test_a_copy_stays_when_the_file_is_cut(path: Path) -> None:
    copied = private(view_of(path))
    os.truncate(path, 0)
    np.testing.assert_array_equal(copied, NUMBERS)


@pytest.mark.parametrize("size", [0, 100, NUMBERS.nbytes - 1, NUMBERS.nbytes + 1])
def test_a_file_that_got_another_size_is_refused(path: Path, size: int) -> None:
    view = view_of(path)
    os.truncate(path, size)
    with pytest.raises(UnreadableError, match=r"was changed after it was opened \(it had 196608 bytes\)"):
        private(view)


def test_a_file_that_was_written_to_is_refused(path: Path) -> None:
    view = view_of(path)
    os.utime(path, ns=(0, 1))
    with pytest.raises(UnreadableError, match="was changed"):
        private(view)


def test_a_file_that_was_removed_or_replaced_is_still_what_it_was(path: Path) -> None:
    first, second = view_of(path), view_of(path)
    (path.parent / "other").write_bytes(b"other")
    os.replace(path.parent / "other", path)
    np.testing.assert_array_equal(private(first), NUMBERS)
    path.unlink()
    np.testing.assert_array_equal(private(second), NUMBERS)


def test_bytes_that_are_gone_are_not_copied(path: Path) -> None:
    memory = map_file(path)
    target = bytearray(len(memory))
    assert transfer(memoryview(memory), memoryview(target)) and target == NUMBERS.tobytes()
    os.truncate(path, 0)
    assert not transfer(memoryview(memory), memoryview(target))


# ---------------------------------------------------------------- models
CUT = """
import os, sys
import numpy as np
import fluidtool
from fluidtool.errors import UnreadableError
folder, engine, when = sys.argv[1:]
model = fluidtool.load(folder, engine=engine)
feed = {"image": np.ones((1, 1, 8, 8), np.float32)}
if when == "after":
    (before,) = model.run(feed).values()
for name in model.files.parameters:
    os.truncate(os.path.join(folder, name), 50)
try:
    (value,) = model.run(feed).values()
    print("same" if when == "after" and np.array_equal(value, before) else "other")
    model.run({"image": np.ones((3, 1, 8, 8), np.float32)})
except UnreadableError as error:
    print(error)
"""


@pytest.mark.parametrize("engine", ["auto", "numpy"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_model_whose_files_are_cut_ends_no_process(tmp_path: Path, engine: str, when: str) -> None:
    digits = Path(__file__).resolve().parents[2] / "samples" / "digits"
    shutil.copytree(digits, tmp_path / "model")
    script = f"import fluidtool.tensor.files as files; files.LEAST_MAPPED = 1\n{CUT}"  # the sample is small
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "model"), engine, when],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[0]
    assert first == "same" if when == "after" else "was changed after it was opened" in first


TABLE = """
import os, sys
import numpy as np
import fluidtool, fluidtool.fluid as fluid, fluidtool.tensor.files as files
from fluidtool.errors import UnreadableError
files.LEAST_MAPPED = files.LARGEST_COPIED = 1
main, startup = fluid.Program(), fluid.Program()
with fluid.program_guard(main, startup):
    ids = fluid.data("ids", [-1, 1], "int64")
    out = fluid.layers.fc(fluid.layers.embedding(ids, [200, 32], param_attr="table"), 4)
executor = fluid.Executor()
executor.run(startup)
fluid.io.save_inference_model(sys.argv[1], ["ids"], [out], executor, main)
model = fluidtool.load(sys.argv[1])
feed = {"ids": np.array([[3], [199]])}
model.run(feed)
os.truncate(os.path.join(sys.argv[1], "table"), 50)
try:
    model.run(feed)
except UnreadableError as error:
    print(error)
"""


@pytest.mark.usefixtures("native")  # numpy reads tables whole
def test_a_table_that_is_read_in_its_file_is_looked_at_before_every_run(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TABLE, str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "table was changed after it was opened" in done.stdout, done.stderr
