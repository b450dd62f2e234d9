"""The driver of Paddle's unit tests, on tests that are made here; what Paddle did is given."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.public.runs import Engine
from tests.public.units import Kept, Outcome, Outcomes, files_of, main, run

TESTS = """
import unittest
import paddle.fluid as fluid

class TestLayers(unittest.TestCase):
    def test_fine(self):
        fluid.layers.fc(fluid.data("x", [2, 3], "float32"), 4)

    def test_missing(self):
        fluid.layers.nosuch

    def test_part(self):
        for number in range(2):
            with self.subTest(number):
                self.assertEqual(number, 0)

    @unittest.skip("not today")
    def test_skipped(self):
        pass

class TestSetUp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise KeyError("nothing")

    def test_after(self):
        pass

if __name__ == "__main__":
    unittest.main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tests of which Paddle passes all."""
    (tmp_path / "unittests").mkdir()
    (tmp_path / "unittests" / "test_it.py").write_text(TESTS)
    names = ["TestLayers.test_fine", "TestLayers.test_missing", "TestLayers.test_part", "TestLayers.test_skipped"]
    tests = {f"__main__.{name}": Outcome("passed") for name in [*names, "TestSetUp.test_after"]}
    Kept(tmp_path / "kept").write(Path("unittests/test_it.py"), Outcomes(tests, "completed"))
    return tmp_path


def test_failures_are_counted_by_message(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder), "--paddle", "none"]) == 1
    text = capsys.readouterr().out
    assert text.startswith("unittests/test_it.py: 1 of 5\n")
    assert "1 NotOfferedError: paddle.fluid.layers has no 'nosuch'" in text
    assert "1 AssertionError: N != N\n    unittests/test_it.py::TestLayers.test_part" in text
    assert "1 not today\n" in text
    assert "1 KeyError: 'nothing'\n    unittests/test_it.py::TestSetUp.test_after" in text
    assert text.endswith("1 of 5 tests that Paddle passes, in 1 files, 0 of them whole (1 files in all)\n")


def test_only_what_paddle_passes_counts(folder: Path) -> None:
    tests = {
        "__main__.TestLayers.test_fine": Outcome("passed"),
        "__main__.TestLayers.test_missing": Outcome("failed", "why"),
    }
    Kept(folder / "kept").write(Path("unittests/test_it.py"), Outcomes(tests, "completed"))
    assert main([str(folder), "--paddle", "none"]) == 0


def test_a_test_that_did_not_run_ends_as_the_process() -> None:
    assert Outcomes({}, "out of time").of("t") == Outcome("failed", "not run: out of time")


def test_files_outside_do_not_count(tmp_path: Path) -> None:
    texts = {
        "a": "from op_test import OpTest",
        "b": "fluid.dygraph.guard()",
        "c": "core.ProgramDesc()",
        "d": "fluid.data",
    }
    texts |= {"e": "from helper import base", "f": "from helpers_helper import base", "g": "import alone"}
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "helper.py").write_text("import paddle.fluid.dygraph as dygraph\nimport helpers_helper")
    (tmp_path / "book" / "helpers_helper.py").write_text("from helper import base")
    (tmp_path / "book" / "alone.py").write_text(
        "import alone, os  # what is in 'fluid.dygraph' elsewhere does not matter"
    )
    for name, text in texts.items():
        (tmp_path / "book" / f"test_{name}.py").write_text(text)
    assert files_of(tmp_path) == [Path("book/test_d.py"), Path("book/test_g.py")]


def test_a_file_that_takes_too_much_of_a_processor_is_out_of_time(tmp_path: Path) -> None:
    (tmp_path / "test_endless.py").write_text("while True: pass")
    assert run(Engine("python", (sys.executable,), ""), tmp_path / "test_endless.py", 0.5).ending == "out of time"


def test_a_file_that_waits_is_not_out_of_time(tmp_path: Path) -> None:
    (tmp_path / "test_waits.py").write_text("import time; time.sleep(1.2)")
    assert run(Engine("python", (sys.executable,), ""), tmp_path / "test_waits.py", 1).ending == "completed"
