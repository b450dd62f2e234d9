"""Bad input: one clear paragraph, the right exit code, nothing written."""

from __future__ import annotations

import os
import pickle
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool.ir import Program
from tests.cli.support import (
    BIAS,
    DIGITS,
    PAIR,
    TOPICS,
    WEIGHT,
    call,
    combined_model,
    copy_of,
    error_of,
    everything_below,
    feed_file,
    linear_model,
    linear_program,
    write_model,
)

USAGE, UNREADABLE, UNSUPPORTED = 2, 3, 4


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return linear_model(tmp_path / "model")


@pytest.fixture
def x(tmp_path: Path) -> Path:
    return feed_file(tmp_path / "x.npy")


@pytest.fixture(autouse=True)
def _nothing_is_written(tmp_path: Path, model: Path, x: Path) -> Iterator[None]:
    """Whatever a test puts below tmp_path it puts there before the command runs; the command adds nothing."""
    yield
    assert not [
        name for name in everything_below(tmp_path) if name.startswith("out") or name.endswith((".tmp", ".old"))
    ]


def refuse(exit_code: int, *args: Any, input: bytes | None = None) -> str:
    """The message of a command that must fail with this exit code."""
    result = call(*args, input=input)
    assert result.exit_code == exit_code, result.stderr
    return error_of(result)


