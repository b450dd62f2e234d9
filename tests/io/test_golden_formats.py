"""Files that real Paddle 1.8.5 and 2.6.2 wrote are read, and written again byte for byte or equal in meaning.

With FLUIDTOOL_GOLDEN=DIR the same runs on an unpacked corpus: `python -m pytest tests/io/test_golden_formats.py`.
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message

import fluidtool
import fluidtool.fluid as fluid
from fluidtool.io import checkpoints, pickles
from fluidtool.io.layout import open_model
from fluidtool.io.parameters import open_combined, read_value, value_parts
from fluidtool.ir import Program, Variable
from fluidtool.ir.messages import program_message
from fluidtool.proto import framework_pb2 as pb
from fluidtool.proto.enums import VarType
from fluidtool.tensor import LoDTensor, SelectedRows
from tests.support.golden import array_difference, corpus, read_arrays, read_json

FLOAT32 = {"kind": "allclose", "rtol": 1e-4, "atol": 1e-5}
SUFFIXES = {".pb", ".pdmodel", ".main_program"}


def formats() -> Path:
    return corpus("formats")


def program_files() -> list[str]:
    root = formats()
    files = [f for f in root.rglob("*") if f.suffix in SUFFIXES or f.name in ("__model__", "net")]
    return sorted(str(f.relative_to(root)) for f in files if f.is_file())


def meaning(message: Message) -> Any:
    """A message as nested data: defaults filled in, what has no order sorted."""
    out: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None:
            items = list(value) if field.is_repeated else [value] if message.HasField(field.name) else []
            entries = [meaning(item) for item in items]
            if field.name in ("vars", "attrs", "inputs", "outputs") and entries:
                entries.sort(key=lambda entry: str(entry.get("name") or entry.get("parameter")))
            out[field.name] = entries
        else:
            out[field.name] = list(value) if field.is_repeated else value
    return out


@pytest.mark.parametrize("name", program_files())
def test_a_program_keeps_its_meaning_through_load_and_save(name: str) -> None:
    data = (formats() / name).read_bytes()
    original = pb.ProgramDesc.FromString(data)
    program = Program.parse_from_string(data)
    assert meaning(program_message(program)) == meaning(original)
    saved = program.serialize_to_string()
    assert Program.parse_from_string(saved).serialize_to_string() == saved


def dumps() -> list[str]:
    return sorted(file.name for file in (formats() / "program_dumps").glob("*.str.txt.gz"))


@pytest.mark.parametrize("name", dumps())
def test_text_form_is_that_of_real_paddle(name: str) -> None:
    """Real Paddle prints protobuf text; parsing it and our own text gives the same messages."""
    from google.protobuf import text_format

    text = gzip.decompress((formats() / "program_dumps" / name).read_bytes()).decode()
    theirs = text_format.Parse(text, pb.ProgramDesc())
    program = Program.parse_from_string(theirs.SerializeToString())
    ours = text_format.Parse(program.to_string(True), pb.ProgramDesc())
    assert meaning(ours) == meaning(theirs)


def json_dumps() -> list[str]:
    return sorted(file.name for file in (formats() / "program_dumps").glob("*.json.gz"))


def as_base64(value: Any) -> Any:
    """Strings of attributes are bytes in our schema, which protobuf's JSON writes in base 64."""
    if isinstance(value, list):
        return [as_base64(item) for item in value]
    if not isinstance(value, dict):
        return value
    out = {key: as_base64(item) for key, item in value.items()}
    if "s" in out:
        out["s"] = base64.b64encode(out["s"].encode()).decode()
    if "strings" in out:
        out["strings"] = [base64.b64encode(item.encode()).decode() for item in out["strings"]]
    return out


@pytest.mark.parametrize("name", json_dumps())
def test_programs_that_real_paddle_dumped_as_json_keep_their_meaning(name: str) -> None:
    from google.protobuf import json_format

    dump = json.loads(gzip.decompress((formats() / "program_dumps" / name).read_bytes()))["program"]
    original = json_format.ParseDict(as_base64(dump), pb.ProgramDesc(), ignore_unknown_fields=True)
    program = Program.parse_from_string(original.SerializeToString())
    assert meaning(program_message(program)) == meaning(original)


# ---------------------------------------------------------------- tensor streams
def stream_cases() -> list[tuple[str, dict[str, Any]]]:
    cases = []
    for case in ("tensor_dtypes", "tensor_dtypes_p26", "tensor_lod", "tensor_empty", "selected_rows"):
        cases += [(case, entry) for entry in read_json(formats() / case / "case.json")["files"]]
    return cases


