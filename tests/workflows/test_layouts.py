"""`fluidtool.convert` between the layouts of Paddle, and to files of parameters alone: the same bytes, or nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluidtool
from fluidtool.errors import NotConvertibleError, OutputExistsError, ParameterFileError, UsageError
from fluidtool.io.parameters import Value, value_parts
from fluidtool.io.safetensors import open_safetensors
from fluidtool.io.saving import Layout, save_model
from fluidtool.ir import Program
from fluidtool.proto.enums import AttrType, VarType
from fluidtool.tensor import LoDTensor, SelectedRows
from fluidtool.tensor.data_types import numpy_dtype
from fluidtool.tensor.streams import write_tensor
from tests.cli.support import DIGITS, PAIR, TOPICS

LAYOUTS = ("paddle1", "paddle2", "separate", "combined")
FILES = ("pdparams", "npz", "safetensors")
KINDS = [
    VarType.BOOL, VarType.UINT8, VarType.INT8, VarType.INT16, VarType.INT32, VarType.INT64,
    VarType.FP16, VarType.FP32, VarType.FP64, VarType.COMPLEX64,
]  # fmt: skip


def program_of(values: Mapping[str, Value]) -> Program:
    """A program that declares these parameters and computes nothing."""
    program = Program()
    for name, value in values.items():
        kind = VarType.SELECTED_ROWS if isinstance(value, SelectedRows) else VarType.LOD_TENSOR
        array = value.tensor.numpy() if isinstance(value, SelectedRows) else value.numpy()
        var = program.global_block().create_var(name=name, type=kind, persistable=True)
        if kind == VarType.LOD_TENSOR:
            var.shape, var.dtype = array.shape, np.dtype(array.dtype)
    return program


def model_of(folder: Path, values: Mapping[str, Value]) -> Any:
    """The model of these parameters, saved with one file each."""
    save_model(program_of(values), values, Layout(folder, "__model__", None))
    return fluidtool.load(folder, validate=False)


def bytes_of(model: Any) -> dict[str, bytes]:
    """The streams of all parameters: data types, shapes, LoDs and values."""
    return {name: b"".join(map(bytes, value_parts(value))) for name, value in model.files.parameters.items()}


def written(output: Path) -> set[str]:
    return {str(file.relative_to(output.parent)) for file in output.parent.rglob("*") if file.is_file()}


def every_type() -> dict[str, Value]:
    """A parameter of each data type, one without elements, one without dimensions, one whose address is odd."""
    values: dict[str, Value] = {}
    for kind in KINDS:
        noise = np.random.default_rng(kind).integers(0, 2, (3, 5)).astype(numpy_dtype(kind))
        values[f"w_{kind.name}"] = LoDTensor(noise)
    values["nothing"] = LoDTensor(np.zeros((0, 4), "float32"))
    values["single"] = LoDTensor(np.array(-0.0, "float32"))
    values["nan"] = LoDTensor(np.array([0x7FC00001, 0xFF800000], "uint32").view("float32"))
    return values


@pytest.mark.parametrize("source", [DIGITS, TOPICS, PAIR], ids=["separate", "combined", "pair"])
@pytest.mark.parametrize("to", LAYOUTS)
def test_a_layout_has_the_same_program_and_the_same_parameters(source: Path, to: str, tmp_path: Path) -> None:
    model = fluidtool.load(source)
    result = fluidtool.convert(model, tmp_path / "out", to=to)
    found = fluidtool.load(tmp_path / "out")
    assert found.program.serialize_to_string() == model.program.serialize_to_string()
    assert bytes_of(found) == bytes_of(model)
    assert (result.to, result.parameters, result.notes) == (to, len(model.files.parameters), ())
    assert {str(file.relative_to(tmp_path)) for file in result.files} == written(tmp_path / "out")


@pytest.mark.parametrize(
    ("to", "names"),
    [
        ("paddle1", {"out/__model__", *(f"out/fc_{layer}.{kind}_0" for layer in range(3) for kind in "wb")}),
        ("paddle2", {"out.pdmodel", "out.pdiparams"}),
        ("combined", {"out/__model__", "out/__params__"}),
        ("npz", {"out"}),
    ],
)
def test_the_files_of_a_format(to: str, names: set[str], tmp_path: Path) -> None:
    fluidtool.convert(fluidtool.load(PAIR), tmp_path / "out", to=to)
    assert written(tmp_path / "out") == names


@pytest.mark.parametrize("to", FILES)
def test_parameters_alone_come_back_with_the_program(to: str, tmp_path: Path) -> None:
    model = fluidtool.load(DIGITS)
    fluidtool.convert(model, tmp_path / "w", to=to)
    assert bytes_of(fluidtool.load(DIGITS / "__model__", params=tmp_path / "w")) == bytes_of(model)


@pytest.mark.parametrize("to", [*LAYOUTS[1:], *FILES])
def test_every_data_type_and_shape(to: str, tmp_path: Path) -> None:
    values = every_type()
    model = model_of(tmp_path / "m", values)
    fluidtool.convert(model, tmp_path / "out", to=to)
    source = (tmp_path / "m" / "__model__", tmp_path / "out") if to in FILES else (tmp_path / "out", None)
    assert bytes_of(fluidtool.load(source[0], params=source[1], validate=False)) == bytes_of(model)


@pytest.mark.parametrize("to", [*LAYOUTS[1:], *FILES])
def test_bfloat16(to: str, tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 needs the extra bf16")
    model = model_of(tmp_path / "m", {"w": LoDTensor(np.array([[1.5, -2, 3e38]], ml_dtypes.bfloat16))})
    result = fluidtool.convert(model, tmp_path / "out", to=to)
    assert bool(result.notes) is (to in ("pdparams", "npz"))
    source = (tmp_path / "m" / "__model__", tmp_path / "out") if to in FILES else (tmp_path / "out", None)
    assert bytes_of(fluidtool.load(source[0], params=source[1])) == bytes_of(model)


@pytest.mark.parametrize("to", [*LAYOUTS, "npz"])
def test_lod_is_kept(to: str, tmp_path: Path) -> None:
    model = model_of(tmp_path / "m", {"w": LoDTensor(np.arange(6, dtype="float32").reshape(3, 2), [[0, 1, 3]])})
    fluidtool.convert(model, tmp_path / "out", to=to)
    source = (tmp_path / "m" / "__model__", tmp_path / "out") if to == "npz" else (tmp_path / "out", None)
    found = fluidtool.load(source[0], params=source[1])
    assert found.files.parameters["w"].lod() == [[0, 1, 3]] and bytes_of(found) == bytes_of(model)


@pytest.mark.parametrize("to", ["pdparams", "safetensors"])
def test_a_format_without_lod_says_which_parameters_have_one(to: str, tmp_path: Path) -> None:
    values = {name: LoDTensor(np.zeros((2, 1), "float32"), [[0, 2]]) for name in ("a", "b")}
    model = model_of(tmp_path / "m", {**values, "c": LoDTensor(np.zeros(1, "float32"))})
    with pytest.raises(
        NotConvertibleError, match=r"'a' and 1 more cannot be written.*LoD; nothing was written"
    ) as caught:
        fluidtool.convert(model, tmp_path / "out", to=to)
    assert [each.output for each in caught.value.blockers] == ["a", "b"] and not (tmp_path / "out").exists()


@pytest.mark.parametrize("to", FILES)
def test_rows_of_a_table_stay_in_files_of_their_own(to: str, tmp_path: Path) -> None:
    model = model_of(tmp_path / "m", {"t": SelectedRows([1, 4], 10, np.ones((2, 3), "float32"))})
    with pytest.raises(NotConvertibleError, match="SelectedRows"):
        fluidtool.convert(model, tmp_path / "out", to=to)
    with pytest.raises(ParameterFileError, match="SelectedRows"):
        fluidtool.convert(model, tmp_path / "out", to="paddle2")
    assert written(tmp_path / "m") == {f"m/{name}" for name in ("__model__", "t")}
    fluidtool.convert(model, tmp_path / "out", to="separate")
    assert bytes_of(fluidtool.load(tmp_path / "out")) == bytes_of(model)


@pytest.mark.parametrize("to", [*LAYOUTS, *FILES])
def test_what_exists_stays_unless_it_may_be_replaced(to: str, tmp_path: Path) -> None:
    target = tmp_path / ("out.pdmodel" if to == "paddle2" else "out")
    target.write_text("mine")
    with pytest.raises(OutputExistsError):
        fluidtool.convert(fluidtool.load(DIGITS), tmp_path / "out", to=to)
    assert target.read_text() == "mine" and written(target) == {target.name}


@pytest.mark.parametrize("to", [*LAYOUTS, *FILES])
def test_a_result_is_replaced_by_force(to: str, tmp_path: Path) -> None:
    fluidtool.convert(fluidtool.load(DIGITS), tmp_path / "out", to=to)
    fluidtool.convert(fluidtool.load(PAIR), tmp_path / "out", to=to, overwrite=True)
    if to in LAYOUTS:
        assert bytes_of(fluidtool.load(tmp_path / "out")) == bytes_of(fluidtool.load(PAIR))


@pytest.mark.parametrize("name", ["../w", "/w", "__model__"])
def test_a_name_that_leads_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    values = {name: LoDTensor(np.ones(2, "float32"))}
    save_model(program_of(values), values, Layout(tmp_path / "m", "program", "__params__"))
    model = fluidtool.load(tmp_path / "m")
    with pytest.raises(ParameterFileError):
        fluidtool.convert(model, tmp_path / "out", to="separate")
    assert not (tmp_path / "out").exists() and not (tmp_path / "w").exists()
    for to in ("combined", *FILES):
        fluidtool.convert(model, tmp_path / to, to=to)


@pytest.mark.parametrize("name", ["a/b", "<script>", "\x1b[31m", "\u202egnp", "x" * 10_000, "two words", "w.npy"])
@pytest.mark.parametrize("to", ["combined", *FILES])
def test_hostile_names_are_only_names(name: str, to: str, tmp_path: Path) -> None:
    values = {name: LoDTensor(np.ones(2, "float32"))}
    save_model(program_of(values), values, Layout(tmp_path / "m", "__model__", "__params__"))
    model = fluidtool.load(tmp_path / "m")
    fluidtool.convert(model, tmp_path / "out", to=to)
    source = (tmp_path / "m" / "__model__", tmp_path / "out") if to in FILES else (tmp_path / "out", None)
    assert bytes_of(fluidtool.load(source[0], params=source[1])) == bytes_of(model)


def test_unknown_operators_are_kept(tmp_path: Path) -> None:
    model = fluidtool.load(DIGITS)
    model.program.global_block().ops[2]._type = "from_elsewhere"
    fluidtool.convert(model, tmp_path / "out", to="combined")
    found = fluidtool.load(tmp_path / "out", validate=False)
    assert found.program.global_block().ops[2].type == "from_elsewhere"


def test_paddle1_refuses_what_1_8_5_does_not_know(tmp_path: Path) -> None:
    model = fluidtool.load(DIGITS)
    block = model.program.global_block()
    block.ops[2]._type = "matmul_v2"
    block.create_var(name="c", dtype=VarType.COMPLEX64, shape=[1])
    block.ops[3]._attrs["scale"], block.ops[3]._attr_types["scale"] = 1.0, AttrType.FLOAT64
    with pytest.raises(NotConvertibleError, match=r"no operator matmul_v2 and 2 more.*to='paddle2'") as caught:
        fluidtool.convert(model, tmp_path / "out", to="paddle1")
    found = [(each.operator, each.type) for each in caught.value.blockers]
    assert found == [(2, "matmul_v2"), (3, block.ops[3].type), (-1, "")]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("to", ["paddle1", "npz"])
def test_options_of_onnx_are_refused(to: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="do not apply to"):
        fluidtool.convert(fluidtool.load(DIGITS), tmp_path / "out", to=to, onnx=fluidtool.OnnxOptions())


def test_safetensors_as_published(tmp_path: Path) -> None:
    values = {"b": LoDTensor(np.array([1, 2], "int8")), "a": LoDTensor(np.array([[1.5]], "float64"))}
    fluidtool.convert(model_of(tmp_path / "m", values), tmp_path / "w", to="safetensors")
    data = (tmp_path / "w").read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert size % 8 == 0 and json.loads(data[8 : 8 + size]) == {
        "a": {"dtype": "F64", "shape": [1, 1], "data_offsets": [0, 8]},
        "b": {"dtype": "I8", "shape": [2], "data_offsets": [8, 10]},
    }
    assert data[8 + size :] == np.float64(1.5).tobytes() + b"\1\2"


def test_a_combined_file_has_the_order_of_names(tmp_path: Path) -> None:
    values = {"b": LoDTensor(np.array([1.0], "float32")), "a": LoDTensor(np.array([2], "int64"))}
    fluidtool.convert(model_of(tmp_path / "m", values), tmp_path / "out", to="paddle2")
    expected = b"".join(bytes(part) for name in "ab" for part in write_tensor(values[name]))
    assert (tmp_path / "out.pdiparams").read_bytes() == expected


def header(entries: Any, data: bytes = b"", size: int | None = None) -> bytes:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + data


ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        header({"w": ONE}, b"123"),
        header({"w": ONE}, b"12345"),
        header({"w": ONE, "v": ONE}, b"1234"),
        header({"w": {**ONE, "dtype": "F8_E4M3"}}, b"1234"),
        header({"w": {**ONE, "shape": [-1]}}, b"1234"),
        header({"w": {**ONE, "shape": [2**70]}}, b"1234"),
        header({"w": {**ONE, "shape": [True]}}, b"1234"),
        header({"w": {**ONE, "data_offsets": [4, 0]}}, b"1234"),
        header({"w": 3}),
        header({"w": ONE}, b"1234", size=2**63),
        header(b'{"w": 1, "w": 2}'),
        header(b'{"w":' + b"[" * 100_000),
        header(b"[]"),
        header(b"\xff{}"),
    ],
)  # fmt: skip
def test_damaged_safetensors(data: bytes) -> None:
    with pytest.raises(fluidtool.errors.UnreadableError, match="safetensors"):
        open_safetensors(data, "w.safetensors")
