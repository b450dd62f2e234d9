"""Names and modules that Python, numpy and Pillow have dropped: there while an old script runs, and gone afterwards."""

from __future__ import annotations

import collections
import importlib.util
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
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


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda rows: np.copy(rows).tolist(), [[1], [2, 3]]),
        (lambda rows: np.asanyarray(rows).tolist(), [[1], [2, 3]]),
        (lambda rows: np.take(rows, [1]).tolist(), [[2, 3]]),
        (lambda rows: np.repeat(rows, 2).tolist(), [[1], [1], [2, 3], [2, 3]]),
        (lambda rows: np.shape(rows), (2,)),  # noqa: PLW0108 (looked up when it is called)
        (lambda rows: np.size(rows), 2),  # noqa: PLW0108
        (lambda rows: np.ndim(rows), 1),  # noqa: PLW0108
    ],
)
def test_functions_make_objects_of_rows_of_different_lengths(
    call: Callable[[object], object], expected: object, capsys: pytest.CaptureFixture[str]
) -> None:
    with old_names(Notes()):
        assert call([[1], [2, 3]]) == expected
    assert capsys.readouterr().err == (
        "note: numpy no longer accepts rows of different lengths; fluidtool makes an array of objects\n"
    )


def test_rows_of_different_lengths_are_saved(tmp_path: Path) -> None:
    with old_names(Notes()):
        np.save(tmp_path / "rows.npy", [[1], [2, 3]])
    assert np.load(tmp_path / "rows.npy", allow_pickle=True).tolist() == [[1], [2, 3]]


def test_other_errors_of_these_functions_are_raised_as_they_are() -> None:
    with old_names(Notes()):
        with pytest.raises(ValueError, match="operands could not be broadcast"):
            np.repeat([1, 2], [1, 2, 3])
        with pytest.raises(IndexError):
            np.take([1], 3)


def test_copy_false_copies_where_it_must() -> None:
    with old_names(Notes()):
        assert (np.array([1, 2], copy=False) == [1, 2]).all()


def test_functions_of_numpy_take_the_arguments_of_old(capsys: pytest.CaptureFixture[str]) -> None:
    with old_names(Notes()):
        assert np.fromstring(b"\x01\x02", dtype=np.uint8).tolist() == [1, 2]
        assert np.fromstring("1 2", sep=" ").tolist() == [1.0, 2.0]
        assert np.vstack(map(np.array, [[1], [2]])).tolist() == [[1], [2]]
        assert np.stack(np.array(each) for each in ([1], [2])).shape == (2, 1)
        assert np.sum(each for each in (1, 2)) == 3
        assert np.percentile([1, 2], 50, interpolation="lower") == 1  # type: ignore[call-overload]
        assert np.histogram([1, 2], bins=2, normed=True)[0].tolist() == [1.0, 1.0]  # type: ignore[call-overload]
    notes = capsys.readouterr().err.splitlines()
    assert "note: numpy.fromstring no longer reads bytes; fluidtool uses numpy.frombuffer and copies" in notes
    assert "note: percentile no longer takes interpolation; fluidtool passes it as method" in notes
    with pytest.raises(ValueError, match="binary mode"):
        np.fromstring(b"\x01\x02", dtype=np.uint8)


def test_what_is_read_from_bytes_can_be_written_to() -> None:
    with old_names(Notes()):
        read = np.fromstring(b"\x01\x02", np.uint8)
    read[0] = 9
    assert read.tolist() == [9, 2]


def test_integers_lose_the_bits_that_a_type_has_no_room_for(capsys: pytest.CaptureFixture[str]) -> None:
    with old_names(Notes()):
        assert np.array([-1, 300], dtype="uint8").tolist() == [255, 44]
        assert np.array([-1], np.uint8).tolist() == [255]
        with pytest.raises(OverflowError):
            np.array([2**70]).astype(int)
    assert capsys.readouterr().err.count("upper bits") == 1


def test_arrays_and_scalars_have_their_old_methods_and_lose_them_again() -> None:
    with old_names(Notes()):
        array = np.arange(6, dtype="int16").reshape(2, 3)
        assert array.tostring() == array.tobytes()  # type: ignore[attr-defined]
        assert array.T.tostring("A") == array.T.tobytes("A")  # type: ignore[attr-defined]
        assert np.float32(1.5).tostring() == np.float32(1.5).tobytes()  # type: ignore[attr-defined]
        assert array.ptp(axis=0).tolist() == [3, 3, 3]  # type: ignore[attr-defined]
        array.itemset((1, 2), 9)  # type: ignore[attr-defined]
        array.itemset(0, 7)  # type: ignore[attr-defined]
        assert (array[1, 2], array[0, 0]) == (9, 7)
        assert array.newbyteorder()[0, 0] == 7 << 8  # type: ignore[attr-defined]
        assert fetched_array(np.ones(2)).ptp() == 0
    for kind in (np.ndarray, np.generic):
        assert not hasattr(kind, "tostring")
        assert not hasattr(kind, "ptp")