@pytest.mark.parametrize(
    ("case", "entry"), stream_cases(), ids=lambda value: value if isinstance(value, str) else value["file"]
)
def test_a_tensor_file_is_read_and_written_byte_for_byte(case: str, entry: dict[str, Any]) -> None:
    folder = formats() / case
    path = folder / entry["file"]
    if entry.get("dtype") == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="bfloat16 needs the extra fluidtool[bf16]")
    kind = VarType.SELECTED_ROWS if case == "selected_rows" else VarType.LOD_TENSOR
    value = read_value(path, kind)
    if "key" in entry:
        expected = read_arrays(folder / "expect.npz")[entry["key"]]
        array = value.get_tensor().numpy() if isinstance(value, SelectedRows) else value.numpy()
        if entry.get("dtype") == "bfloat16":
            array = array.view(np.uint16)
        np.testing.assert_array_equal(array, expected)
        assert array.dtype == expected.dtype
    if isinstance(value, SelectedRows):
        assert (value.rows(), value.height()) == (entry["rows"], entry["height"])
    elif "lod" in entry:
        assert value.lod() == entry["lod"]
    assert b"".join(bytes(part) for part in value_parts(value)) == path.read_bytes()


def test_a_combined_file_holds_the_values_in_the_order_of_the_names() -> None:
    folder = formats() / "save_combine_many"
    spec, expected = read_json(folder / "case.json"), read_arrays(folder / "expect.npz")
    block = Program().global_block()
    variables = [
        Variable(block, name=e["name"], shape=e["shape"], dtype=e["dtype"], persistable=True) for e in spec["order"]
    ]
    assert [var.name for var in variables] == sorted(var.name for var in variables)
    data = (folder / spec["file"]).read_bytes()
    store = open_combined(data, variables, spec["file"])
    for entry in spec["order"]:
        value = store[entry["name"]]
        assert isinstance(value, LoDTensor)
        np.testing.assert_array_equal(value.numpy(), expected[entry["key"]])
        assert value.lod() == entry["lod"]
    written = b"".join(bytes(part) for name in sorted(store) for part in value_parts(store[name]))
    assert written == data


# ---------------------------------------------------------------- layouts of fluid.io
@pytest.mark.parametrize("layout", ["params_one", "params_sep", "persist_one", "persist_sep", "vars_pred"])
def test_variables_load_from_every_layout_and_save_to_the_same_bytes(layout: str, tmp_path: Path) -> None:
    folder = formats() / "io_layouts"
    spec, expected = read_json(folder / "case.json"), read_arrays(folder / "expect.npz")
    values = dict(zip(spec["vars"], (expected[f"v{i}"] for i in range(len(spec["vars"]))), strict=True))
    program = Program.parse_from_string((folder / "main.pb").read_bytes())
    files = spec["dirs"][layout]
    combined = files[0] if len(files) == 1 and files[0] not in values else None
    names = [name for name in (spec["parameters"] if layout == "params_one" else spec["vars"])]
    names = names if combined else files
    variables = [program.global_block().var(name) for name in names]
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.load_vars(None, str(folder / layout), program, variables, filename=combined)
        for name in names:
            np.testing.assert_array_equal(np.array(fluid.global_scope().find_var(name).get_tensor()), values[name])
        fluid.io.save_vars(None, str(tmp_path), program, variables, filename=combined)
    for file in files:
        assert (tmp_path / file).read_bytes() == (folder / layout / file).read_bytes()


@pytest.mark.parametrize("case", ["fluid_save_mlp_adam", "fluid_save_bow_sgd"])
def test_pickled_states_of_fluid_save_load_and_save(case: str, tmp_path: Path) -> None:
    folder = formats() / case
    spec, expected = read_json(folder / "case.json"), read_arrays(folder / "expect.npz")
    program = Program.parse_from_string((folder / "model.pdmodel").read_bytes())
    with fluid.scope_guard(fluid.Scope()):
        fluid.load(program, str(folder / "model"))
        for index, name in enumerate(spec["vars"]):
            np.testing.assert_array_equal(
                np.array(fluid.global_scope().find_var(name).get_tensor()), expected[f"v{index}"]
            )
        fluid.save(program, str(tmp_path / "again"))
    before = fluid.io.load_program_state(str(folder / "model"))
    after = fluid.io.load_program_state(str(tmp_path / "again"))
    assert sorted(before) == sorted(after)
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)


