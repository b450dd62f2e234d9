"""Random numbers by the native kernel: numpy's, bit for bit, and numpy's state afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool.runtime.engines.native import abi
from fluidtool.runtime.engines.native.extents import ExtentError
from fluidtool.runtime.engines.native.kernels import draws
from fluidtool.runtime.engines.native.kernels.direct import run_call
from fluidtool.runtime.engines.native.library import Library

KERNEL = draws.LEAST  # numbers that the kernel draws


def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that are made from now on."""
    made: list[Any] = []

    def noted(library: Library, arguments: Any, tasks: int) -> None:
        made.append(arguments)
        run_call(library, arguments, tasks)

    monkeypatch.setattr(draws, "run_call", noted)
    return made


@pytest.mark.parametrize("seed", [0, 5, 2**40 + 1])
@pytest.mark.parametrize("shape", [(KERNEL,), (KERNEL + 2,), (3, 1000, 70)])
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_numbers_and_the_state_are_those_of_numpy(
    seed: int, shape: tuple[int, ...], threads: int, native: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = calls(monkeypatch)
    monkeypatch.setattr(native, "threads", threads)
    ours, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
    for _ in range(3):  # from a fresh generator, then from where it stopped
        np.testing.assert_array_equal(draws.random(native, ours, shape), theirs.random(shape, np.float32))
        assert ours.bit_generator.state == theirs.bit_generator.state
    assert len(made) == 3


@pytest.mark.parametrize("tasks", [1, 2, 3, 64])
def test_numbers_do_not_depend_on_the_number_of_tasks(tasks: int, native: Library) -> None:
    generator, wanted = np.random.default_rng(1), np.random.default_rng(1).random(1000, np.float32)
    state, increment = (generator.bit_generator.state["state"][name] for name in ("state", "inc"))
    words = [state & draws.WORD, state >> 64, increment & draws.WORD, increment >> 64]
    out = np.empty(1000, np.float32)
    run_call(native, abi.Draw(generator=np.array(words, np.uint64), out=out, count=1000), tasks)
    np.testing.assert_array_equal(out, wanted)


def leftover() -> np.random.Generator:
    generator = np.random.default_rng(3)
    generator.random(1, np.float32)
    return generator


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (leftover, KERNEL),
        (lambda: np.random.default_rng(3), KERNEL + 1),
        (lambda: np.random.default_rng(3), KERNEL - 2),
        (lambda: np.random.Generator(np.random.MT19937(3)), KERNEL),
        (lambda: np.random.Generator(np.random.PCG64DXSM(3)), KERNEL),
    ],
    ids=["half a word is left", "an odd count", "few numbers", "a Mersenne twister", "another PCG64"],
)
def test_what_the_kernel_would_draw_otherwise_is_left_to_numpy(
    make: Any, count: int, native: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, ours, theirs = calls(monkeypatch), make(), make()
    for _ in range(2):
        np.testing.assert_array_equal(draws.random(native, ours, (count,)), theirs.random(count, np.float32))
    assert ours.random() == theirs.random()
    assert not made


def test_half_a_word_at_the_end_is_refused(native: Library) -> None:
    out = np.empty(7, np.float32)
    with pytest.raises(ExtentError, match="whole words"):
        run_call(native, abi.Draw(generator=np.zeros(4, np.uint64), out=out, count=7), 1)