def test_scalars_in_a_list_print_as_numbers() -> None:
    with old_names(Notes()):
        assert repr([np.float32(1.5), np.int64(2)]) == "[1.5, 2]"
    assert repr(np.int64(2)) == "np.int64(2)"


def test_common_types_of_old() -> None:
    with old_names(Notes()):
        assert np.find_common_type([np.float32], [np.int64, np.float64]) == np.float32
        assert np.find_common_type([np.int32], [np.float32]) == np.float32
        assert np.cast["int32"](3.7) == 3
        assert np.asfarray([1]).dtype == np.float64
        assert np.alen(3) == 1
        assert np.isneginf(np.NINF)


def test_yaml_loads_without_a_loader(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    done = execute(
        tmp_path, "import yaml\nprint(yaml.load('a: [1, 2.5]'), yaml.load('b: 1', Loader=yaml.SafeLoader))\n"
    )
    assert done.stdout == "{'a': [1, 2.5]} {'b': 1}\n"
    assert "FullLoader" in done.stderr


def test_pictures_of_scipy(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    pytest.importorskip("PIL")
    source = (
        "import numpy as np\nfrom scipy.misc import imread, imresize, imsave\n"
        "colors = np.arange(27, dtype='uint8').reshape(3, 3, 3)\n"
        "imsave('a.png', colors)\n"
        "print((imread('a.png') == colors).all(), imread('a.png', flatten=True).dtype)\n"
        "imsave('b.png', np.array([[0.0, 0.5], [1.0, 0.25]]))\n"
        "print(imread('b.png').tolist())\n"
        "print(imresize(colors, (6, 4)).shape, imresize(colors, 200).shape, imresize(colors, 0.34).shape)\n"
    )
    done = execute(tmp_path, source)
    assert done.stdout == "True float32\n[[0, 128], [255, 64]]\n(6, 4, 3) (6, 6, 3) (1, 1, 3)\n"


def test_python_takes_what_it_took(tmp_path: Path) -> None:
    source = (
        "import configparser, io, json, random, threading\nimport xml.etree.ElementTree as ET\n"
        "print(json.loads('{\"a\": 1}', encoding='utf8'), json.load(io.StringIO('[2]'), encoding='utf8'))\n"
        "print(sorted(random.sample({1, 2, 3}, 3)), threading.Thread().isAlive())\n"
        "parser = configparser.ConfigParser()\nparser.readfp(io.StringIO('[a]\\nb = 1'))\nprint(parser.get('a', 'b'))\n"
        "root = ET.fromstring('<a><b/><c><b/></c></a>')\n"
        "print([each.tag for each in root.getchildren()], len(root.getiterator('b')), len(ET.ElementTree(root).getiterator()))\n"
    )
    done = execute(tmp_path, source)
    assert done.stdout == "{'a': 1} [2]\n[1, 2, 3] False\n1\n['b', 'c'] 2 4\n"
    assert done.stderr.count("has taken no encoding") == 2


def test_a_text_has_a_size(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    source = (
        "from PIL import Image, ImageDraw, ImageFont\n"
        "font = ImageFont.load_default()\ndraw = ImageDraw.Draw(Image.new('RGB', (9, 9)))\n"
        "box = draw.textbbox((0, 0), 'text', font)\n"
        "print(draw.textsize('text', font) == font.getsize('text') == tuple(map(int, box[2:])), font.getsize('text')[0] > 9)\n"
    )
    assert execute(tmp_path, source).stdout == "True True\n"


def test_an_unknown_argument_is_still_one() -> None:
    import json

    with old_names(Notes()), pytest.raises(TypeError):
        json.loads("1", encodin="utf8")
    with pytest.raises(TypeError):
        json.loads("1", encoding="utf8")


def test_reshape_takes_a_newshape_and_open_universal_newlines(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a\r\n")
    with old_names(Notes()):
        assert np.reshape(np.arange(4), newshape=[2, 2]).shape == (2, 2)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="nosuch"):
            np.reshape(np.arange(4), nosuch=[2, 2])  # type: ignore[call-overload]
        with open(tmp_path / "lines", "rU") as file:  # noqa: UP015
            assert file.read() == "a\n"
    with pytest.raises(ValueError, match="invalid mode"):
        open(tmp_path / "lines", "rU")  # noqa: SIM115, UP015


def test_pillow_takes_colors_of_floats(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    script = """
import numpy as np
from PIL import Image, ImageDraw
image = Image.new("RGB", (20, 20))
ImageDraw.Draw(image).rectangle([(0, 0), (9, 9)], fill=tuple(np.array([255, 0.5, 7], np.float32)))
print(image.getpixel((3, 3)))
"""
    assert execute(tmp_path, script).stdout == "(255, 0, 7)\n"