def test_structured_names_of_dygraph_states_become_parameter_names() -> None:
    folder = formats() / "dygraph_save"
    expected = read_arrays(folder / "expect.npz")
    state = pickles.load_state((folder / "dy.pdparams").read_bytes(), "dy.pdparams")
    np.testing.assert_array_equal(state["conv2d_0.w_0"], expected["v0"])
    assert "StructuredToParameterName@@" not in state


@pytest.mark.parametrize("name", ["m.pdparams", "m_proto2.pdparams"])
def test_states_of_paddle_save_26_are_read(name: str) -> None:
    folder = formats() / "p26_paddle_save"
    spec, expected = read_json(folder / "case.json"), read_arrays(folder / "expect.npz")
    raw = pickles.load((folder / name).read_bytes(), name)
    names = raw.get(pickles.STRUCTURED_NAMES, {})
    state = pickles.load_state((folder / name).read_bytes(), name)
    for index, structured in enumerate(spec["names"]):
        np.testing.assert_array_equal(state[names.get(structured, structured)], expected[f"v{index}"])


def test_optimizer_states_of_paddle_save_26_are_read() -> None:
    folder = formats() / "p26_paddle_save"
    state = pickles.load_state((folder / "m.pdopt").read_bytes(), "m.pdopt")
    assert sorted(state) == sorted(read_json(folder / "case.json")["pdopt_keys"])


def test_checkpoints_of_2018_are_found_and_loaded() -> None:
    folder = formats() / "checkpoint_2018"
    spec, expected = read_json(folder / "case.json"), read_arrays(folder / "expect.npz")
    ckpt = folder / "ckpt"
    assert checkpoints.serials(ckpt) == [2, 3, 4]
    latest = checkpoints.latest_serial(ckpt)
    model = checkpoints.checkpoint_dir(ckpt, latest) / checkpoints.MODEL_DIR
    values = {name: np.array(read_value(model / name)) for name in spec["vars_at_stop"]}
    for index, name in enumerate(spec["vars_at_stop"]):
        assert (values[name].shape, values[name].dtype) == (expected[f"v{index}"].shape, expected[f"v{index}"].dtype)
    # Killed before step 4 of epoch 1, one step after the checkpoint: eight steps of five an epoch counted from zero.
    assert int(values["@LR_DECAY_COUNTER@"][0]) == int(expected["v0"][0]) - 1
    assert checkpoints.load_trainer_args(ckpt, latest, 0, ["epoch_id", "step_id"]) == ["1", "2"]


# ---------------------------------------------------------------- whole models
def model_cases() -> list[str]:
    return sorted(f.parent.name for f in formats().glob("p26_*/expect.npz") if (f.parent / "model.pdiparams").exists())


@pytest.mark.parametrize("case", model_cases())
def test_a_model_of_paddle_26_gives_its_numbers(case: str) -> None:
    folder = formats() / case
    spec, arrays = read_json(folder / "case.json"), read_arrays(folder / "expect.npz")
    model = fluidtool.load(folder / "model")
    got = model.run({feed["name"]: arrays[f"feed_{i}"] for i, feed in enumerate(spec["feeds"])})
    assert list(got) == [fetch["name"] for fetch in spec["fetches"]]
    for index, value in enumerate(got.values()):
        assert array_difference(value.numpy(), arrays[f"fetch_{index}"], FLOAT32) is None


def test_branches_and_loops_of_paddle_26_give_their_numbers() -> None:
    folder = formats() / "p26_attr_types"
    spec, arrays = read_json(folder / "case.json"), read_arrays(folder / "expect.npz")
    model = fluidtool.load(folder / "program.pb")
    fetches = [name for i, name in enumerate(spec["fetches"]) if f"fetch_{i}" in arrays]
    got = model.run({spec["feeds"][0]: arrays["feed_0"]}, fetches)
    for index, name in enumerate(fetches):
        assert array_difference(got[name].numpy(), arrays[f"fetch_{index}"], FLOAT32) is None


@pytest.mark.parametrize(
    ("folder", "options", "layout"),
    [
        ("two_targets", {}, "one file per parameter"),
        ("one_target_prunes_feed", {}, "one file per parameter"),
        ("renamed", {}, "one combined file"),
        ("not_for_deployment", {}, "one file per parameter"),
    ],
)
def test_the_layout_of_an_inference_model_is_found(folder: str, options: dict[str, Any], layout: str) -> None:
    files = open_model(formats() / "infer_model_options" / folder, **options)
    assert files.layout == layout
    assert files.fault is None


def test_a_program_saved_without_its_parameters_is_still_opened_for_inspection() -> None:
    files = open_model(formats() / "infer_model_options" / "program_only", need_parameters=False)
    assert files.fault is not None
    assert "no file for" in str(files.fault)
