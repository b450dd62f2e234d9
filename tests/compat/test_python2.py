"""`fluidtool exec --python2`: scripts in Python 2 run, translated while they are loaded."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fluidtool.compat.python2 import divide, translated
from tests.cli.support import process
from tests.compat.test_exec import execute

NOTE = "note: --python2: the script and its modules are translated by fissix; text is Unicode\n"


@pytest.fixture(autouse=True)
def _fissix() -> None:
    pytest.importorskip("fissix")


def test_a_script_and_its_modules_run(tmp_path: Path) -> None:
    beside = "def items(d):\n    return [(k, v / 2) for k, v in d.iteritems()]\nprint 'beside'\n"
    (tmp_path / "beside.py").write_text(beside)
    script = (
        "from beside import items\nimport paddle.fluid as fluid\nfor i in xrange(1):\n    print i, items({u'a': 7})\n"
        "n = 9\nn /= 2\nprint n, 1.0 / 2, fluid.layers.fc.__name__\n"
    )
    done = execute(tmp_path, script, options=["--python2"])
    assert (done.returncode, done.stderr) == (0, NOTE)
    assert done.stdout == "beside\n0 [('a', 3)]\n4 0.5 fc\n"
    assert (tmp_path / "beside.py").read_text() == beside


def test_division_is_true_where_the_file_says_so(tmp_path: Path) -> None:
    done = execute(tmp_path, "from __future__ import division\nprint 7 / 2\n", options=["--python2"])
    assert done.stdout == "3.5\n"


def test_lines_of_tracebacks_are_those_of_the_file(tmp_path: Path) -> None:
    done = execute(tmp_path, "print 'a'\n\n\nraise ValueError, 'b'\n", options=["--python2"])
    assert done.returncode == 1
    assert 'File "script.py", line 4' in done.stderr and "ValueError: b" in done.stderr


def test_what_is_no_python_at_all(tmp_path: Path) -> None:
    done = execute(tmp_path, "def (:\n", options=["--python2"])
    assert done.returncode == 1
    assert "SyntaxError: script.py is not Python 2" in done.stderr


def test_packages_elsewhere_that_are_python_3_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/modern.py").write_text("def half(n, *, d=2):\n    return n / d\n")
    (tmp_path / "elsewhere/ancient.py").write_text("def half(n):\n    print 'half'\n    return n / 2\n")
    (tmp_path / "inner").mkdir()
    script = "import modern, ancient\nprint modern.half(1), ancient.half(1)\n"
    (tmp_path / "inner/run.py").write_text(script)
    path = os.pathsep.join(filter(None, [str(tmp_path / "elsewhere"), os.environ.get("PYTHONPATH")]))
    done = process("exec", "--python2", "inner/run.py", env={"PYTHONPATH": path}, cwd=tmp_path)
    assert done.stdout == b"half\n0.5 0\n"


@pytest.mark.parametrize(
    ("left", "right", "quotient"), [(7, 2, 3), (-7, 2, -4), (7.0, 2, 3.5), (np.int64(7), 2, 3), (True, 2, 0)]
)
def test_division(left: float, right: float, quotient: float) -> None:
    assert divide(left, right) == quotient


def test_division_of_arrays_of_integers() -> None:
    assert divide(np.array([7, -7]), 2).tolist() == [3, -4]
    assert divide(np.array([7.0]), 2).tolist() == [3.5]


def test_a_file_in_another_encoding() -> None:
    source = "# -*- coding: latin-1 -*-\nword = 'é'\n".encode("latin-1")
    names: dict[str, str] = {}
    exec(compile(translated(source, "script.py"), "script.py", "exec"), names)
    assert names["word"] == "é"