# ---------------------------------------------------------------- programs
@pytest.mark.parametrize(
    "command", [["run", "--random"], ["inspect"], ["check"], ["prune", "--targets", "sum", "-o", "out"]]
)
def test_a_truncated_program(model: Path, command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    data = (model / "__model__").read_bytes()
    (model / "__model__").write_bytes(data[: len(data) // 2])
    message = refuse(UNREADABLE, command[0], model, *command[1:])
    assert f"{model / '__model__'} is a Fluid program that is cut off: it ends" in message and "[FT300]" in message


@pytest.mark.parametrize("damage", [b"\xff" * 16, b"\x00" * 16])
def test_a_corrupted_program(model: Path, damage: bytes) -> None:
    data = bytearray((model / "__model__").read_bytes())
    data[40:56] = damage
    (model / "__model__").write_bytes(data)
    assert "cannot be read as a Fluid program" in refuse(UNREADABLE, "inspect", model)


def test_any_cut_of_a_program_is_refused_or_read(model: Path) -> None:
    """No length makes fluidtool fail in another way than by saying so."""
    data = (model / "__model__").read_bytes()
    for length in range(0, len(data), 37):
        (model / "__model__").write_bytes(data[:length])
        assert call("check", model).exit_code in (0, 1, 3)


@pytest.mark.parametrize("damage", [b"produ\xffct", b"\xff" * 7])
def test_names_that_are_no_text(model: Path, damage: bytes) -> None:
    data = (model / "__model__").read_bytes()
    (model / "__model__").write_bytes(data.replace(b"product", damage.ljust(7, b"x")[:7]))
    assert "has a name that is not text" in refuse(UNREADABLE, "inspect", model)


def test_a_program_with_a_block_that_is_not_there(tmp_path: Path) -> None:
    program = Program()
    program.create_block(0)
    program.blocks[1].parent_idx = 7
    (tmp_path / "p.pb").write_bytes(program.serialize_to_string())
    assert "names block 7 as the parent of block 1" in refuse(UNREADABLE, "inspect", tmp_path / "p.pb")


def test_no_model_there(tmp_path: Path) -> None:
    message = refuse(UNREADABLE, "inspect", tmp_path / "nothing")
    assert "there is no model at" in message and "[FT301]" in message


def test_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "it contains nothing; expected __model__" in refuse(UNREADABLE, "run", tmp_path / "empty", "--random")


def test_two_programs_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "two"
    folder.mkdir()
    for name in ("a.pb", "b.pb"):
        (folder / name).write_bytes(linear_program().serialize_to_string())
    message = refuse(UNREADABLE, "inspect", folder)
    assert "contains 2 programs: a.pb, b.pb" in message and "--model-file NAME" in message
    assert call("inspect", folder, "--model-file", "a.pb").exit_code == 0


def test_a_program_file_that_is_not_there(model: Path) -> None:
    assert "has no file other; it contains __model__, b, w" in refuse(
        UNREADABLE, "inspect", model, "--model-file", "other"
    )


def test_an_unknown_operator(tmp_path: Path, x: Path) -> None:
    program = linear_program()
    program.global_block().ops[4].type = "sofmax"
    folder = write_model(tmp_path / "strange", program, w=WEIGHT, b=BIAS)
    message = refuse(UNSUPPORTED, "run", folder, "--feed", x)
    assert "operator sofmax is unknown" in message and "did you mean softmax" in message and "[FT400]" in message


# ---------------------------------------------------------------- parameters
def test_a_missing_parameter(model: Path, x: Path) -> None:
    (model / "w").unlink()
    message = refuse(UNREADABLE, "run", model, "--feed", x)
    assert f"{model} has no file for the parameter w" in message and "--params" in message and "[FT310]" in message


def test_a_parameter_of_another_shape(tmp_path: Path, x: Path) -> None:
    folder = write_model(tmp_path / "m", linear_program(), w=WEIGHT.T, b=BIAS)
    assert f"w is declared (4, 3), {folder / 'w'} contains (3, 4)" in refuse(UNREADABLE, "run", folder, "--feed", x)


def test_a_parameter_of_another_data_type(tmp_path: Path, x: Path) -> None:
    folder = write_model(tmp_path / "m", linear_program(), w=WEIGHT.astype("float64"), b=BIAS)
    assert f"w is declared FP32, {folder / 'w'} contains FP64" in refuse(UNREADABLE, "run", folder, "--feed", x)


@pytest.mark.parametrize("combined", [False, True])
def test_a_parameter_with_trailing_bytes(tmp_path: Path, x: Path, combined: bool) -> None:
    folder = combined_model(tmp_path / "m") if combined else linear_model(tmp_path / "m")
    with (folder / ("__params__" if combined else "w")).open("ab") as file:
        file.write(b"12345")
    assert "continues for 5 bytes after its last parameter" in refuse(UNREADABLE, "run", folder, "--feed", x)


@pytest.mark.parametrize("combined", [False, True])
def test_a_truncated_parameter(tmp_path: Path, x: Path, combined: bool) -> None:
    folder = combined_model(tmp_path / "m") if combined else linear_model(tmp_path / "m")
    path = folder / ("__params__" if combined else "w")
    os.truncate(path, path.stat().st_size - 8)
    message = refuse(UNREADABLE, "run", folder, "--feed", x)
    assert str(path) in message and "takes 48 bytes, but only 40 are left" in message


def test_parameters_of_another_program(x: Path, tmp_path: Path) -> None:
    folder = linear_model(tmp_path / "m")
    message = refuse(UNREADABLE, "run", folder, "--feed", x, "--params", TOPICS / "params")
    assert "is declared" in message and "the file belongs to another program" in message


def test_parameters_that_are_not_there(model: Path, x: Path) -> None:
    assert "there are no parameters at nowhere" in refuse(UNREADABLE, "run", model, "--feed", x, "--params", "nowhere")


class _Harmful:
    """Something that runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("out-of-the-pickle",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_with_anything_but_data(
    tmp_path: Path, x: Path, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.pdmodel").write_bytes(linear_program().serialize_to_string())
    (tmp_path / "net.pdparams").write_bytes(pickle.dumps({"w": _Harmful(), "b": BIAS}, protocol))
    message = refuse(UNREADABLE, "run", tmp_path / "net", "--feed", x)
    assert "is a pickle that asks for posix.mkdir" in message and "[FT320]" in message
    assert not (tmp_path / "out-of-the-pickle").exists()


# ---------------------------------------------------------------- feeds
def test_no_feed(model: Path) -> None:
    message = refuse(USAGE, "run", model)
    assert "no value for the input x; the inputs are x float32 (-1, 4)" in message and "--feed NAME=FILE" in message


def test_a_feed_of_the_wrong_name(model: Path, x: Path) -> None:
    message = refuse(USAGE, "run", model, "--feed", f"prduct={x}")
    assert "there is no input 'prduct'; did you mean product?" in message and "[FT210]" in message


def test_a_feed_that_nobody_can_place(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "two", linear_program(feeds=["x", "b"]), w=WEIGHT, b=BIAS)
    np.save(tmp_path / "data.npy", BIAS)
    message = refuse(USAGE, "run", folder, "--feed", tmp_path / "data.npy")
    assert "name the input: --feed NAME=" in message and "the inputs are x, b" in message


def test_a_feed_given_twice(model: Path, x: Path) -> None:
    assert "the input x is fed twice" in refuse(USAGE, "run", model, "--feed", x, "--feed", f"x={x}")


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (np.zeros((2, 4, 1), "float32"), "takes shape (-1, 4) (-1: any size), found (2, 4, 1)"),
        (np.zeros(4, "float32"), "takes shape (-1, 4) (-1: any size), found (4,)"),
        (np.zeros((2, 5), "float32"), "takes shape (-1, 4) (-1: any size), found (2, 5)"),
        (np.zeros((2, 4)), "takes float32, found float64 of shape (2, 4); convert it: array.astype('float32')"),
        (np.zeros((2, 4), "int64"), "takes float32, found int64"),
        (np.zeros((2, 4), "uint32"), "takes float32, found uint32"),
        (np.array([["a", "b"]]), "takes float32, found <U1"),
    ],
)
def test_a_feed_of_the_wrong_rank_size_or_data_type(model: Path, tmp_path: Path, array: Any, found: str) -> None:
    np.save(tmp_path / "bad.npy", array)
    assert f"input x {found}" in refuse(USAGE, "run", model, "--feed", tmp_path / "bad.npy")


def test_a_feed_file_that_is_not_there(model: Path) -> None:
    assert "cannot read nowhere.npy: No such file" in refuse(UNREADABLE, "run", model, "--feed", "nowhere.npy")


@pytest.mark.parametrize("data", [b"", b"1 2 3 4\n", pickle.dumps([1, 2])])
def test_a_feed_file_that_is_none(model: Path, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x2.npy").write_bytes(data)
    message = refuse(UNREADABLE, "run", model, "--feed", tmp_path / "x2.npy")
    assert "is neither a .npy nor a .npz file" in message


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_a_truncated_feed_file(model: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"x2.{kind}"
    array = np.ones((100, 4), "float32")
    np.save(path, array) if kind == "npy" else np.savez(path, x=array)
    os.truncate(path, path.stat().st_size // 2)
    assert "it is truncated or corrupted" in refuse(UNREADABLE, "run", model, "--feed", path)


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_a_feed_file_with_pickled_objects(model: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"x2.{kind}"
    array = np.array([_Harmful()], dtype=object)
    np.save(path, array) if kind == "npy" else np.savez(path, x=array)
    assert "it contains pickled objects" in refuse(UNREADABLE, "run", model, "--feed", path)


def test_empty_standard_input(model: Path) -> None:
    assert "standard input is empty" in refuse(UNREADABLE, "run", model, "--feed", "-", input=b"")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", ""], "the first argument is empty"),
        (["inspect", "--ops", ""], "the argument after --ops is empty"),
        (["run", "MODEL", "--feed", ""], "the argument after --feed is empty"),
        (["run", "MODEL", "--feed", "x="], "no file is given for input x"),
    ],
    ids=str,
)
def test_an_empty_path_is_not_the_current_folder(
    model: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model)
    assert message in refuse(USAGE, *(str(model) if each == "MODEL" else each for each in arguments))


def test_an_archive_without_the_array(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=BIAS, b=BIAS)
    message = refuse(USAGE, "run", model, "--feed", f"x={tmp_path / 'two.npz'}")
    assert "has no array 'x'; it has a, b" in message


# ---------------------------------------------------------------- LoD
@pytest.fixture
def words(tmp_path: Path) -> Path:
    np.save(tmp_path / "words.npy", np.zeros((5, 1), "int64"))
    return tmp_path / "words.npy"


@pytest.mark.parametrize(
    ("lod", "fault"),
    [
        ("[[2,2]]", "level 0 ends at 4, but there are 5 rows of the tensor"),
        ("[[2,4]]", "level 0 ends at 6, but there are 5 rows of the tensor"),
        ("[[2,1],[2,2]]", "level 0 ends at 3, but there are 2 sequences at level 1"),
        ("[[6,-1]]", "expected one list of lengths per level"),
        ("[2,3]", "expected one list of lengths per level"),
        ("[[2.5,2.5]]", "expected one list of lengths per level"),
        ("[[2,3]", "is not JSON"),
        ("[[]]", "level 0 has 1 offsets; at least two are needed"),
    ],
)
def test_invalid_lengths(words: Path, lod: str, fault: str) -> None:
    message = refuse(USAGE, "run", TOPICS, "--feed", words, "--lod", f"words={lod}")
    assert message.startswith("invalid LoD for the input words: ") and fault in message and "[FT240]" in message


def test_lengths_of_an_input_that_is_none(words: Path) -> None:
    message = refuse(USAGE, "run", TOPICS, "--feed", words, "--lod", "wrds=[[2,3]]")
    assert "'wrds' is not an input; did you mean words?" in message


def test_lengths_that_were_forgotten(words: Path) -> None:
    message = refuse(USAGE, "run", TOPICS, "--feed", words)
    assert "operator lstm" in message and "give their lengths, --lod words=[[2,3]]" in message


def test_a_file_of_lengths_that_is_none(words: Path, tmp_path: Path) -> None:
    (tmp_path / "lod.json").write_text("[[2, 3]]")
    assert "must contain an object" in refuse(USAGE, "run", TOPICS, "--feed", words, "--lod", tmp_path / "lod.json")


# ---------------------------------------------------------------- shapes, fetches, expectations
@pytest.mark.parametrize(
    ("shape", "fault"),
    [
        ("y=1,4", "'y' is not an input"),
        ("x=a,b", "expected sizes separated by commas"),
        ("x=1,5", "takes shape (-1, 4)"),
    ],
)
def test_shapes_that_cannot_be(model: Path, shape: str, fault: str) -> None:
    assert fault in refuse(USAGE, "run", model, "--random", "--shape", shape)


def test_a_shape_without_random(model: Path, x: Path) -> None:
    assert "give --random too" in refuse(USAGE, "run", model, "--feed", x, "--shape", "x=1,4")


def test_a_fetch_that_does_not_exist(model: Path, x: Path) -> None:
    message = refuse(USAGE, "run", model, "--feed", x, "--fetch", "prbability")
    assert "the program has no such variable; did you mean probability?" in message and "[FT211]" in message


def test_a_pattern_that_matches_nothing(model: Path, x: Path) -> None:
    assert "matches the pattern" in refuse(USAGE, "run", model, "--feed", x, "--fetch", "zz*")


def test_a_fetch_from_within_a_loop(tmp_path: Path, x: Path) -> None:
    program = linear_program()
    program.create_block(0).create_var(name="inner", shape=[1], dtype="int64")
    folder = write_model(tmp_path / "m", program, w=WEIGHT, b=BIAS)
    assert "it is a variable of block 1" in refuse(USAGE, "run", folder, "--feed", x, "--fetch", "inner")


def test_everything_and_something(model: Path, x: Path) -> None:
    assert "give --fetch-all or --fetch" in refuse(USAGE, "run", model, "--feed", x, "--fetch-all", "--fetch", "sum")


def test_an_expectation_of_what_does_not_exist(model: Path, x: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "golden.npz", prbability=BIAS)
    message = refuse(USAGE, "run", model, "--feed", x, "--expect", tmp_path / "golden.npz")
    assert "expects 'prbability'" in message and "did you mean probability?" in message


def test_more_expectations_than_outputs(model: Path, x: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "golden.npz", BIAS, BIAS)
    message = refuse(USAGE, "run", model, "--feed", x, "--expect", tmp_path / "golden.npz")
    assert "must have one array per output that is fetched (arr_0), found arr_0, arr_1" in message


def test_an_expectation_of_nothing(model: Path, x: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "golden.npz")
    message = refuse(USAGE, "run", model, "--feed", x, "--expect", tmp_path / "golden.npz")
    assert "golden.npz must have the values of outputs, found none" in message


@pytest.mark.parametrize("name", ["arr_7", "arr_00", f"arr_{'9' * 5000}"])
def test_arrays_without_names_of_no_position(model: Path, x: Path, tmp_path: Path, name: str) -> None:
    np.savez(tmp_path / "arrays.npz", **{name: np.load(x)})
    message = refuse(USAGE, "run", model, "--feed", x, "--expect", tmp_path / "arrays.npz")
    assert "must have one array per output that is fetched (arr_0), found arr_" in message
    assert "has the unnamed arrays arr_" in refuse(USAGE, "run", model, "--feed", tmp_path / "arrays.npz")


def test_an_expectation_that_is_not_there(model: Path, x: Path) -> None:
    assert "cannot read nowhere.npz" in refuse(UNREADABLE, "run", model, "--feed", x, "--expect", "nowhere.npz")


@pytest.mark.parametrize(
    ("args", "fault"),
    [
        (["--rtol", "-1"], "must not be negative"),
        (["--rtol", "much"], "not a valid float"),
        (["--repeat", "0"], "--repeat"),
        (["--batch", "0"], "--batch"),
        (["--seed", "-1"], "--seed"),
        (["--device", "tpu"], "--device must be cpu, gpu or gpu:N"),
        (["--device", "gpu:x"], "--device must be cpu, gpu or gpu:N"),
        (["--allow-files", "nowhere"], "--allow-files nowhere is not a folder"),
        (["-o", "-", "--json"], "both write to standard output"),
    ],
)
def test_option_values_that_cannot_be(model: Path, args: list[str], fault: str) -> None:
    message = refuse(USAGE, "run", model, "--random", *args)
    assert fault in message and "[FT2" in message


# ---------------------------------------------------------------- where to write
@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """A place below a file: nobody can write there, whoever runs the tests."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "below"


@pytest.mark.parametrize("name", ["o.npz", "o.npy", "folder"])
def test_outputs_that_cannot_be_written(model: Path, x: Path, blocked: Path, name: str) -> None:
    message = refuse(UNREADABLE, "run", model, "--feed", x, "-o", blocked / name)
    assert f"cannot write {blocked / name}" in message and "[FT261]" in message


def test_models_that_cannot_be_written(model: Path, blocked: Path) -> None:
    message = refuse(UNREADABLE, "prune", model, "--targets", "sum", "-o", blocked / "net")
    assert f"cannot write {blocked / 'net'}" in message and "[FT261]" in message


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is unreadable for root")
def test_files_that_may_not_be_read(model: Path, x: Path) -> None:
    (model / "w").chmod(0)
    assert "Permission denied" in refuse(UNREADABLE, "run", model, "--feed", x)


def test_a_folder_where_a_file_should_be(model: Path, tmp_path: Path) -> None:
    assert "cannot read" in refuse(UNREADABLE, "run", model, "--feed", f"x={tmp_path}")
    (model / "w").unlink()
    (model / "w").mkdir()
    assert "has no file for the parameter w" in refuse(UNREADABLE, "run", model, "--random")


# ---------------------------------------------------------------- names that lead elsewhere
EVIL = ["../stolen", "/stolen", "a/../../stolen", "..", ""]


def _renamed(name: str, new_name: str) -> Program:
    program = linear_program()
    program.global_block().rename_var(name, new_name)
    return program


@pytest.mark.parametrize("name", EVIL)
def test_a_parameter_with_a_name_that_leads_out_is_not_read(tmp_path: Path, x: Path, name: str) -> None:
    folder = tmp_path / "evil"
    write_model(folder, _renamed("w", name), b=BIAS)
    message = refuse(UNREADABLE, "run", folder, "--feed", x)
    assert f"variable name {name!r} leads outside the folder" in message
    assert call("inspect", folder).exit_code == 0
    assert call("check", folder).exit_code == 1


@pytest.mark.parametrize("name", EVIL[:4])
def test_a_parameter_with_a_name_that_leads_out_is_not_written(tmp_path: Path, name: str) -> None:
    """It may be read from a combined file, but not written to a file of its own."""
    from fluidtool.io.saving import Layout, save_model
    from fluidtool.tensor import LoDTensor

    values = {name: LoDTensor(WEIGHT), "b": LoDTensor(BIAS)}
    folder = tmp_path / "evil"
    save_model(_renamed("w", name), values, Layout(folder, "__model__", "__params__"))
    assert call("run", folder, "--random").exit_code == 0
    assert call("prune", folder, "--targets", "sum", "-o", tmp_path / "cut").exit_code == 0
    with pytest.raises(Exception, match="leads outside the folder"):
        save_model(_renamed("w", name), values, Layout(tmp_path / "out", "__model__", None))


@pytest.mark.parametrize("name", EVIL[:3])
def test_an_output_with_a_name_that_leads_out_is_not_written(tmp_path: Path, name: str) -> None:
    folder = write_model(tmp_path / "evil", _renamed("probability", name), w=WEIGHT, b=BIAS)
    message = refuse(UNREADABLE, "run", folder, "--random", "-o", tmp_path / "out")
    assert "leads outside the folder" in message
    assert not (tmp_path / "stolen.npy").exists()


def test_the_samples_are_whole(tmp_path: Path) -> None:
    """The damage that other tests do is done to copies."""
    assert call("check", copy_of(DIGITS, tmp_path / "digits")).exit_code == 0
    assert call("check", PAIR).exit_code == 0


# ---------------------------------------------------------------- bytes that are not what they say
def test_lengths_longer_than_the_name_of_a_file(model: Path) -> None:
    lengths = f"[[{'0,' * 300}1]]"
    assert "takes shape" in refuse(USAGE, "run", model, "--random", "--shape", "x=1,5", "--lod", f"x={lengths}")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("option", [["--random", "--expect"], ["--feed"]])
def test_a_pipe_where_a_file_should_be(model: Path, tmp_path: Path, option: list[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "it is not a regular file" in refuse(UNREADABLE, "run", model, *option, tmp_path / "pipe")


@pytest.mark.parametrize("command", ["inspect", "check", "run"])
def test_a_device_where_a_model_should_be(command: str) -> None:
    assert "it is not a regular file" in refuse(UNREADABLE, command, os.devnull)


def test_a_feed_that_asks_for_more_than_it_holds(model: Path, tmp_path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }\n"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    message = refuse(UNREADABLE, "run", model, "--feed", tmp_path / "x.npy")
    assert "takes 4398046511104 bytes, but 0 are left" in message


@pytest.mark.parametrize("command", [["run", "--random"], ["check"], ["inspect"]])
def test_a_pickle_whose_lists_share_one_another(tmp_path: Path, command: list[str]) -> None:
    """A walk through it would never end."""
    lists = b"".join(b"](" + b"h%c" % n * 9 + b"eq%c0" % (n + 1) for n in range(9))
    shutil.copy(DIGITS / "__model__", tmp_path / "model.pdmodel")
    (tmp_path / "model.pdparams").write_bytes(b"\x80\x02}X\x01\x00\x00\x00w]q\x000" + lists + b"h\x09s.")
    result = call(*command, tmp_path / "model.pdmodel")
    assert result.exit_code == {"run": UNREADABLE, "check": 1, "inspect": 0}[command[0]]
    assert "shared so often" in re.sub(r"\s+", " ", result.stdout + result.stderr)
