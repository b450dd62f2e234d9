"""`fluidtool exec`: a script runs as under `python`, with its own exit code and its own traceback."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import call, error_of, process


def execute(
    tmp_path: Path, source: str, *args: str, options: Sequence[str] = (), **env: str
) -> subprocess.CompletedProcess[Any]:
    (tmp_path / "script.py").write_text(source)
    done = process("exec", *options, "script.py", *args, env=env, cwd=tmp_path)
    done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    return done


def test_a_script_is_main_and_has_its_arguments_and_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    (folder / "beside.py").write_text("VALUE = 7\n")
    (folder / "script.py").write_text(
        "import sys, beside\nif __name__ == '__main__':\n    print(sys.argv, beside.VALUE, __file__)\n"
        "    assert sys.modules['__main__'].beside is beside\n"
    )
    done = process("exec", "inner/script.py", "--fetch", "a", "b", "-h", "--", "x", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == ("['inner/script.py', '--fetch', 'a', 'b', '-h', '--', 'x'] 7 inner/script.py\n")


def test_paddle_is_there_and_a_program_runs(tmp_path: Path) -> None:
    done = execute(
        tmp_path,
        "import paddle\n"
        "import paddle.fluid as fluid\n"
        "x = fluid.layers.data('x', [2])\n"
        "y = fluid.layers.reduce_sum(x)\n"
        "exe = fluid.Executor(fluid.CPUPlace())\n"
        "print(paddle.__version__, exe.run(feed={'x': __import__('numpy').ones((3, 2), 'float32')}, fetch_list=[y]))\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1.8.5 [array([6.], dtype=float32)]")


@pytest.mark.parametrize(("statement", "code"), [("sys.exit(3)", 3), ("sys.exit()", 0), ("sys.exit('no')", 1)])
def test_the_exit_code_is_the_scripts(tmp_path: Path, statement: str, code: int) -> None:
    done = execute(tmp_path, f"import sys\n{statement}\n")
    assert done.returncode == code
    assert done.stderr == ("no\n" if code == 1 else "")


def test_a_traceback_shows_the_frames_of_the_script_alone(tmp_path: Path) -> None:
    done = execute(tmp_path, "def inner():\n    return 1 // 0\n\ninner()\n")
    assert done.returncode == 1
    assert done.stdout == ""
    assert [line for line in done.stderr.splitlines() if "^" not in line and "~" not in line] == [
        "Traceback (most recent call last):",
        '  File "script.py", line 4, in <module>',
        "    inner()",
        '  File "script.py", line 2, in inner',
        "    return 1 // 0",
        "ZeroDivisionError: integer division or modulo by zero",
    ]


def test_a_package_that_came_with_paddle_is_named(tmp_path: Path) -> None:
    done = execute(tmp_path, "import sys\nsys.modules['six'] = None\nfrom six.moves import zip\n")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "note: six was installed with Paddle, fluidtool does not need it: pip install six"
    )


def test_frames_of_fluidtool_are_shown_when_asked_for(tmp_path: Path) -> None:
    done = execute(tmp_path, "1 // 0\n", FLUIDTOOL_DEBUG="1")
    assert done.returncode == 1
    assert "run_source" in done.stderr
    assert done.stderr.count("ZeroDivisionError") == 1


def test_a_callback_that_raises_within_fluidtool_is_the_scripts(tmp_path: Path) -> None:
    done = execute(
        tmp_path,
        "import paddle\ndef bad():\n    raise KeyError('mine')\n    yield\n"
        "for item in paddle.batch(paddle.reader.shuffle(bad, 3), 2)():\n    pass\n",
    )
    assert done.returncode == 1
    assert "reader_decorators" not in done.stderr and "KeyError: 'mine'" in done.stderr


def test_an_error_of_fluidtool_is_one_line_with_the_line_of_the_script(tmp_path: Path) -> None:
    done = execute(tmp_path, "import paddle.fluid as fluid\n\nfluid.layers.fc(input=3, size=4)\n")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: script.py, line 3: fluid.layers.fc(input=3, size=4): ")
    assert line.endswith("[FT230]")


def test_a_script_may_catch_our_errors_as_python_errors(tmp_path: Path) -> None:
    done = execute(
        tmp_path,
        "import paddle.fluid as fluid\ntry:\n    fluid.layers.fc(input=3, size=4)\nexcept TypeError:\n    print('caught')\n"
        "try:\n    import paddle.vision\nexcept ImportError:\n    print('none')\n",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "caught\nnone\n", "")


def test_a_name_that_is_not_offered(tmp_path: Path) -> None:
    done = execute(tmp_path, "import paddle.fluid as fluid\nfluid.layers.embeding\n")
    assert done.returncode == 4
    assert "script.py, line 2: fluid.layers.embeding: paddle.fluid.layers has no 'embeding' in fluidtool" in done.stderr
    assert "did you mean embedding?" in done.stderr


def test_an_import_that_is_not_offered(tmp_path: Path) -> None:
    done = execute(tmp_path, "from paddle.vision import models\n")
    assert done.returncode == 4
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: script.py, line 1: from paddle.vision import models: paddle has no 'vision'")
    assert line.endswith("[FT411]")


def test_a_syntax_error_is_shown_as_python_shows_it(tmp_path: Path) -> None:
    done = execute(tmp_path, "print 'old'\n")
    assert done.returncode == 1
    assert "SyntaxError: Missing parentheses" in done.stderr
    assert 'File "script.py", line 1' in done.stderr


def test_a_script_that_is_missing(tmp_path: Path) -> None:
    result = call("exec", tmp_path / "none.py")
    assert result.exit_code == 3
    assert "none.py: No such file or directory" in error_of(result)


def test_a_file_that_the_script_misses_is_the_scripts_failure(tmp_path: Path) -> None:
    done = execute(tmp_path, "open('none.txt')\n")
    assert done.returncode == 1
    assert "FileNotFoundError" in done.stderr and "script.py" in done.stderr


def test_without_a_script() -> None:
    result = call("exec")
    assert result.exit_code == 2
    assert "SCRIPT" in error_of(result)


def test_an_error_names_the_line_of_the_script_not_one_of_pythons_library(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    source = (
        "import contextlib, paddle.fluid as fluid\nx = fluid.layers.data('x', [1])\nexe = fluid.Executor(fluid.CPUPlace())\n"
        "with contextlib.ExitStack() as stack:\n    fluid.io.save_inference_model('taken', ['x'], [x * 2.0], exe)\n"
    )
    done = execute(tmp_path, source)
    assert done.returncode == 3
    assert (
        "script.py, line 5: fluid.io.save_inference_model('taken', ['x'], [x * 2.0], exe): cannot write" in done.stderr
    )


GPUS = """
import paddle.fluid as fluid
from paddle.fluid.core import CUDAPlace
loss = fluid.layers.fill_constant([1], "float32", 3.0)
places = fluid.cuda_places([0, 1])
print(fluid.is_compiled_with_cuda(), fluid.core.get_cuda_device_count(), len(places), isinstance(places[0], CUDAPlace))
print(fluid.Executor(CUDAPlace(0)).run(fetch_list=[loss]))
print(fluid.ParallelExecutor(use_cuda=True, main_program=fluid.default_main_program()).run([loss.name]))
"""


def test_gpus_are_the_cpu_when_asked_for(tmp_path: Path) -> None:
    done = execute(tmp_path, GPUS, options=["--device", "cpu"], CPU_NUM="1")
    assert done.stdout.splitlines() == ["True 1 2 False", *["[array([3.], dtype=float32)]"] * 2]
    assert done.stderr == "note: GPUs are replaced by the CPU (--device cpu)\n"


def test_places_of_gpus_are_the_cpu_when_asked_for(tmp_path: Path) -> None:
    script = """
