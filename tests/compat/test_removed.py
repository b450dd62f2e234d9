"""Names and modules that Python, numpy and Pillow have dropped: there while an old script runs, and gone afterwards."""

from __future__ import annotations

import collections
import importlib.util
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fluidtool.compat.removed import modules
from fluidtool.compat.removed.giving import old_names
from fluidtool.compat.removed.names import REMOVED, stands_for
from fluidtool.compat.removed.notes import Notes
from fluidtool.fluid.fetched import FetchedArray, fetched_array
from fluidtool.tensor import LoDTensor
from tests.compat.test_exec import execute


def test_names_of_old_are_there_with_one_note_each(capsys: pytest.CaptureFixture[str]) -> None:
    with old_names(Notes()):
        assert (np.int, np.float, np.object) == (int, float, object)
        assert np.int is int
        assert np.product([2, 3]) == 6
        assert collections.Mapping is collections.abc.Mapping
        assert time.clock() >= 0
    notes = capsys.readouterr().err.splitlines()
    assert len([note for note in notes if "numpy.int " in note]) == 1
    assert "note: numpy.product was removed; fluidtool uses numpy.prod instead" in notes
    assert "note: time.clock was removed; fluidtool uses time.process_time instead" in notes


def test_afterwards_they_are_gone() -> None:
    with old_names(Notes()):
        pass
    assert not hasattr(collections, "Mapping")
    assert not hasattr(time, "clock")
    assert not hasattr(np, "product")
    assert "finder" not in repr(sys.meta_path).lower() or not any(
        "removed" in type(f).__module__ for f in sys.meta_path
    )


def test_names_that_never_were_stay_errors() -> None:
    with old_names(Notes()):
        with pytest.raises(AttributeError, match="has no attribute 'integr'"):
            np.integr  # noqa: B018
        with pytest.raises(AttributeError, match="module 'time' has no attribute 'clocks'"):
            time.clocks  # type: ignore[attr-defined]  # noqa: B018
        with pytest.raises(ImportError):
            importlib.import_module("never_was")


@pytest.mark.parametrize(
    "path", sorted({path for names in REMOVED.values() for path in names.values() if "PIL" not in path})
)
def test_what_stands_for_a_name_is_there(path: str) -> None:
    stands_for(path)


def test_the_module_that_is_imported_in_the_script_has_its_names(tmp_path: Path) -> None:
    done = execute(tmp_path, "from inspect import getargspec\nprint(getargspec(lambda a, b=1: 0))\n")
    assert done.stdout == "ArgSpec(args=['a', 'b'], varargs=None, keywords=None, defaults=(1,))\n"
    assert done.stderr.count("inspect.getargspec") == 1


def test_a_loaded_module_keeps_its_own_loader(tmp_path: Path) -> None:
    done = execute(tmp_path, "import fractions\nprint(type(fractions.__spec__.loader).__name__, fractions.gcd(4, 6))\n")
    assert done.stdout == "SourceFileLoader 2\n"


def test_filters_of_old_pillow(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    done = execute(tmp_path, "from PIL import Image\nprint(int(Image.ANTIALIAS))\n")
    assert done.stdout == f"{int(image.LANCZOS)}\n"


def test_modules_that_python_dropped(tmp_path: Path) -> None:
    """As in Python 3.12: the folder stands where the modules of the standard library stood."""
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    source = (
        "import imp\nfrom distutils.util import strtobool\nfrom distutils.version import LooseVersion\n"
        "from distutils.spawn import find_executable\n"
        f"print(imp.load_source('named', {str(tmp_path / 'beside.py')!r}).VALUE, strtobool('Yes'), strtobool('off'))\n"
        "print(LooseVersion('1.10.0') > LooseVersion('1.8.5'), LooseVersion('1.8') < '1.8.5', bool(find_executable('sh')))\n"
    )
    environment = {**os.environ, "PYTHONPATH": modules.__path__[0]}
    done = subprocess.run(
        [sys.executable, "-S", "-c", source], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "7 1 0\nTrue True True\n"


def test_a_dropped_module_is_found_last_and_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    with old_names(Notes()):
        found = sys.meta_path[-1].find_spec("imp", None)
        assert found is not None
        assert importlib.util.module_from_spec(found).new_module("named").__name__ == "named"
        assert sys.meta_path[-1].find_spec("imperfect", None) is None
    assert capsys.readouterr().err == (
        "note: the module imp was removed; fluidtool provides the functions that old scripts use\n"
    )


def test_an_array_of_fetched_values_is_fetched() -> None:
    loss = fetched_array(np.array([0.5]))
    with old_names(Notes()):
        assert float(np.array(loss)) == 0.5
        assert math.isnan(np.asarray(LoDTensor(np.array([np.nan]))))
        assert type(np.array([loss, loss])) is FetchedArray
        assert type(np.array([1.0])) is np.ndarray
    assert type(np.array(loss)) is np.ndarray


def test_rows_of_different_lengths_are_objects_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    with old_names(Notes()):
        rows = np.array([[1], [2, 3]])
        assert (rows.dtype, rows.shape) == (np.dtype(object), (2,))
        with pytest.raises(ValueError, match="inhomogeneous"):
            np.array([[1], [2, 3]], dtype="float32")
    assert capsys.readouterr().err.startswith("note: numpy no longer accepts rows of different lengths")


def test_copy_false_copies_where_it_must() -> None:
    with old_names(Notes()):
        assert (np.array([1, 2], copy=False) == [1, 2]).all()
