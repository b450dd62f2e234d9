"""Sums with fewer bytes: what is rounded, what is kept for the next step, and what that does to training."""

from __future__ import annotations

import numpy as np
import pytest

from fluidtool.distribute.collective.buckets import Sums
from fluidtool.distribute.collective.communicator import Communicator
from fluidtool.distribute.collective.compression import compression_of
from fluidtool.distribute.collective.threads import run_ranks
from fluidtool.errors import UsageError
from tests.distribute.collective.support import train_threads, transpiled

RANKS = 3
UNITS = {"fp16": 2.0**-11, "bf16": 2.0**-8}


def gradient(rank: int, size: int = 1001) -> np.ndarray:
    return np.random.default_rng(rank).normal(size=size).astype("float32")


def summed(kind: str, size: int = 1001, ranks: int = RANKS) -> list[np.ndarray]:
    def work(ring: Communicator) -> np.ndarray:
        compression = compression_of({"FLUIDTOOL_COLLECTIVE_COMPRESSION": kind})
        return Sums(ring, 1 << 20, compression).of([gradient(ring.rank, size)])[0]

    return run_ranks(ranks, work)


@pytest.mark.parametrize("size", [1, 2, 1001])
@pytest.mark.parametrize("kind", list(UNITS))
def test_halves_are_rounded_once_on_the_way_out_and_once_back(kind: str, size: int) -> None:
    exact = sum(gradient(rank, size).astype("float64") for rank in range(RANKS))
    bound = sum(np.abs(gradient(rank, size)) for rank in range(RANKS)) + np.abs(exact)
    for found in summed(kind, size):
        assert (np.abs(found - exact) <= 1.01 * UNITS[kind] * bound + 1e-6).all()


@pytest.mark.parametrize("kind", ["fp16", "bf16", "topk:0.1"])
def test_all_ranks_get_the_same_bits(kind: str) -> None:
    found = summed(kind)
    for array in found[1:]:
        np.testing.assert_array_equal(array, found[0])


@pytest.mark.parametrize("kind", list(UNITS))
def test_halves_keep_nan_and_infinity(kind: str) -> None:
    def work(ring: Communicator) -> np.ndarray:
        compression = compression_of({"FLUIDTOOL_COLLECTIVE_COMPRESSION": kind})
        return Sums(ring, 64, compression).of([np.array([np.nan, np.inf, -np.inf, 1], "float32")])[0]

    for found in run_ranks(2, work):
        np.testing.assert_array_equal(found, [np.nan, np.inf, -np.inf, 2])


def test_fp16_takes_what_is_too_large_for_it_as_its_largest_number() -> None:
    def work(ring: Communicator) -> np.ndarray:
        compression = compression_of({"FLUIDTOOL_COLLECTIVE_COMPRESSION": "fp16"})
        return Sums(ring, 64, compression).of([np.array([1e6 if ring.rank == 0 else 0], "float32")])[0]

    assert [float(found[0]) for found in run_ranks(2, work)] == [65504.0, 65504.0]


@pytest.mark.parametrize("kind", list(UNITS))
def test_halves_move_half_of_the_bytes(kind: str) -> None:
    def work(ring: Communicator) -> int:
        before = ring.bytes_moved
        compression = compression_of({"FLUIDTOOL_COLLECTIVE_COMPRESSION": kind})
        Sums(ring, 1 << 20, compression).of([np.zeros(1000, "float32")])
        return ring.bytes_moved - before

    assert run_ranks(2, work) == [3000, 3000]  # 2000 to the others, 1000 of the own part back


def test_the_largest_elements_are_sent_and_the_rest_is_kept_for_the_next_step() -> None:
    def work(ring: Communicator) -> list[np.ndarray]:
        compression = compression_of({"FLUIDTOOL_COLLECTIVE_COMPRESSION": "topk:0.25"})
        sums = Sums(ring, 64, compression)
        own = np.array([1, 2, 3, 4] if ring.rank == 0 else [0, 0, -9, 0], "float32")
        return [sums.of([own])[0].copy(), sums.of([own])[0].copy()]

    for first, second in run_ranks(2, work):
        np.testing.assert_array_equal(first, [0, 0, -9, 4])
        np.testing.assert_array_equal(second, [0, 0, 6 - 9, 0])  # rank 0: [2, 4, 6, 4]


def test_nothing_is_lost_in_the_long_run() -> None:
    """After enough steps the sums add up to the gradients, less one remainder for each rank."""

    def work(ring: Communicator) -> np.ndarray:
        compression = compression_of({"FLUIDTOOL_COLLECTIVE_COMPRESSION": "topk:0.1"})
        sums = Sums(ring, 1 << 20, compression)
        return np.sum([sums.of([gradient(ring.rank, 50)])[0] for _ in range(400)], axis=0)

    exact = 400 * sum(gradient(rank, 50) for rank in range(2))
    for found in run_ranks(2, work):
        np.testing.assert_allclose(found, exact, rtol=0, atol=2 * 40)  # 40: a remainder is sent before it is larger


def test_only_float32_is_compressed() -> None:
    def work(ring: Communicator) -> np.ndarray:
        compression = compression_of({"FLUIDTOOL_COLLECTIVE_COMPRESSION": "bf16"})
        return Sums(ring, 64, compression).of([np.array([1 + 2.0**-40])])[0]

    assert run_ranks(2, work)[0][0] == 2 + 2.0**-39


@pytest.mark.parametrize(("kind", "unit"), [("fp16", 2e-3), ("bf16", 2e-2), ("topk:0.5", 0.5)])
def test_training_stays_near_that_without_compression(kind: str, unit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = train_threads([transpiled(rank, 2) for rank in range(2)])[0]
    monkeypatch.setenv("FLUIDTOOL_COLLECTIVE_COMPRESSION", kind)
    found = train_threads([transpiled(rank, 2) for rank in range(2)])
    assert any((array != wanted).any() for array, wanted in zip(found[0], plain, strict=True))
    for array, other, wanted in zip(*found, plain, strict=True):
        np.testing.assert_array_equal(array, other)
        np.testing.assert_allclose(array, wanted, rtol=0, atol=unit)


@pytest.mark.parametrize("text", ["fp8", "topk", "topk:0", "topk:2", "topk:x", ""])
def test_an_unknown_compression_is_refused(text: str) -> None:
    with pytest.raises(
        UsageError, match=r"must be none, fp16, bf16, or topk: with a share above 0, such as topk:0\.01, found"
    ):
        compression_of({"FLUIDTOOL_COLLECTIVE_COMPRESSION": text})
