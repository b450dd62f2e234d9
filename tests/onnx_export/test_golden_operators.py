"""What ONNX Runtime computes of the packed operator cases is what real Paddle 1.8.5 computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluidtool.ir import Program
from fluidtool.onnx_export.exporter import export
from fluidtool.tensor import LoDTensor, var_type_of
from tests.onnx_export.support import require_onnx, run_onnx
from tests.support.golden import corpus, names_in, read_arrays, read_json

require_onnx()

# Cases whose numbers ONNX cannot give, and why.
OTHER_NUMBERS = {
    "gaussian_random": "another generator",
    "gaussian_random_batch_size_like": "another generator",
    "uniform_random": "another generator",
    "uniform_random_batch_size_like": "another generator",
    "randint": "another generator",
    "round": "Paddle 1.8.5 rounds halves to even or away from zero, by their place",
    "top_k": "Paddle 1.8.5 gives equal numbers in no order",
    "bilinear_interp": "whole numbers: the last bit decides what is cut off",
    "trilinear_interp": "whole numbers: the last bit decides what is cut off",
}
FORWARD = sorted({name.split("/")[0] for name in names_in("optest")})


def usable(spec: dict[str, Any]) -> bool:
    """Tensors go in, without LoD or with one sequence."""
    values = [*spec["feeds"], *spec["scope"]]
    lods = [value.get("lod") or [] for value in values]
    return (
        spec["mode"] == "output"
        and not spec.get("has_grad_ops")
        and all(value["kind"] == "lod_tensor" and "key" in value for value in values)
        and all(len(lod) < 2 and all(len(level) == 1 for level in lod) for lod in lods)
    )


def outcome(folder: Path, spec: dict[str, Any]) -> str:
    """'equal', 'blocked', or what differs."""
    arrays = read_arrays(folder / "arrays.npz")
    wanted = [entry for entry in spec["fetch"] if entry and entry["kind"] == "lod_tensor" and "key" in entry]
    if not wanted:
        return "blocked"
    program = Program.parse_from_string((folder / "program.pb").read_bytes())
    block = program.global_block()
    fed = [*spec["feeds"], *(spec["scope"] if spec["via"] == "operator_run" else ())]
    for entry in fed:
        var, array = block.vars[entry["name"]], arrays[entry["key"]]
        var.shape, var.dtype, var.lod_level = list(array.shape), var_type_of(array.dtype), len(entry.get("lod") or [])
    feed = {entry["name"]: arrays[entry["key"]] for entry in fed}
    parameters = {e["name"]: LoDTensor(arrays[e["key"]]) for e in spec["scope"] if e["name"] not in feed}
    names = [entry["name"] for entry in wanted]
    exported = export(program, list(feed), names, parameters)
    if exported.blockers:
        return "blocked"
    for entry, found in zip(wanted, run_onnx(exported, feed, names), strict=True):
        want = arrays[entry["key"]]
        if (found.dtype, found.shape) != (want.dtype, want.shape):
            return f"{entry['name']}: {found.dtype} {found.shape}, expected {want.dtype} {want.shape}"
        if want.dtype.kind != "f":
            same = np.array_equal(found, want)
        else:
            there = np.isfinite(want)  # ONNX's functions have infinities and NaN of their own
            bound = 1e-3 if want.dtype == np.float16 else 1e-4
            largest = max(float(np.abs(want[there]).max(initial=0)), 1e-6)
            same = np.allclose(found[there], want[there], rtol=bound, atol=bound * largest)
        if not same:
            return f"{entry['name']}: other numbers"
    return "equal"


@pytest.mark.parametrize("type", FORWARD)
def test_cases_of_an_operator(type: str) -> None:
    found = {}
    for name in names_in("optest"):
        folder = corpus("optest") / name
        if name.startswith(f"{type}/") and usable(spec := read_json(folder / "case.json")):
            found[name] = outcome(folder, spec)
    differing = {name: text for name, text in found.items() if text not in ("equal", "blocked")}
    if type in OTHER_NUMBERS:
        assert differing or all(text != "equal" for text in found.values()), "not needed any longer"
    else:
        assert differing == {}
    if set(found.values()) <= {"blocked"}:
        pytest.skip("no case that is exported")