import paddle.fluid as fluid
places = fluid.layers.get_places(device_count=2, device_type="CUDA")
print(fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.fill_constant([1], "float32", 3.0)]))
"""
    done = execute(tmp_path, script, options=["--device", "cpu"])
    assert done.stdout == "[array([3.], dtype=float32)]\n"
    assert done.stderr == "note: GPUs are replaced by the CPU (--device cpu)\n"


def test_places_of_the_cpu_need_no_note(tmp_path: Path) -> None:
    script = "import paddle.fluid as fluid\nfluid.layers.get_places(device_count=2, device_type='CPU')\n"
    assert execute(tmp_path, script, options=["--device", "cpu"]).stderr == ""


def test_another_device_is_the_scripts_own_affair(tmp_path: Path) -> None:
    done = execute(tmp_path, "", options=["--device", "gpu"])
    assert done.returncode == 2
    assert "--device must be cpu, found 'gpu'" in done.stderr


SCRIPTS = Path(__file__).parent / "scripts"


def test_linear_regression_of_old_runs_and_saves_its_model(tmp_path: Path) -> None:
    env = {"FLUIDTOOL_DATASET": "synthetic"}
    done = process("exec", SCRIPTS / "fit_a_line.py", "8", "saved", env=env, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    costs = [float(line.rsplit(" ", 1)[1]) for line in done.stdout.decode().splitlines()]
    assert len(costs) == 8
    assert costs[-1] < 1 < 4 < costs[0]
    assert (tmp_path / "saved/__model__").is_file() and (tmp_path / "saved/fc_0.w_0").is_file()


def test_digits_of_old_are_learnt(tmp_path: Path) -> None:
    done = process("exec", SCRIPTS / "recognize_digits.py", env={"FLUIDTOOL_DATASET": "synthetic"}, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert float(done.stdout.split()[1]) > 0.5


def test_a_script_whose_data_is_not_there(tmp_path: Path) -> None:
    env = {"PADDLE_DATASET_HOME": str(tmp_path), "FLUIDTOOL_DATASET": ""}
    done = process("exec", SCRIPTS / "recognize_digits.py", env=env, cwd=tmp_path)
    assert done.returncode == 3
    (line,) = done.stderr.decode().splitlines()
    assert "recognize_digits.py, line 27: train_reader = " in line
    assert f"needs the file {tmp_path}/mnist/train-images-idx3-ubyte.gz" in line


@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "1 // 0"])
def test_a_file_that_is_left_open_is_written_out(tmp_path: Path, ending: str) -> None:
    execute(
        tmp_path, f"import sys\nfile = open('out', 'w')\nfile.write('kept')\ndef reader():\n    return file\n{ending}\n"
    )
    assert (tmp_path / "out").read_text() == "kept"


def test_the_end_of_an_epoch_keeps_no_frame_of_the_script_alive(tmp_path: Path) -> None:
    source = (
        "import numpy as np\nimport paddle.fluid as fluid\n"
        "def predict():\n"
        "    x = fluid.data('x', [None, 2], 'float32')\n"
        "    loader = fluid.io.DataLoader.from_generator(feed_list=[x], capacity=2, iterable=False)\n"
        "    y = fluid.layers.reduce_sum(x)\n"
        "    program = fluid.CompiledProgram(fluid.default_main_program())\n"
        "    exe = fluid.Executor(fluid.CPUPlace())\n"
        "    loader.set_batch_generator(lambda: iter([[np.ones((3, 2), 'float32')]]), places=fluid.CPUPlace())\n"
        "    loader.start()\n"
        "    file = open('out', 'w')\n"
        "    while True:\n"
        "        try:\n"
        "            file.write(str(exe.run(program, fetch_list=[y.name])[0][0]))\n"
        "        except fluid.core.EOFException:\n"
        "            loader.reset()\n"
        "            break\n"
        "predict()\n"
        "print(open('out').read())\n"
    )
    assert execute(tmp_path, source).stdout == "6.0\n"
