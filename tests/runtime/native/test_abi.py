"""Python and C have one list of the arguments of every kernel, abi.toml."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fluidtool.runtime.engines.native import abi, generate_abi, library, preview
from fluidtool.runtime.engines.native.binding import empty_calls, word, write
from fluidtool.runtime.graph.ir import Activation

KERNELS = {name: found for name, found in vars(abi).items() if getattr(found, "kind", None) in list(abi.Kind)}
GOOD = """
[activations]
none = []
[kernels.scale]
does = "out = factor * source"
pointers = ["source: f32", "out: f32, written"]
sizes = ["shape[2]", "add = 0"]
floats = ["factor"]
"""


def read(folder: Path, text: str) -> generate_abi.Abi:
    path = folder / "abi.toml"
    path.write_text(text)
    return generate_abi.read(path)


# ---------------------------------------------------------------- the files
WRITTEN = [
    (generate_abi.PYTHON, generate_abi.in_python),
    (generate_abi.SHORT, generate_abi.fingerprint),
    (generate_abi.C, generate_abi.in_c),
]


@pytest.mark.parametrize(("path", "text"), WRITTEN, ids=lambda each: getattr(each, "name", ""))
def test_the_generated_files_are_current(path: Path, text: Callable[[generate_abi.Abi], str]) -> None:
    assert path.read_text("utf-8") == text(generate_abi.read(generate_abi.SOURCE))


def test_a_kernel_gets_a_structure_and_a_class(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD)
    assert "int64_t shape[2], add;\n    float factor;\n} ft_scale;" in generate_abi.in_c(found)
    assert "class Scale(Arguments[P]):" in generate_abi.in_python(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"source: f32"', '"source: f16"'),
        ('"out: f32, written"', '"out: f32, perhaps"'),
        ('["factor"]', '["factor", "add"]'),
        ("floats", "numbers"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises(ValueError, match=r"pointer|scale"):
        read(tmp_path, GOOD.replace(old, new))


@pytest.mark.parametrize(("old", "new"), [("shape[2]", "shape[3]"), ('"add = 0"', '"plus = 0"'), ("f32,", "bf16,")])
def test_another_layout_has_another_fingerprint(tmp_path: Path, old: str, new: str) -> None:
    assert read(tmp_path, GOOD).fingerprint != read(tmp_path, GOOD.replace(old, new)).fingerprint


def test_other_words_on_what_a_kernel_does_have_the_same_fingerprint(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD).fingerprint == read(tmp_path, GOOD.replace("factor * source", "a product")).fingerprint


def test_activations_have_the_numbers_that_graphs_have() -> None:
    names = {
        number: name.replace(" (tanh)", "_tanh").replace("scale", "affine")
        for number, name in preview.ACTIVATIONS.items()
    }
    assert names == {number: abi.ActivationKind(number).name.lower() for number in names}


# ---------------------------------------------------------------- what lies where
def test_the_kernels_are_numbered_as_they_stand() -> None:
    assert [kernel.kind for kernel in KERNELS.values()] == list(abi.Kind) == list(range(len(abi.Kind)))


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_every_argument_lies_where_the_compiler_looks_for_it(kernel: type[abi.Arguments[int]]) -> None:
    """The compiler has checked the offsets of the first pointer, size and float, and the size of the whole (src/abi.h)."""
    sizes = sum(count or 1 for count in kernel.size_counts.values())
    pointers = len(kernel.pointer_bytes)
    assert struct.calcsize(kernel.layout.format) == 32 + 8 * (pointers + sizes) + 4 * len(kernel.float_names)
    said = generate_abi.C.read_text()
    size = -(-kernel.layout.size // 8) * 8
    assert re.search(rf"sizeof\(ft_{kernel.kind.name.lower()}\)\s+==\s+{size}\b", said)


def test_a_call_is_written_in_order() -> None:
    arguments = abi.Pad(
        source=0, out=0, places=0, shape=(1, 2, 3, 4, 5), out_strides=(6, 7, 8, 9), first=10, run=11, value=0.5
    )
    calls = empty_calls(2)
    write(calls, 1, arguments, [20, 21, 22], 3, Activation(abi.ActivationKind.CLIP, (-1.0, 1.0)))
    assert not calls[0].any()
    assert calls[1].view(np.int32)[:2].tolist() == [abi.Kind.PAD, abi.ActivationKind.CLIP]
    assert calls[1, 1] == 3 and calls[1].view(np.float32)[4:7].tolist() == [-1, 1, 0]
    assert calls[1, abi.FIRST : abi.FIRST + 14].tolist() == [20, 21, 22, *range(1, 12)]
    assert calls[1].view(np.float32)[2 * (abi.FIRST + 14)] == 0.5
    assert [word(abi.Pad, name) - abi.FIRST for name in ("out", "shape", "first", "run")] == [1, 3, 12, 13]


def test_a_number_beyond_the_largest_float_is_infinite() -> None:
    calls = empty_calls(1)
    descend = abi.Descend(param=0, grad=0, places=None, rows=1, columns=1, count=0, listed=0, rate=-1e300)
    write(calls, 0, descend, [0, 0, 0], 1)
    assert calls[0].view(np.float32)[2 * word(abi.Descend, "listed") + 2] == -np.inf


def test_an_argument_that_a_kernel_does_not_have_lies_nowhere() -> None:
    with pytest.raises(ValueError, match="Descend has no moment"):
        word(abi.Descend, "moment")


def test_a_library_of_another_layout_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(library.attempt(), str):
        pytest.skip("no native engine")
    monkeypatch.setattr(library, "FINGERPRINT", library.FINGERPRINT ^ 1)
    assert "was built from other sources; rebuild it" in str(library.attempt.__wrapped__())
