"""`drop-identity`: operators that leave their input as it is go, and every bit stays."""

from __future__ import annotations

from typing import Any

import pytest

from fluidtool.passes.inference.identities import drop_identity
from fluidtool.tensor import CPUPlace, create_lod_tensor
from tests.passes.inference.checking import CheckedNet
from tests.passes.inference.net import Net as Sequences

IDENTITIES = {
    "scale": {"scale": 1.0, "bias": 0.0},
    "assign": {},
    "concat": {"axis": 1},
    "sum": {},
    "transpose2": {"axis": [0, 1]},
    "expand": {"expand_times": [1, 1]},
    "pad": {"paddings": [0, 0, 0, 0]},
    "cast": {"in_dtype": 5, "out_dtype": 5},
}
OTHERS = {
    "scale": {"scale": 1.0, "bias": 0.5},
    "transpose2": {"axis": [1, 0]},
    "expand": {"expand_times": [1, 2]},
    "pad": {"paddings": [0, 1, 0, 0]},
    "cast": {"in_dtype": 5, "out_dtype": 6},
    "relu": {},
}


def between(type: str, attrs: dict[str, Any], more: dict[str, Any] | None = None) -> tuple[CheckedNet, str, str]:
    """tanh -> the operator -> relu; what the operator and relu write."""
    net = CheckedNet("float32")
    x = net.op("tanh", {"X": net.input("x", 3, 4)})
    net.block.var(x).dtype = 5
    out = net.op(type, {"X": x}, more=more, **attrs)
    return net, out, net.op("relu", {"X": out})


@pytest.mark.parametrize("type", list(IDENTITIES))
def test_an_identity_goes(type: str) -> None:
    net, _, out = between(type, IDENTITIES[type], {"XShape": "shape"} if type == "transpose2" else None)
    net.check(drop_identity, out, rtol=0)
    assert net.types == ["tanh", "relu"]


@pytest.mark.parametrize("type", list(IDENTITIES))
def test_a_lod_stays(type: str) -> None:
    net, _, out = between(type, IDENTITIES[type])
    net.feed["x"] = create_lod_tensor(net.feed["x"], [[1, 2]], CPUPlace())
    net.block.var(net.block.ops[0].output("Out")[0]).lod_level = 1
    net.check(drop_identity, out, rtol=0)
    assert (type in net.types) == (type == "transpose2")  # which drops the LoD


@pytest.mark.parametrize("type", list(OTHERS))
def test_what_changes_its_input_is_no_candidate(type: str) -> None:
    net, _, out = between(type, OTHERS[type])
    assert drop_identity(net.program, net.scope, [out]).decisions == ()


@pytest.mark.parametrize("type", list(IDENTITIES))
def test_a_fetched_result_is_written_by_the_operator_before(type: str) -> None:
    net, inner, out = between(type, IDENTITIES[type])
    net.check(drop_identity, out, inner, rtol=0)
    assert net.types == ["tanh", "relu"] and net.block.ops[0].output("Out") == [inner]


def test_a_scale_in_front_of_every_fetch_goes() -> None:
    net = CheckedNet("float32")
    hidden = net.op("tanh", {"X": net.input("x", 3, 4)})
    outs = [net.op(type, {"X": hidden}) for type in ("relu", "sigmoid")]
    saved = [net.op("scale", {"X": out}, f"save_infer_model/scale_{i}", scale=1.0) for i, out in enumerate(outs)]
    for column, name in enumerate(saved):
        net.op("fetch", {"X": name}, "fetch", col=column)
    net.check(drop_identity, *saved, keep=[], rtol=0)
    assert net.types == ["tanh", "relu", "sigmoid", "fetch", "fetch"]


def test_other_readers_read_the_result() -> None:
    net, inner, out = between("scale", IDENTITIES["scale"])
    source = net.block.ops[0].output("Out")[0]
    other = net.op("sigmoid", {"X": source})
    net.check(drop_identity, out, inner, other, rtol=0)
    assert net.block.ops[-1].input("X") == [inner]


def test_chains_go_in_one_run() -> None:
    net = CheckedNet()
    x = net.op("tanh", {"X": net.input("x", 3, 4)})
    for _ in range(5):
        x = net.op("scale", {"X": x}, scale=1.0)
    net.check(drop_identity, net.op("relu", {"X": x}), rtol=0)
    assert net.types == ["tanh", "relu"]


def test_a_source_that_is_wanted_too_keeps_it() -> None:
    net, inner, out = between("scale", IDENTITIES["scale"])
    source = net.block.ops[0].output("Out")[0]
    net.check_left(drop_identity, out, inner, source, reason=f"{source} is fetched or must be kept too")


def test_a_fed_source_keeps_a_fetched_result() -> None:
    net = CheckedNet()
    out = net.op("scale", {"X": net.input("x", 3, 4)}, scale=1.0)
    net.check_left(drop_identity, out, reason="x is a parameter or is fed")


def test_a_persistable_result_stays() -> None:
    net, inner, out = between("scale", IDENTITIES["scale"])
    net.block.var(inner).persistable = True
    net.check_left(drop_identity, out, reason=f"{inner} is persistable")


def test_a_result_that_is_written_again_stays() -> None:
    net, inner, out = between("scale", IDENTITIES["scale"])
    net.op("sigmoid", {"X": inner}, inner)
    net.check_left(drop_identity, out, inner, reason=f"{inner} is written more than once")


def test_a_source_that_is_written_again_before_the_last_reader_stays() -> None:
    net = CheckedNet()
    x = net.op("tanh", {"X": net.input("x", 3, 4)})
    copied = net.op("assign", {"X": x})
    net.op("exp", {"X": x}, x)
    net.check_left(drop_identity, net.op("relu", {"X": copied}), reason=f"{x} is written again before {copied}")


def test_a_factor_that_the_program_computes_is_no_identity() -> None:
    net = CheckedNet()
    out = net.op("scale", {"X": net.input("x", 3, 4), "ScaleTensor": net.parameter("s", 1)}, scale=1.0)
    assert drop_identity(net.program, net.scope, [out]).decisions == ()


def test_in_place_stays() -> None:
    net = CheckedNet()
    x = net.op("tanh", {"X": net.input("x", 3, 4)})
    net.op("scale", {"X": x}, x, scale=1.0)
    net.check_left(drop_identity, x, reason="is written more than once")


def test_what_a_loop_carries_stays() -> None:
    net = CheckedNet()
    x = net.op("tanh", {"X": net.input("x", 3, 4)})
    condition = net.op("fill_constant", {}, "condition", shape=[1], dtype=0, value=1.0)
    net.block.create_var(name="out", dtype=net.dtype)
    below = net.program.create_block()
    net.program.rollback()
    net.op("assign", {"X": x}, "out", block=below)
    net.op("conditional_block", {"Cond": condition, "Input": []}, "scope", "Scope", {"Out": ["out"]}, sub_block=below)
    net.block.var("scope").type = 11  # STEP_SCOPES
    net.check_left(drop_identity, "out", reason="out is written more than once")


def test_a_transpose_that_takes_the_lod_away_stays() -> None:
    net = Sequences()
    net.data("x", net.numbers(4, 3), [[0, 1, 4]])
    net.op("transpose", {"X": ["x"]}, {"Out": ["y"]}, axis=[0, 1])
    net.op("relu", {"X": ["y"]}, {"Out": ["z"]})
    assert not drop_identity(net.program, net.scope).changed
    net.block.var("x").lod_level = 0
    assert drop_identity(net.program, net.scope).changed
