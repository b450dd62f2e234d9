"""Python processes that a script starts under `fluidtool exec`: they know paddle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fluidtool.compat.children import DIALECT, FOLDER, HOME, ROOT, children_know_paddle
from fluidtool.compat.script import run_script
from tests.compat.test_exec import execute

CHILD = "import numpy as np, paddle.fluid as fluid\nprint(fluid.layers.fc.__name__, np.float(1), {})\n"


def parent(code: str) -> str:
    return f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {code!r}], check=True)\n"


def test_a_python_that_the_script_starts_imports_paddle(tmp_path: Path) -> None:
    done = execute(tmp_path, parent(CHILD.format("fluid.core.is_compiled_with_cuda()")))
    assert (done.returncode, done.stdout) == (0, "fc 1.0 False\n")
    assert done.stderr == "note: numpy.float was removed; fluidtool uses float instead\n"


def test_gpus_are_taken_for_the_cpu_there_too(tmp_path: Path) -> None:
    done = execute(tmp_path, parent(CHILD.format("fluid.CUDAPlace(0)")), options=["--device", "cpu"])
    assert (done.returncode, done.stdout) == (0, "fc 1.0 CPUPlace\n")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_of_multiprocessing_import_the_script_again(tmp_path: Path, method: str) -> None:
    done = execute(
        tmp_path,
        "import multiprocessing\nimport paddle.fluid as fluid\n\n"
        "def work(number):\n    return fluid.layers.fc.__name__ * number\n\n"
        "if __name__ == '__main__':\n"
        f"    with multiprocessing.get_context({method!r}).Pool(1) as pool:\n        print(pool.map(work, [1, 2]))\n",
    )
    assert (done.returncode, done.stdout) == (0, "['fc', 'fcfc']\n")


def test_a_python_that_does_not_import_paddle_does_not_import_fluidtool(tmp_path: Path) -> None:
    done = execute(tmp_path, parent("import sys; print(any(name.startswith('fluidtool') for name in sys.modules))"))
    assert (done.returncode, done.stdout) == (0, "False\n")


def test_the_environment_is_as_before_afterwards(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import os\nassert os.environ['FLUIDTOOL_CHILDREN'] == 'any'\n")
    before = dict(os.environ)
    run_script(tmp_path / "script.py")
    assert dict(os.environ) == before


@pytest.mark.parametrize(("cpu", "dialect"), [(True, "cpu"), (False, "any")])
def test_what_children_find_in_the_environment(monkeypatch: pytest.MonkeyPatch, cpu: bool, dialect: str) -> None:
    monkeypatch.setenv("PYTHONPATH", "/before")
    with children_know_paddle(cpu):
        assert os.environ["PYTHONPATH"] == os.pathsep.join([str(FOLDER), "/before"])
        assert (os.environ[DIALECT], os.environ[HOME]) == (dialect, str(ROOT))
    assert os.environ["PYTHONPATH"] == "/before"


def start(tmp_path: Path, code: str) -> str:
    """What a Python prints that has a `sitecustomize` of the user's in its path, after ours."""
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.customized = True\n")
    with children_know_paddle(cpu=False):
        path = os.pathsep.join([str(FOLDER), str(tmp_path)])
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
    return done.stdout


def test_the_users_sitecustomize_runs_as_well(tmp_path: Path) -> None:
    assert start(tmp_path, "import paddle; print(customized, paddle.__version__)") == "True 1.8.5\n"


def test_its_folder_is_no_place_to_import_from(tmp_path: Path) -> None:
    assert start(tmp_path, f"import sys; print({str(FOLDER)!r} in sys.path)") == "False\n"
