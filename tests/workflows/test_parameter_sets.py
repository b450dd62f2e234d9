"""Parameters with a program or without: opened from anything, merged, split, renamed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fluidtool
from fluidtool.errors import (
    FluidError,
    NotConvertibleError,
    OutputExistsError,
    ParameterFileError,
    ProgramError,
    UsageError,
)
from fluidtool.io.parameters import ParameterStore, value_parts
from fluidtool.tensor import LoDTensor
from fluidtool.workflows.parameter_sets import ParameterSet
from tests.cli.support import DIGITS, PAIR, TOPICS, everything_below


def made(**arrays: list[float]) -> ParameterSet:
    """Parameters of float32 without a program."""
    values = {name: LoDTensor(np.array(array, "float32")) for name, array in arrays.items()}
    return ParameterSet("here", ParameterStore({name: (value, None, "here") for name, value in values.items()}))


def bytes_of(given: ParameterSet) -> dict[str, bytes]:
    return {name: b"".join(map(bytes, value_parts(value))) for name, value in given.store.items()}


@pytest.mark.parametrize("suffix", [".pdparams", ".npz", ".safetensors"])
@pytest.mark.parametrize("source", [DIGITS, TOPICS, PAIR], ids=["separate", "combined", "pair"])
def test_a_model_s_parameters_in_one_file_and_back(source: Path, suffix: str, tmp_path: Path) -> None:
    given = fluidtool.open_parameters(source)
    assert given.model is not None
    fluidtool.merge_parameters([given], tmp_path / f"w{suffix}")
    found = fluidtool.open_parameters(tmp_path / f"w{suffix}")
    assert found.model is None and bytes_of(found) == bytes_of(given)


def test_another_suffix_is_a_combined_file(tmp_path: Path) -> None:
    fluidtool.merge_parameters([fluidtool.open_parameters(DIGITS)], tmp_path / "__params__")
    found = fluidtool.open_parameters(DIGITS / "__model__", params=str(tmp_path / "__params__"))
    assert bytes_of(found) == bytes_of(fluidtool.open_parameters(DIGITS))
    with pytest.raises(FluidError, match="a combined parameter file with 12 tensors and no names"):
        fluidtool.open_parameters(tmp_path / "__params__")


def test_splitting_gives_a_file_for_each(tmp_path: Path) -> None:
    given = fluidtool.open_parameters(PAIR)
    files = fluidtool.split_parameters(given, tmp_path / "w")
    assert {file.name for file in files} == set(given.store) == {file.name for file in (tmp_path / "w").iterdir()}
    assert bytes_of(fluidtool.open_parameters(tmp_path / "w")) == bytes_of(given)


def test_several_sets_are_one(tmp_path: Path) -> None:
    fluidtool.merge_parameters([made(a=[1], b=[2]), made(b=[2], c=[3])], tmp_path / "w.npz")
    found = fluidtool.open_parameters(tmp_path / "w.npz").store
    assert {name: value.numpy().tolist() for name, value in found.items()} == {"a": [1], "b": [2], "c": [3]}


@pytest.mark.parametrize("other", [[3.0], [2.0, 2.0], [np.nan]])
def test_two_parameters_of_one_name_are_refused(other: list[float], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'b' is another parameter in here than in here; rename"):
        fluidtool.merge_parameters([made(b=[2]), made(b=other)], tmp_path / "w.npz")
    assert everything_below(tmp_path) == set()


def test_zero_and_minus_zero_are_not_the_same_bytes(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        fluidtool.merge_parameters([made(b=[0.0]), made(b=[-0.0])], tmp_path / "w.npz")


def test_a_model_is_renamed_with_its_program(tmp_path: Path) -> None:
    given = fluidtool.open_parameters(DIGITS)
    names = {"fc_0.w_0": "fc_0.b_0", "fc_0.b_0": "fc_0.w_0", "conv2d_0.w_0": "filter"}
    fluidtool.rename_parameters(given, names, tmp_path / "m")
    before, after = fluidtool.load(DIGITS), fluidtool.load(tmp_path / "m")
    assert set(after.files.parameters) == set(given.store) - {"conv2d_0.w_0"} | {"filter"}
    assert np.array_equal(after.files.parameters["fc_0.b_0"].numpy(), given.store["fc_0.w_0"].numpy())
    feed = {"image": np.load(DIGITS / "x.npy")}
    ours, theirs = (next(iter(model.run(feed).values())).numpy() for model in (before, after))
    assert np.array_equal(ours, theirs)


def test_parameters_alone_are_renamed(tmp_path: Path) -> None:
    fluidtool.rename_parameters(made(a=[1], b=[2]), {"a": "b", "b": "a"}, tmp_path / "w.safetensors")
    found = fluidtool.open_parameters(tmp_path / "w.safetensors").store
    assert (found["a"].numpy().tolist(), found["b"].numpy().tolist()) == ([2], [1])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"fc_0.w": "x"}, "no parameter 'fc_0.w'; did you mean fc_0.w_0"),
        ({"fc_0.w_0": "fc_0.b_0"}, "two parameters would have the same name"),
        ({"fc_0.w_0": ""}, "an empty name"),
        ({"fc_0.w_0": "image"}, "already declares image"),
    ],
)
def test_names_that_do_not_fit(names: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=message):
        fluidtool.rename_parameters(fluidtool.open_parameters(PAIR), names, tmp_path / "m")
    assert everything_below(tmp_path) == set()


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterFileError):
        fluidtool.split_parameters(made(**{"a": [1], "../b": [2]}), tmp_path / "w")
    assert everything_below(tmp_path) == set()


def test_what_exists_stays_unless_it_may_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "w.npz").write_text("mine")
    (tmp_path / "a").write_text("mine")
    with pytest.raises(OutputExistsError):
        fluidtool.merge_parameters([made(a=[1])], tmp_path / "w.npz")
    with pytest.raises(OutputExistsError):
        fluidtool.split_parameters(made(a=[1], b=[2]), tmp_path)
    assert everything_below(tmp_path) == {"w.npz", "a"} and (tmp_path / "a").read_text() == "mine"
    fluidtool.merge_parameters([made(a=[1])], tmp_path / "w.npz", overwrite=True)
    assert set(fluidtool.open_parameters(tmp_path / "w.npz").store) == {"a"}


def test_a_file_may_be_replaced_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    fluidtool.merge_parameters([fluidtool.open_parameters(DIGITS)], file)
    fluidtool.merge_parameters([fluidtool.open_parameters(file), made(a=[1])], file, overwrite=True)
    assert len(fluidtool.open_parameters(file).store) == 13


def test_what_a_file_cannot_hold(tmp_path: Path) -> None:
    value = LoDTensor(np.ones((2, 1), "float32"), [[0, 2]])
    with pytest.raises(NotConvertibleError, match="'a' cannot be written as safetensors: it has a LoD"):
        fluidtool.merge_parameters(
            [ParameterSet("here", ParameterStore({"a": (value, None, "")}))], tmp_path / "w.safetensors"
        )
    assert everything_below(tmp_path) == set()
