"""What numpy's kernels refuse is not computed natively; a fault of the engine is not taken for one of the program."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

import numpy as np
import pytest

from fluidtool.errors import FluidError, OperatorError, UninitializedError
from fluidtool.ir import Operator
from fluidtool.ops.registry import get_op
from fluidtool.proto.enums import AttrType
from fluidtool.runtime import Executor
from fluidtool.runtime.graph.importers import IMPORTERS
from fluidtool.runtime.graph.ir import EngineFaultError
from fluidtool.tensor import LoDTensor
from tests.runtime.native.checking import Net, agree, check

pytestmark = pytest.mark.usefixtures("native")


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def last(net: Net) -> Operator:
    return net.program.global_block().ops[-1]


def refused(net: Net, out: str, message: str) -> None:
    """Both engines refuse the program, in the same words."""
    texts = []
    for engine in ("numpy", "native"):
        with pytest.raises(OperatorError, match=message) as raised:
            Executor(engine=engine).run(net.program, net.feeds, [out], net.scope)
        texts.append(str(raised.value))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("slot", ["Scale", "Bias"])
def test_layer_norm_with_a_factor_shorter_than_a_row(slot: str) -> None:
    net = Net()
    x, factor = net.data(4, 64), net.parameter(64)
    y = net.op("layer_norm", "Y", {"X": x, slot: factor}, "Mean", "Variance", begin_norm_axis=1)
    net.scope.var(factor).value = LoDTensor(ones(3))
    refused(net, y, f"input {slot} must hold 64 numbers")


@pytest.mark.parametrize("size", [1, 4, 7])
def test_fc_with_a_bias_of_another_length(size: int) -> None:
    net = Net()
    x, weights, bias = net.data(3, 8), net.parameter(8, 5), net.parameter(5)
    y = net.op("fc", "Out", {"Input": x, "W": weights, "Bias": bias}, in_num_col_dims=1)
    net.scope.var(bias).value = LoDTensor(ones(size))
    refused(net, y, "input Bias must hold 5 numbers")


@pytest.mark.parametrize("type", ["conv2d", "conv2d_transpose"])
@pytest.mark.parametrize("size", [1, 4, 9])
def test_a_convolution_with_a_bias_of_another_length(type: str, size: int) -> None:
    net = Net()
    x, weights, bias = net.data(1, 5, 6, 6), net.parameter(5, 5, 3, 3), net.parameter(5)
    attrs = {"strides": [1, 1], "paddings": [0, 0], "dilations": [1, 1], "groups": 1}
    y = net.op(type, "Output", {"Input": x, "Filter": weights, "Bias": bias}, **attrs)
    net.scope.var(bias).value = LoDTensor(ones(size))
    refused(net, y, "Bias must hold 5 numbers")


def test_mul_by_a_matrix_of_other_rows() -> None:
    net = Net()
    x, weights = net.data(4, 6), net.parameter(6, 5)
    y = net.op("mul", "Out", {"X": x, "Y": weights})
    net.scope.var(weights).value = LoDTensor(ones(5, 6))
    refused(net, y, "flattens to 6 columns")


def test_slice_that_drops_an_axis_of_more_than_one() -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(50, 8)})
    y = net.op("slice", "Out", {"Input": x}, axes=[0], starts=[0], ends=[1], decrease_axis=[0])
    last(net).set_attr("ends", [50])
    refused(net, y, "axis 0 of decrease_axis must be cut to size 1, found 50")


def test_squeeze_of_an_axis_of_more_than_one() -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(3, 1, 4)})
    y = net.op("squeeze2", "Out", {"X": x}, "XShape", axes=[1])
    last(net).set_attr("axes", [2])
    refused(net, y, "axis 2 to be squeezed must have size 1, found 4")


def test_lod_reset_to_offsets_that_go_back() -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(4, 3)})
    x = net.op("lod_reset", "Out", {"X": x}, target_lod=[0, 2, 4])
    y = net.op("sequence_pool", "Out", {"X": x}, "MaxIndex", pooltype="SUM")
    net.program.global_block().ops[1].set_attr("target_lod", [0, 1000, 4])
    refused(net, y, "not ascending")


@pytest.mark.parametrize(("kind", "value"), [(AttrType.STRING, "x"), (AttrType.INTS, [1, 2])])
def test_an_attribute_of_another_type_is_refused_by_each_engine(kind: AttrType, value: Any) -> None:
    net = Net()
    y = net.op("layer_norm", "Y", {"X": net.data(4, 64)}, "Mean", "Variance", begin_norm_axis=1)
    last(net).set_attr("epsilon", value, kind)
    for engine in ("numpy", "native"):
        with pytest.raises(OperatorError, match=f"has attribute epsilon as {kind.name}, expected FLOAT"):
            net.run(engine, y)


def test_whole_numbers_serve_where_others_are_declared() -> None:
    net = Net()
    x = net.op("softmax", "Out", {"X": net.data(4, 6)})
    y = net.op("scale", "Out", {"X": x}, scale=2.0, bias=0.5)
    last(net).set_attr("scale", 2, AttrType.INT)
    check(net, y)


def test_a_parameter_with_a_lod_keeps_it() -> None:
    net = Net()
    weights = net.parameter(4, 6)
    tensor = LoDTensor(ones(4, 6))
    tensor.set_lod([[0, 1, 4]])
    net.scope.var(weights).value = tensor
    y = net.op("softmax", "Out", {"X": weights})
    lods = [Executor(engine=name).run(net.program, {}, [y], net.scope)[0].lod() for name in ("numpy", "native")]
    assert lods == [[[0, 1, 4]]] * 2


# ---------------------------------------------------------------- faults of the engine
@pytest.mark.parametrize(
    "fault", [KeyError("axis"), TypeError("no number"), AttributeError("shape"), ValueError("four")]
)
def test_a_fault_of_a_importer_is_raised_as_one(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*_: Any) -> None:
        raise fault

    monkeypatch.setitem(IMPORTERS, "softmax", faulty)
    net = Net()
    y = net.op("softmax", "Out", {"X": net.data(4, 6)})
    with pytest.raises(EngineFaultError, match="softmax cannot be compiled") as raised:
        net.run("native", y)
    assert not isinstance(raised.value, FluidError) and raised.value.__cause__ is fault


def test_a_importer_that_makes_another_shape_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(r: Any, op: Operator, attrs: dict[str, Any]) -> None:
        r.add("view", [r.get(op, "X")], op, "Out", (6, 4))

    monkeypatch.setitem(IMPORTERS, "softmax", faulty)
    net = Net()
    y = net.op("softmax", "Out", {"X": net.data(4, 6)})
    agree(net, [y])
    assert net.why_not() == ["softmax to the shape (6, 4) where (4, 6) is inferred"]


def test_alike_operators_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from fluidtool.runtime.graph.importers import refusals

    asked: list[str] = []
    original = refusals.run_checks
    monkeypatch.setattr(refusals, "run_checks", lambda r, op, attrs: (asked.append(op.type), original(r, op, attrs)))
    net = Net()
    x = net.data(4, 6)
    for _ in range(5):
        x = net.op("softmax", "Out", {"X": x})
    net.run("native", net.op("softmax", "Out", {"X": net.op("transpose", "Out", {"X": x}, axis=[1, 0])}))
    assert asked == ["softmax", "transpose", "softmax"]


def test_a_product_that_a_pass_fused_more_into() -> None:
    net = Net()
    x, y = net.data(2, 6), net.parameter(6, 4)
    out = net.op("matmul", "Out", {"X": x, "Y": y}, fused_transpose_Out=[1, 0])
    agree(net, [out])
    out = net.op("matmul", "Out", {"X": x, "Y": y}, fused_reshape_Out=[3, 2])
    refused(net, out, "cannot reshape array of size 8 into shape")


def test_a_product_by_heads() -> None:
    net = Net()
    agree(net, [net.op("matmul", "Out", {"X": net.data(2, 4, 6), "Y": net.parameter(2, 6, 4)}, head_number=2)])


def test_batch_norm_that_ends_with_a_relu() -> None:
    net = Net()
    x, scale, bias, mean, variance = net.data(2, 3, 4, 4), *(net.parameter(3) for _ in range(4))
    net.scope.var(variance).value = LoDTensor(ones(3))
    given = {"X": x, "Scale": scale, "Bias": bias, "Mean": mean, "Variance": variance}
    agree(net, [net.op("batch_norm", "Y", given, is_test=True, fuse_with_relu=True)])


def test_a_list_that_names_a_variable_without_value() -> None:
    net = Net()
    x = net.data(3, 4)
    out = net.op("stack", "Y", {"X": x})
    last(net).set_input("X", [x, out])
    for engine in ("numpy", "native"):
        with pytest.raises(UninitializedError, match=f"input X of operator stack in block 0 is variable {out}, which"):
            Executor(engine=engine).run(net.program, net.feeds, [out], net.scope)


IDLE = {"momentum", "seed", "fix_seed", "is_test", "out_stride"}  # of training; of images of several sizes
IDLE |= {f"{scale}_{of}" for scale in ("scale", "Scale") for of in ("x", "y", "out")}  # of 8 bits: numpy's kernels
IDLE |= {"force_fp32_output"}
IDLE |= {"moving_rate", "window_size"}  # of scales that training learns
BY_KERNELS = {"anchor_generator", "prior_box", "density_prior_box"}  # whose importers call their kernels
BY_KERNELS |= {"fill_constant", "fill_constant_batch_size_like", "fill_any_like", "fill_zeros_like", "shape", "size"}
BY_KERNELS |= {"assign_value", "eye", "linspace", "range"}


@pytest.mark.parametrize("type", sorted(IMPORTERS.keys() - BY_KERNELS))
def test_an_importer_knows_every_attribute_that_the_kernel_asks_for(type: str) -> None:
    info = get_op(type)
    kernel, importer = (inspect.getsource(sys.modules[of.__module__]) for of in (info.kernel, IMPORTERS[type]))
    asked = {*info.kernel_attrs, *re.findall(r'ctx\.attr\("(\w+)"\)', kernel)} & info.attrs.keys()
    assert not [name for name in sorted(asked - IDLE) if f'"{name}"' not in importer]


@pytest.mark.parametrize(
    ("ends", "dropped", "message"),
    [([1000], [2], "axis 2 of decrease_axis must be cut to size 1, found 5"), ([0], [], "the range 0:0 of axis 2")],
)
def test_a_slice_that_inference_leaves_open(ends: list[int], dropped: list[int], message: str) -> None:
    net = Net()
    x = net.data(3, 4, 5)
    cut = {"axes": [2], "starts": [0], "ends": ends, "decrease_axis": dropped, "infer_flags": [-1]}
    refused(net, net.op("slice", "Out", {"Input": x}, **cut), message)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_last_of_an_axis_that_is_dropped(axis: int) -> None:
    """Fluid's x[-1] is the range -1:0."""
    net = Net()
    out = net.op("slice", "Out", {"Input": net.data(3, 4, 5)}, axes=[axis], starts=[-1], ends=[0], decrease_axis=[axis])
    agree(net, [out, net.op("relu", "Out", {"X": out})])


def test_an_assign_without_an_input_is_left_to_numpy() -> None:
    """X may be missing: the output then stays as it was."""
    net = Net()
    rows = net.op("softmax", "Out", {"X": net.data(2, 3)}, axis=-1)
    out = net.op("assign", "Out", {"X": rows})
    last(net).inputs["X"] = []
    net.op("softmax", "Out", {"X": rows}, axis=-1)
    found = [
        str(Executor(engine=each).run(net.program, net.feeds, [rows, out], net.scope)[1])
        for each in ("numpy", "native")
    ]
    assert found[0] == found[1]
