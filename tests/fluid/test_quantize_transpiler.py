"""`contrib.QuantizeTranspiler`: programs quantized in place; numbers are those of Paddle 1.8.5."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fluidtool import fluid
from fluidtool.errors import UsageError
from fluidtool.fluid.contrib import QuantizeTranspiler

CPU = fluid.CPUPlace()
OF_185 = {  # losses of six steps, the first prediction of the test program
    "moving_average_abs_max": (
        [2.5936487, 2.5969851, 2.3325038, 2.3466549, 2.4208992, 2.3509674],
        [0.1128434, 0.07119278, 0.1622309, 0.1105081],
    ),
    "range_abs_max": (
        [2.5990291, 2.5925126, 2.330338, 2.3442039, 2.4231877, 2.3528638],
        [0.1130701, 0.07131633, 0.1623825, 0.1091851],
    ),
    "abs_max": (
        [2.5990291, 2.5913448, 2.3319244, 2.3456337, 2.4244051, 2.3504241],
        [0.1114811, 0.07189237, 0.1617443, 0.1097051],
    ),
}


@pytest.fixture(autouse=True)
def scope() -> Any:
    with fluid.scope_guard(fluid.Scope()):
        yield fluid.global_scope()


def job(**options: Any) -> tuple[QuantizeTranspiler, fluid.Program, fluid.Program, Any, Any]:
    """A network that is quantized for training and for testing, and its values; what it predicts, and its loss."""
    main, startup = fluid.Program(), fluid.Program()
    transpiler = QuantizeTranspiler(window_size=20, **options)
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        image, label = fluid.data("img", [None, 1, 12, 12]), fluid.data("label", [None, 1], "int64")
        c = fluid.layers.conv2d(image, 4, 3, act="relu", param_attr="cw", bias_attr="cb")
        c = fluid.layers.pool2d(c, 2, "max", 2)
        d = fluid.layers.conv2d(c, 4, 1, param_attr="dw", bias_attr=False)
        e = fluid.layers.conv2d(c, 4, 1, param_attr="ew", bias_attr=False)
        p = fluid.layers.fc(fluid.layers.elementwise_add(d, e), 10, act="softmax", param_attr="fw", bias_attr="fb")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(p, label))
        test = main.clone(for_test=True)
        fluid.optimizer.Momentum(0.05, 0.9).minimize(loss)
        transpiler.training_transpile(main, startup)
        with fluid.unique_name.guard():
            transpiler.training_transpile(test, fluid.Program())
    fluid.Executor(CPU).run(startup)
    rng = np.random.RandomState(3)
    for name in ("cb", "cw", "dw", "ew", "fb", "fw"):
        tensor = fluid.global_scope().find_var(name).get_tensor()
        tensor.set(rng.uniform(-0.4, 0.4, tensor.shape()).astype("float32"), CPU)
    return transpiler, main, test.clone(for_test=True)._prune([p]), p, (loss, rng)


@pytest.mark.parametrize("type_", OF_185)
def test_training_and_freezing_as_185(type_: str) -> None:
    losses, prediction = OF_185[type_]
    transpiler, main, test, p, (loss, rng) = job(activation_quantize_type=type_)
    executor, found = fluid.Executor(CPU), []
    for _ in losses:
        image = rng.uniform(-1, 1, (8, 1, 12, 12)).astype("float32")
        feed = {"img": image, "label": rng.randint(0, 10, (8, 1)).astype("int64")}
        found.append(float(executor.run(main, feed=feed, fetch_list=[loss])[0]))
    np.testing.assert_allclose(found, losses, rtol=2e-6)
    np.testing.assert_allclose(executor.run(test, {"img": image}, [p.name])[0][0][:4], prediction, rtol=2e-6)
    transpiler.freeze_program(test, CPU)
    np.testing.assert_allclose(executor.run(test, {"img": image}, [p.name])[0][0][:4], prediction, rtol=2e-6)


def test_operators_share_what_they_read() -> None:
    _, main, _, _, _ = job()
    quantized = [op.input("X")[0] for op in main.global_block().ops if op.type == "fake_quantize_abs_max"]
    assert sorted(quantized) == ["cw", "dw", "elementwise_add_0.tmp_0", "ew", "fw", "img", "pool2d_0.tmp_0"]
    [gradient] = [op for op in main.global_block().ops if op.type == "mul_grad"]
    assert gradient.input("Y") == ["fw.quantized.dequantized"]


def test_frozen_programs_have_no_quantizers_of_weights_and_declare_what_they_use(scope: Any) -> None:
    transpiler, _, test, _, _ = job()
    transpiler.freeze_program(test, CPU)
    block = test.global_block()
    quantized = [op.input("X")[0] for op in block.ops if op.type == "fake_quantize_abs_max"]
    assert sorted(quantized) == ["elementwise_add_0.tmp_0", "img", "pool2d_0.tmp_0"]
    assert "cw.quantized" not in block.vars and "cw" in block.vars
    weight = np.array(scope.find_var("fw").get_tensor())
    assert np.abs(weight).max() == 127 and (weight == np.round(weight)).all()


def test_weights_become_integers_of_8_bits(scope: Any) -> None:
    transpiler, _, test, _, _ = job()
    transpiler.freeze_program(test, CPU)
    transpiler.convert_to_int8(test, CPU)
    assert {"cw.int8", "dw.int8", "ew.int8", "fw.int8"} < set(test.global_block().vars)
    assert np.array(scope.find_var("cw.int8").get_tensor()).dtype == np.int8


@pytest.mark.parametrize("what", ["weight", "activation"])
def test_types_must_be_known(what: str) -> None:
    with pytest.raises(UsageError, match=f"Unknown {what}_quantize_type: 'channel'"):
        QuantizeTranspiler(**{f"{what}_quantize_type": "channel"})
