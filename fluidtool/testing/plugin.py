"""The pytest plugin: golden outputs of models, kept in files beside the tests.

    def test_digits(fluidtool_golden):
        fluidtool_golden("models/digits", "x.npy")

`pytest --fluidtool-update` writes the outputs to `golden/<test>.npz` in the folder of the test; any other run compares. pytest
finds this module by its entry point; nothing else of fluidtool is imported before a test asks for the fixture's value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fluidtool.records import dataclass

if TYPE_CHECKING:
    from fluidtool.model import Model

UPDATE = "--fluidtool-update"
LONGEST = 100  # characters of a file's name


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare --fluidtool-update."""
    group = parser.getgroup("fluidtool")
    group.addoption(UPDATE, action="store_true", help="Write the golden outputs of models instead of comparing them.")


@pytest.fixture
def fluidtool_golden(request: pytest.FixtureRequest) -> GoldenOutputs:
    """Compares the outputs of a model with those that `--fluidtool-update` wrote: `fluidtool_golden(model, inputs)`."""
    return GoldenOutputs(request.path.parent / "golden", request.node.name, request.config.getoption(UPDATE))


@dataclass(slots=True)
class GoldenOutputs:
    """The golden outputs of one test, in a file for each call."""

    folder: Path
    test: str
    update: bool
    used: set[Path] = field(default_factory=set)

    def __call__(
        self,
        model: Model | str | Path,
        inputs: Any,
        *,
        name: str = "",
        rtol: float = 1e-4,
        atol: float = 1e-5,
        lods: Sequence[str] | str = (),
    ) -> None:
        """Raise AssertionError if outputs differ from the golden ones, as `fluidtool.testing.assert_model_outputs` does.

        name: tells the calls of one test apart. A missing file fails the test, and so does a second call for the same file.
        """
        from fluidtool.io.arrays import write_archive
        from fluidtool.testing import assert_model_outputs, model_outputs

        __tracebackhide__ = True
        path = self.folder / f"{file_name(f'{self.test}-{name}' if name else self.test)}.npz"
        if path in self.used:
            pytest.fail(f"{path} belongs to another call of this test; give this one a name=", pytrace=False)
        self.used.add(path)
        if self.update:
            write_archive(path, model_outputs(model, inputs, lods=lods), overwrite=True)
        elif not path.is_file():
            pytest.fail(f"there are no golden outputs at {path}; write them: pytest {UPDATE}", pytrace=False)
        else:
            assert_model_outputs(model, inputs, path, rtol, atol, lods=lods)


def file_name(test: str) -> str:
    """A test's name as that of a file: without what a file system may refuse, and told apart by a hash where that cuts."""
    plain = re.sub(r"[^\w.\[\]-]", "_", test, flags=re.ASCII)[:LONGEST]
    return plain if plain == test else f"{plain}-{sha256(test.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
